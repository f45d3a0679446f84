"""Programs about torch.distributions."""

from __future__ import annotations

from typing import Any

import torch

from .programs import program, x


@program
def distribution_normal() -> Any:
    def f(loc: Any, scale: Any) -> Any:
        d = torch.distributions.Normal(loc, scale)
        return d.log_prob(loc + 1), d.entropy(), d.rsample(), d.mean, d.cdf(loc)

    return f, [(x(), x().abs() + 1)]


@program
def distribution_checks_fail() -> Any:
    def f(loc: Any, scale: Any) -> Any:
        return torch.distributions.Normal(loc, scale).mean + 1

    return f, [(x(), x().abs() + 1), (x(), -torch.ones(4))]


@program
def distribution_sample_checks_fail() -> Any:
    def f(p: Any, v: Any) -> Any:
        return torch.distributions.Bernoulli(probs=p).log_prob(v) * 2

    return f, [(torch.rand(4), torch.ones(4)), (torch.rand(4), torch.ones(4) * 0.5)]


@program
def distribution_categorical() -> Any:
    def f(logits: Any) -> Any:
        d = torch.distributions.Categorical(logits=logits)
        a = d.sample()
        return a, d.log_prob(a), d.entropy(), d.probs

    return f, [(x(3, 4),)]


@program
def distribution_without_checks() -> Any:
    def f(loc: Any, scale: Any) -> Any:
        d = torch.distributions.Normal(loc, scale, validate_args=False)
        return d.log_prob(loc), d.sample((2,))

    return f, [(x(), x().abs() + 1)]


@program
def distribution_kl_divergence() -> Any:
    def f(a: Any, b: Any) -> Any:
        p, q = torch.distributions.Normal(a, 1.0), torch.distributions.Normal(b, 2.0)
        return torch.distributions.kl_divergence(p, q).sum()

    return f, [(x(), x())]


@program
def distribution_transformed() -> Any:
    def f(a: Any) -> Any:
        base = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        d = torch.distributions.TransformedDistribution(base, [torch.distributions.transforms.ExpTransform()])
        return d.log_prob(a)

    return f, [(x().abs() + 0.1,)]


@program
def distribution_multivariate() -> Any:
    def f(loc: Any, a: Any) -> Any:
        d = torch.distributions.MultivariateNormal(loc, torch.eye(4))
        return d.log_prob(a), torch.distributions.Independent(torch.distributions.Normal(loc, 1.0), 1).log_prob(a)

    return f, [(x(), x())]


@program
def distribution_mixture_and_others() -> Any:
    def f(a: Any) -> Any:
        D = torch.distributions
        one = D.Beta(a, a + 1).mean, D.Gamma(a, 1.0).log_prob(a), D.Poisson(a).log_prob(torch.ones(4))
        mixture = D.MixtureSameFamily(D.Categorical(torch.ones(4)), D.Normal(a, 1.0))
        return (
            *one,
            mixture.log_prob(a[0]),
            D.Uniform(0.0, 1.0).log_prob(torch.tensor(0.5)),
            D.Laplace(a, 1.0).icdf(a / 9),
        )

    return f, [(x().abs() + 0.1,)]
