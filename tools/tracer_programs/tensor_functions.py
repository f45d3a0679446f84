"""Programs about functions of torch that read values, change storages or give results of unknown size."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Gamma, Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn.utils import parametrizations, parametrize, prune

from .programs import program, x


@program
def equal_of_tensors() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a + 1 if torch.equal(a, b) else a - 1

    a = x()
    return f, [(a, a.clone()), (a, a + 1), (a, a.clone())]


@program
def equal_returned() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.equal(a, b), a.sin()

    a = x()
    return f, [(a, a.clone()), (a, a + 1)]


@program
def allclose_of_tensors() -> Any:
    def f(a: Any, b: Any) -> Any:
        return a + 1 if torch.allclose(a, b) else a - 1

    a = x()
    return f, [(a, a.clone()), (a, a + 1), (a, a.clone())]


@program
def allclose_returned() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.allclose(a.sin(), b), a * 2

    a = x()
    return f, [(a, a.sin()), (a, a + 1)]


@program
def resized_local() -> Any:
    def f(a: Any) -> Any:
        b = a.clone()
        b.resize_(2, 2)
        return b + 1

    return f, [(x(6),), (x(6),)]


@program
def resized_input() -> Any:
    def f(a: Any) -> Any:
        a.resize_(2, 2)
        return a + 1

    return f, [(x(6),), (x(6),)]


@program
def set_to_another_tensor() -> Any:
    def f(a: Any, b: Any) -> Any:
        a.set_(b)
        return a * 2

    return f, [(x(), x(2, 3)), (x(), x(2, 3))]


@program
def view_of_input_written() -> Any:
    def f(a: Any) -> Any:
        v = a.view(-1)[1:3]
        v.mul_(2)
        a.t_()
        return a.sum(0)

    return f, [(x(2, 3),), (x(2, 3),)]


@program
def in_place_views_of_input() -> Any:
    def f(a: Any) -> Any:
        a.unsqueeze_(0)
        a.transpose_(0, 1)
        return a + 1

    return f, [(x(3),), (x(3),)]


@program
def squeezed_in_place() -> Any:
    def f(a: Any) -> Any:
        b = a * 2
        b.squeeze_()
        return b, a.swapaxes_(0, 1)

    return f, [(x(1, 3),), (x(1, 3),)]


@program
def normal_with_checks() -> Any:
    def f(m: Any, s: Any) -> Any:
        d = Normal(m, s, validate_args=True)
        return d.log_prob(m + 1), d.entropy(), d.rsample()

    return f, [(x(), x().exp()), (x(), x().exp())]


@program
def normal_with_a_failing_check() -> Any:
    def f(m: Any, s: Any) -> Any:
        return Normal(m, s, validate_args=True).log_prob(m)

    return f, [(x(), x().exp()), (x(), -x().exp())]


@program
def categorical_with_checks() -> Any:
    def f(logits: Any) -> Any:
        d = Categorical(logits=logits)
        return d.log_prob(d.sample()), d.entropy()

    return f, [(x(3, 4, grad=True),), (x(3, 4, grad=True),)]


@program
def kl_divergence_of_normals() -> Any:
    def f(a: Any, b: Any) -> Any:
        return kl_divergence(Independent(Normal(a, b.exp()), 1), Independent(Normal(torch.zeros(4), torch.ones(4)), 1))

    return f, [(x(2, 4, grad=True), x(2, 4, grad=True))]


@program
def multivariate_normal() -> Any:
    def f(m: Any, a: Any) -> Any:
        d = MultivariateNormal(m, scale_tril=torch.tril(a.exp()))
        return d.log_prob(m * 2)

    return f, [(x(3), x(3, 3))]


@program
def gamma_with_checks() -> Any:
    def f(a: Any, v: Any) -> Any:
        return Gamma(a.exp(), torch.ones(4)).log_prob(v.exp())

    return f, [(x(grad=True), x()), (x(grad=True), x())]


@program
def one_hot_without_classes() -> Any:
    def f(a: Any) -> Any:
        return F.one_hot(a).float() * 2

    return f, [(torch.tensor([0, 2, 1]),), (torch.tensor([0, 3, 1]),)]


@program
def masked_mean_and_variance() -> Any:
    def f(a: Any, mask: Any) -> Any:
        return torch.masked.mean(a, 1, mask=mask), torch.masked.var(a, 1, mask=mask)

    return f, [(x(3, 4), x(3, 4) > -1)]


@program
def split_by_sizes_of_data() -> Any:
    def f(a: Any, sizes: Any) -> Any:
        return [p.sum(0) for p in torch.split(a, sizes.tolist())]

    return f, [(x(6, 2), torch.tensor([1, 2, 3])), (x(6, 2), torch.tensor([2, 2, 2]))]


@program
def arange_of_data() -> Any:
    def f(n: Any) -> Any:
        return torch.arange(n.item()) * 2

    return f, [(torch.tensor(4),), (torch.tensor(6),)]


@program
def repeat_interleave_of_data() -> Any:
    def f(a: Any, n: Any) -> Any:
        return torch.repeat_interleave(a, n, dim=0) + 1

    return f, [(x(3, 2), torch.tensor([1, 2, 0])), (x(3, 2), torch.tensor([3, 2, 4]))]


@program
def repeated_by_data() -> Any:
    def f(a: Any, n: Any) -> Any:
        k = n.item()
        return a.repeat(k, 1) * 2, a.unsqueeze(0).expand(k, -1, -1) + 1

    return f, [(x(3, 2), torch.tensor(2)), (x(3, 2), torch.tensor(3))]


@program
def padded_by_data() -> Any:
    def f(a: Any, lengths: Any) -> Any:
        n = int(lengths.max())
        mask = torch.arange(n)[None] < lengths[:, None]
        return a[:, :n] * mask

    return f, [(x(2, 6), torch.tensor([3, 5])), (x(2, 6), torch.tensor([2, 1]))]


@program
def nonzero_then_split() -> Any:
    def f(a: Any) -> Any:
        rows, columns = torch.nonzero(a > 0, as_tuple=True)
        return a[rows, columns].sum(), torch.zeros(rows.shape[0]) + 1

    return f, [(x(3, 4),), (x(3, 4),)]


@program
def constant_result_of_a_tensor() -> Any:
    @torch._dynamo.assume_constant_result
    def size(a: Any) -> Any:
        return int(a.shape[0]) * 2

    def f(a: Any) -> Any:
        return a * size(a)

    return f, [(x(3),), (x(3),)]


@program
def constant_result_of_a_method() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        @torch.compiler.assume_constant_result
        def scale(self) -> Any:
            return float(self.weight.detach().sum())

        def forward(self, a: Any) -> Any:
            return a * self.scale()

    return Model(), [(x(3),), (x(3),)]


@program
def lazy_module() -> Any:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))

    return model, [(x(3, 5),), (x(3, 5),)], lambda: [p.detach() for p in model.parameters()]


@program
def weight_norm() -> Any:
    model = parametrizations.weight_norm(nn.Linear(4, 3))
    return model, [(x(2, 4, grad=True),)], lambda: [p.grad for p in model.parameters()]


@program
def spectral_norm() -> Any:
    model = parametrizations.spectral_norm(nn.Linear(4, 3))
    return model, [(x(2, 4),), (x(2, 4),)], lambda: ([p.grad for p in model.parameters()], dict(model.state_dict()))


@program
def orthogonal() -> Any:
    model = parametrizations.orthogonal(nn.Linear(4, 4))
    return model, [(x(2, 4),)], lambda: [p.grad for p in model.parameters()]


@program
def parametrized_by_a_module() -> Any:
    class Symmetric(nn.Module):
        def forward(self, w: Any) -> Any:
            return w.triu() + w.triu(1).t()

    model = nn.Linear(3, 3)
    parametrize.register_parametrization(model, "weight", Symmetric())

    def f(a: Any) -> Any:
        with parametrize.cached():
            return model(a) + model.weight.sum()

    return f, [(x(2, 3),)], lambda: [p.grad for p in model.parameters()]


@program
def pruned() -> Any:
    model = nn.Linear(4, 3)
    prune.l1_unstructured(model, "weight", 0.5)
    return model, [(x(2, 4, grad=True),)], lambda: [p.grad for p in model.parameters()]


@program
def gradients_clipped() -> Any:
    w = nn.Parameter(x())

    def f(g: Any) -> Any:
        w.grad = g.clone()
        return nn.utils.clip_grad_norm_([w], 1.0), nn.utils.clip_grad_value_([w], 0.3)

    return f, [(x(),), (x(),)], lambda: w.grad


@program
def gradients_clipped_if_finite() -> Any:
    w = nn.Parameter(x())

    def f(g: Any) -> Any:
        w.grad = g.clone()
        return nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)

    return f, [(x(),), (x() / 0,)], lambda: w.grad


@program
def parameters_as_a_vector() -> Any:
    model = nn.Linear(3, 2)

    def f(a: Any) -> Any:
        v = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(v * 0.5, model.parameters())
        return model(a)

    return f, [(x(2, 3),), (x(2, 3),)], lambda: [p.detach() for p in model.parameters()]


@program
def scripted_function() -> Any:
    @torch.jit.script
    def g(a, b: float):  # type: ignore[no-untyped-def]
        return a.sin() * b

    def f(a: Any) -> Any:
        return g(a, 2.0) + 1

    return f, [(x(grad=True),)]


@program
def scripted_module() -> Any:
    model = torch.jit.script(nn.Linear(4, 2))

    def f(a: Any) -> Any:
        return model(a) * 2

    return f, [(x(2, 4, grad=True),)]


@program
def traced_module() -> Any:
    model = torch.jit.trace(nn.Linear(4, 2), x(2, 4))

    def f(a: Any) -> Any:
        return model(a) * 2

    return f, [(x(2, 4, grad=True),)]


@program
def vmap_with_two_out_dims() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: (r * 2, r.outer(r)), out_dims=(1, 2))(a)

    return f, [(x(2, 3),)]


@program
def vmap_with_nested_out_dims() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: {"p": r * 2, "q": (r + 1,)}, out_dims={"p": 1, "q": (0,)})(a)

    return f, [(x(2, 3),)]


@program
def vmap_in_chunks() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: r * 2, chunk_size=2)(a)

    return f, [(x(5, 3),)]


@program
def cond_in_cond_with_closures() -> Any:
    w = nn.Parameter(x())

    def f(a: Any, b: Any) -> Any:
        scale = a * 2

        def inner(c: Any) -> Any:
            return torch.cond(c.sum() > 1, lambda d: d * scale, lambda d: d + w, (c,))

        return torch.cond(b.sum() > 0, inner, lambda c: c - scale * w, (a,))

    return f, [(x(grad=True), torch.tensor([s])) for s in (1.0, -1.0)], lambda: w.grad


@program
def compiled_region() -> Any:
    @torch.compiler.nested_compile_region
    def g(a: Any, w: Any) -> Any:
        return (a * w).sin()

    def f(a: Any, w: Any) -> Any:
        for _ in range(3):
            a = g(a, w)
        return a

    return f, [(x(grad=True), x(grad=True))]


@program
def compiled_region_of_modules() -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        @torch.compiler.nested_compile_region
        def forward(self, a: Any) -> Any:
            return self.layer(a).relu()

    model = nn.Sequential(Block(), Block())
    return model, [(x(2, 4, grad=True),)], lambda: [p.grad for p in model.parameters()]


@program
def is_compiling_functions() -> Any:
    def f(a: Any) -> Any:
        torch._assert(a.shape[0] == 4, "size")
        torch._check(a.shape[0] > 2)
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            return a
        return a + torch.numel(a)

    return f, [(x(),)]


@program
def gradient_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        b = a.detach().requires_grad_()
        (g,) = torch.autograd.grad((b.sin() * b).sum(), b, create_graph=True)
        return g * 2, b.grad is None

    return f, [(x(),)]


@program
def backward_in_the_graph() -> Any:
    layer = nn.Linear(4, 2)

    def f(a: Any) -> Any:
        loss = layer(a).pow(2).mean()
        loss.backward()
        return loss.detach()

    return f, [(x(3, 4),), (x(3, 4),)], lambda: [p.grad for p in layer.parameters()]


@program
def histogram_and_counts() -> Any:
    def f(a: Any) -> Any:
        return torch.histc(a, 4, -2, 2), torch.bincount((a > 0).long(), minlength=2), torch.unique(a > 0)

    return f, [(x(8),), (x(8),)]


@program
def tensor_to_python_and_back() -> Any:
    def f(a: Any) -> Any:
        return torch.tensor(a.tolist()) * 2, torch.as_tensor([a[0], a[1]]) + 1

    return f, [(x(3),), (x(3),)]


@program
def storage_and_pointer_compared() -> Any:
    def f(a: Any, b: Any) -> Any:
        same = a.data_ptr() == b.data_ptr()
        return a + 1 if same else a * b

    a = x()
    return f, [(a, a), (a, x())]


@program
def in_place_under_no_grad() -> Any:
    w = nn.Parameter(x())

    def f(a: Any) -> Any:
        with torch.no_grad():
            w.copy_(a).mul_(2).clamp_(min=0)
        return w * 3

    return f, [(x(),), (x(),)], lambda: (w.detach().clone(), w.grad)
