"""Compares every distribution of `torch.distributions`, with parameters made from its own `arg_constraints`, and every
registered pair of `kl_divergence`.

Modes: `draw` (samples, with gradients if they are reparametrized), `density` (`log_prob`, `cdf`, `icdf`, with
gradients), `moments` (mean, variance, mode, entropy ...), `kl`, `errors` (parameters and values out of range).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import distributions
from torch.distributions import constraints, transform_to
from torch.distributions.kl import _KL_REGISTRY
from torch.utils import _pytree as pytree

from tools.database_suite.programs import Compile, Program, Step, run_programs

BATCH = 4
Parameters = dict[str, Any]


def _covariance(n: int) -> torch.Tensor:
    a = torch.randn(n, n, dtype=torch.float64)
    return a @ a.mT + torch.eye(n, dtype=torch.float64)


def _positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64) + 0.5


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


# Parameters that constraints do not say how to make: of which several must fit, or which are no tensors.
SPECIAL: dict[str, Callable[[], Parameters]] = {
    "Binomial": lambda: {"total_count": 6, "probs": torch.rand(BATCH, dtype=torch.float64)},
    "Multinomial": lambda: {"total_count": 6, "probs": _positive(3)},
    "NegativeBinomial": lambda: {"total_count": _positive(BATCH) * 4, "probs": torch.rand(BATCH, dtype=torch.float64)},
    "Geometric": lambda: {"probs": torch.rand(BATCH, dtype=torch.float64) * 0.8 + 0.1},
    "Uniform": lambda: {"low": _normal(BATCH), "high": _normal(BATCH) + 6},
    "MultivariateNormal": lambda: {"loc": _normal(3), "covariance_matrix": _covariance(3)},
    "LowRankMultivariateNormal": lambda: {"loc": _normal(3), "cov_factor": _normal(3, 2), "cov_diag": _positive(3)},
    "LKJCholesky": lambda: {"dim": 3, "concentration": _positive(BATCH)},
    "Wishart": lambda: {"df": _positive() + 4, "covariance_matrix": _covariance(3)},
    "RelaxedBernoulli": lambda: {"temperature": _positive(), "probs": torch.rand(BATCH, dtype=torch.float64)},
    "RelaxedOneHotCategorical": lambda: {"temperature": _positive(), "probs": _positive(3)},
    "GeneralizedPareto": lambda: {
        "loc": _normal(BATCH), "scale": _positive(BATCH), "concentration": _positive(BATCH) * 0.1
    },
}  # fmt: skip
# Distributions that are composed of others.
COMPOSED: dict[str, Callable[..., Any]] = {
    "Independent": lambda loc, scale: distributions.Independent(distributions.Normal(loc, scale), 1),
    "MixtureSameFamily": lambda loc, scale: distributions.MixtureSameFamily(
        distributions.Categorical(scale), distributions.Normal(loc, scale)
    ),
    "TransformedDistribution": lambda loc, scale: distributions.TransformedDistribution(
        distributions.Normal(loc, scale),
        [distributions.TanhTransform(), distributions.AffineTransform(1.0, 2.0)],
    ),
}
ABSTRACT = {"Distribution", "ExponentialFamily", "Transform"}
NAMES = sorted(
    name for name in distributions.__all__
    if isinstance(getattr(distributions, name), type)
    and issubclass(getattr(distributions, name), distributions.Distribution)
    and name not in ABSTRACT
)  # fmt: skip
MOMENTS = ("mean", "variance", "stddev", "mode", "entropy", "perplexity")


def _maker(name: str) -> Callable[..., Any]:
    return COMPOSED.get(name) or getattr(distributions, name)


@functools.cache
def _parameters(name: str) -> Parameters:
    """In float64, the same ones each time."""
    torch.manual_seed(2)
    if name in SPECIAL:
        return SPECIAL[name]()
    if name in COMPOSED:
        return {"loc": _normal(BATCH), "scale": _positive(BATCH)}
    cls = getattr(distributions, name)
    found: Parameters = {}
    for parameter, constraint in cls.arg_constraints.items():
        if parameter == "logits" and "probs" in found:
            continue
        shape = (BATCH,) if constraint.event_dim == 0 else (BATCH,) * constraint.event_dim
        if constraint is constraints.nonnegative_integer or constraint.is_discrete:
            found[parameter] = torch.randint(1, 6, shape)
        else:
            found[parameter] = transform_to(constraint)(_normal(*shape) * 0.5)
    return found


def _in(parameters: Parameters, dtype: torch.dtype, gradients: bool = True) -> Parameters:
    """The parameters as leaves of that dtype."""
    def leaf(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x.clone()
        return x.to(dtype).clone().requires_grad_(gradients)

    return pytree.tree_map_only(torch.Tensor, leaf, parameters)


def _with_gradients(fn: Callable[..., Any], parameters: Parameters, *args: Any) -> Any:
    """Results of `fn(parameters, *args)`, and gradients of the sum of those that have one."""
    results = fn(parameters, *args)
    leaves = [x for x in pytree.tree_leaves((parameters, args)) if isinstance(x, torch.Tensor) and x.requires_grad]
    sums = [x.sum() for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    found = torch.autograd.grad(sum(sums), leaves, allow_unused=True) if sums and leaves else ()
    return results, found


def _program(
    name: str, fn: Callable[..., Any], parameters: Parameters, *values: torch.Tensor, gradients: bool = True
) -> Program:
    """`fn(parameters, *values)`, compiled."""
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        fast = compile(fn)
        given = [_in({"value": value}, dtype, gradients)["value"] for value in values]
        return lambda number: _with_gradients(fast, _in(parameters, dtype, gradients), *given)

    return Program(name, make)


class Distributions:
    """The classes."""

    modes = ("draw", "density", "moments", "kl", "errors")

    def names(self) -> list[str]:
        """Names of classes."""
        return NAMES

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs a unit."""
        makers = {"draw": _draws, "density": _densities, "moments": _moments, "kl": _divergences, "errors": _errors}
        run_programs(makers[request["mode"]](name), request, engine, tell)


