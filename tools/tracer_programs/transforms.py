"""Programs about function transforms: forward-mode AD, linearize, functionalize, vmap of modules."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from .programs import program, x


@program
def dual_level() -> Any:
    def f(a: Any, t: Any) -> Any:
        with fwAD.dual_level():
            out = fwAD.make_dual(a, t).sin() * 2
            return fwAD.unpack_dual(out).tangent

    return f, [(x(), x())]


@program
def dual_level_of_two() -> Any:
    def f(a: Any, t: Any) -> Any:
        with fwAD.dual_level():
            primal, tangent = fwAD.unpack_dual(fwAD.make_dual(a, t) * a)
        return primal + 1, tangent * 2

    return f, [(x(), x())]


@program
def jvp_of_a_closure() -> Any:
    w = x()

    def f(a: Any, t: Any) -> Any:
        return torch.func.jvp(lambda b: (b * w).sin(), (a,), (t,))

    return f, [(x(), x())]


@program
def jvp_with_aux() -> Any:
    def f(a: Any, t: Any) -> Any:
        return torch.func.jvp(lambda b: (b.sin(), b * 2), (a,), (t,), has_aux=True)

    return f, [(x(), x())]


@program
def linearize() -> Any:
    def f(a: Any, t: Any) -> Any:
        out, jvp = torch.func.linearize(torch.sin, a)
        return out, jvp(t)

    return f, [(x(), x())]


@program
def functionalized() -> Any:
    def g(a: Any) -> Any:
        b = a.clone()
        b.add_(1)
        return b.view(-1) * 2

    def f(a: Any) -> Any:
        return torch.func.functionalize(g)(a)

    return f, [(x(2, 2),)]


@program
def vjp_and_its_function() -> Any:
    def f(a: Any, g: Any) -> Any:
        out, pull = torch.func.vjp(lambda b: b.sin() * b, a)
        return out, pull(g)[0], pull(g * 2)[0]

    return f, [(x(), x())]


@program
def jacobians_and_hessian() -> Any:
    def g(a: Any) -> Any:
        return a.sin() * a

    def f(a: Any) -> Any:
        return torch.func.jacrev(g)(a), torch.func.jacfwd(g)(a), torch.func.hessian(lambda b: g(b).sum())(a)

    return f, [(x(3),)]


@program
def per_sample_gradients() -> Any:
    model = nn.Linear(4, 1)
    params = dict(model.named_parameters())

    def loss(p: Any, a: Any) -> Any:
        return functional_call(model, p, (a.unsqueeze(0),)).sum()

    def f(a: Any) -> Any:
        return vmap(torch.func.grad(loss), in_dims=(None, 0))(params, a)

    return f, [(x(5, 4),)]


@program
def stacked_modules() -> Any:
    models = [nn.Linear(4, 2) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = models[0]

    def f(a: Any) -> Any:
        return vmap(lambda p, b, i: functional_call(base, (p, b), (i,)), in_dims=(0, 0, None))(params, buffers, a)

    return f, [(x(5, 4),)]


@program
def stacked_modules_made_inside() -> Any:
    models = [nn.Linear(4, 2) for _ in range(3)]

    def f(a: Any) -> Any:
        params, buffers = stack_module_state(models)
        return vmap(lambda p, b, i: functional_call(models[0], (p, b), (i,)), in_dims=(0, 0, None))(params, buffers, a)

    return f, [(x(5, 4),)]


@program
def vmap_random_same() -> Any:
    def f(a: Any) -> Any:
        return vmap(lambda r: r + torch.rand(3), randomness="same")(a)

    return f, [(x(2, 3),)]


@program
def vmap_random_different() -> Any:
    def f(a: Any) -> Any:
        return vmap(lambda r: r + torch.rand(3), randomness="different")(a)

    return f, [(x(2, 3),)]


@program
def vmap_random_error() -> Any:
    def f(a: Any) -> Any:
        return vmap(lambda r: r + torch.rand(3))(a)

    return f, [(x(2, 3),)]


@program
def vmap_nested_in_dims() -> Any:
    def f(a: Any, b: Any) -> Any:
        return vmap(lambda d, t: d["p"] * t[0] + t[1], in_dims=({"p": 1}, (None, 0)), out_dims=1)({"p": a}, (b, a.t()))

    return f, [(x(3, 4), x(3))]


@program
def vmap_of_vmap_of_grad() -> Any:
    def f(a: Any) -> Any:
        return vmap(vmap(torch.func.grad(lambda s: s.sin() * s)))(a)

    return f, [(x(2, 3),)]


@program
def vmap_in_place() -> Any:
    def g(r: Any) -> Any:
        out = torch.zeros_like(r)
        out += r
        out[0] = 1.0
        return out

    def f(a: Any) -> Any:
        return vmap(g)(a)

    return f, [(x(2, 3),)]


@program
def autograd_functional() -> Any:
    def g(a: Any) -> Any:
        return (a.sin() * a).sum()

    def f(a: Any, v: Any) -> Any:
        return (
            torch.autograd.functional.jacobian(lambda b: b.sin() * b, a),
            torch.autograd.functional.hvp(g, a, v),
            torch.autograd.functional.vjp(g, a),
        )

    return f, [(x(3), x(3))]


@program
def stateless_functional_call() -> Any:
    model = nn.BatchNorm1d(4)

    def f(a: Any, w: Any) -> Any:
        return functional_call(
            model, {"weight": w, "running_mean": torch.zeros(4)}, (a,), tie_weights=True, strict=False
        )

    return f, [(x(5, 4), x(4, grad=True))], lambda: dict(model.state_dict())


@program
def traced_by_fx() -> Any:
    def g(a: Any) -> Any:
        return a.sin() + 1

    def f(a: Any) -> Any:
        return torch.fx.symbolic_trace(g)(a) * 2

    return f, [(x(),)]


@program
def made_by_make_fx() -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    def f(a: Any) -> Any:
        return make_fx(lambda b: b.sin() + 1)(a)(a) * 2

    return f, [(x(),)]


@program
def nonstrict() -> Any:
    @torch._dynamo.nonstrict_trace
    def g(a: Any, b: Any) -> Any:
        return a * 2 + b

    def f(a: Any) -> Any:
        return g(a.sin(), a).cos()

    return f, [(x(grad=True),)]


@program
def allowed_in_graph() -> Any:
    def g(a: Any) -> Any:
        return a * 2

    torch.compiler.allow_in_graph(g)

    def f(a: Any) -> Any:
        return g(a.sin()).cos()

    return f, [(x(grad=True),)]


@program
def compiler_directives() -> Any:
    def f(a: Any) -> Any:
        torch._dynamo.mark_static_address(a)
        torch._dynamo.maybe_mark_dynamic(a, 0)
        torch._dynamo.mark_static(a, 1)
        torch.compiler.cudagraph_mark_step_begin()
        return a * 2, torch.compiler.is_compiling() in (True, False), torch.compiler.is_exporting()

    return f, [(x(2, 4),)]


@program
def backend_stance() -> Any:
    def f(a: Any) -> Any:
        return a.sin() + 1

    def g(a: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            return f(a)

    return g, [(x(),)]