def all_distributions() -> Distributions:
    """`torch.distributions`."""
    return Distributions()


def _draws(name: str) -> Iterator[Program]:
    maker, parameters = _maker(name), _parameters(name)
    yield _program("sample", lambda p: maker(**p).sample((3,)), parameters)
    if name not in COMPOSED:
        yield _program("sample without checks", lambda p: maker(**p, validate_args=False).sample(), parameters)
    yield _program("rsample", lambda p: maker(**p).rsample((2,)), parameters)
    yield _program("rsample and log_prob", lambda p: _sample_and_density(maker(**p)), parameters)


def _sample_and_density(distribution: Any) -> Any:
    drawn = distribution.rsample() if distribution.has_rsample else distribution.sample()
    return drawn, distribution.log_prob(drawn)


def _value(name: str) -> torch.Tensor:
    torch.manual_seed(3)
    drawn = _maker(name)(**_in(_parameters(name), torch.float64, False)).sample((2,))
    # what is near the ends of the support in float64 is beyond it in float32
    return drawn.clamp(1e-3, 1 - 1e-3) if name in ("ContinuousBernoulli", "Beta", "Kumaraswamy") else drawn


def _densities(name: str) -> Iterator[Program]:
    maker, parameters, value = _maker(name), _parameters(name), _value(name)
    yield _program("log_prob", lambda p, x: maker(**p).log_prob(x), parameters, value)
    yield _program("cdf", lambda p, x: maker(**p).cdf(x), parameters, value)
    yield _program(
        "icdf", lambda p, x: maker(**p).icdf(x), parameters, torch.rand(BATCH, dtype=torch.float64), gradients=False
    )
    yield _program("expand", lambda p: maker(**p).expand((2, *maker(**p).batch_shape)).sample(), parameters)
    yield _program("enumerate_support", lambda p: maker(**p).enumerate_support(), parameters)


def _moments(name: str) -> Iterator[Program]:
    maker, parameters = _maker(name), _parameters(name)

    def moment(statistic: str, p: Parameters) -> Any:
        found = getattr(maker(**p), statistic)
        return found() if callable(found) else found

    for statistic in MOMENTS:
        yield _program(statistic, functools.partial(moment, statistic), parameters)
    yield _program("shapes", lambda p: (maker(**p).batch_shape, maker(**p).event_shape), parameters)
    yield _program("repr", lambda p: repr(maker(**p)), parameters)


def _divergences(name: str) -> Iterator[Program]:
    """Pairs whose first class is this one."""
    cls = getattr(distributions, name)
    for other in sorted({q.__name__ for p, q in _KL_REGISTRY if p is cls}):
        if other in NAMES:
            first, second = _maker(name), _maker(other)
            pair = {"p": _parameters(name), "q": _parameters(other)}
            yield _program(
                f"of {other}",
                lambda p, first=first, second=second: distributions.kl_divergence(first(**p["p"]), second(**p["q"])),
                pair,
            )


def _errors(name: str) -> Iterator[Program]:
    """Parameters, and a value, that are not a number: ValueError where arguments are checked."""
    maker, parameters, value = _maker(name), _parameters(name), _value(name)

    def spoiled(x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, float("nan")) if x.is_floating_point() else x - 100

    for parameter, number in parameters.items():
        if isinstance(number, torch.Tensor):
            yield _program(
                f"parameter {parameter}", lambda p: maker(**p).sample(), {**parameters, parameter: spoiled(number)},
                gradients=False,
            )  # fmt: skip
    yield _program("value", lambda p, x: maker(**p).log_prob(x), parameters, spoiled(value), gradients=False)

    def handled(p: Parameters, x: torch.Tensor) -> Any:
        try:
            return maker(**p).log_prob(x)
        except ValueError:
            return torch.zeros(2)

    yield _program("value, handled", handled, parameters, spoiled(value), gradients=False)
