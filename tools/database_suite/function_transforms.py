"""Programs that apply `torch.func` to small functions and models: single transforms, nested ones, and transforms of
modules.

Each program is a function of tensors; it is compiled and called twice, the second time with other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)  # fmt: skip

from tools.database_suite.programs import Collection, Compile, Program, Step

_COLLECTION = Collection()


def collection() -> Collection:
    """The programs."""
    return _COLLECTION


def f(x: Tensor) -> Tensor:
    """A function of a vector with a scalar result."""
    return (x.sin() * x).sum() + x.prod()


def g(x: Tensor) -> Tensor:
    """A function of a vector with a vector as result."""
    return torch.tanh(x) * x.flip(0) + x.cumsum(0)


def add(name: str, fn: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """The program that calls `fn` with tensors of random numbers of these shapes."""
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        fast = compile(fn)
        return lambda number: fast(*(torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes))

    _COLLECTION.programs[name] = Program(name, make)


V, M = (5,), (4, 5)
add("grad", lambda x: grad(f)(x), V)
add("grad_of_grad", lambda x: grad(lambda y: grad(f)(y).sum())(x), V)
add("grad_of_grad_of_grad", lambda x: grad(lambda z: grad(lambda y: grad(f)(y).sum())(z).sum())(x), V)
add("grad_and_value", lambda x: grad_and_value(f)(x), V)
add("grad_argnums", lambda x, y: grad(lambda a, b: (a * b.exp()).sum(), argnums=(0, 1))(x, y), V, V)
add("grad_has_aux", lambda x: grad(lambda a: (f(a), a.cos()), has_aux=True)(x), V)
add("grad_of_dict", lambda x, y: grad(lambda d: (d["a"] * d["b"].sin()).sum())({"a": x, "b": y}), V, V)
add("vjp", lambda x, v: vjp(g, x)[1](v), V, V)
add("vjp_and_result", lambda x, v: (lambda out, back: (out, back(v)))(*vjp(g, x)), V, V)
add("vjp_twice", lambda x, v: (lambda out, back: (back(v), back(v * 2)))(*vjp(g, x)), V, V)
add("vjp_has_aux", lambda x, v: vjp(lambda a: (g(a), a.sum()), x, has_aux=True)[2], V, V)
add("jvp", lambda x, v: jvp(g, (x,), (v,)), V, V)
add("jvp_of_jvp", lambda x, v: jvp(lambda y: jvp(g, (y,), (v,))[1], (x,), (v,)), V, V)
add("jvp_has_aux", lambda x, v: jvp(lambda a: (g(a), a.exp()), (x,), (v,), has_aux=True), V, V)
add("linearize", lambda x, v: linearize(g, x)[1](v), V, V)
add("jacrev", lambda x: jacrev(g)(x), V)
add("jacrev_chunks", lambda x: jacrev(g, chunk_size=2)(x), V)
add("jacrev_argnums", lambda x, y: jacrev(lambda a, b: g(a) * b, argnums=(0, 1))(x, y), V, V)
add("jacfwd", lambda x: jacfwd(g)(x), V)
add("jacfwd_randomness", lambda x: jacfwd(lambda a: g(a) * torch.rand(5, dtype=a.dtype), randomness="same")(x), V)
add("jacrev_of_jacrev", lambda x: jacrev(jacrev(g))(x), V)
add("jacfwd_of_jacrev", lambda x: jacfwd(jacrev(g))(x), V)
add("hessian", lambda x: hessian(f)(x), V)
add("hessian_of_product", lambda x: hessian(lambda a: (a @ a.mT).diagonal().log1p().abs().sum())(x.abs()), (2, 3))
add("hessian_vector_product", lambda x, v: jvp(grad(f), (x,), (v,))[1], V, V)
add("vmap", lambda x: vmap(g)(x), M)
add("vmap_in_dims", lambda x, y: vmap(lambda a, b: a.dot(b), in_dims=(1, 0))(x, y), (5, 4), M)
add("vmap_out_dims", lambda x: vmap(g, out_dims=1)(x), M)
add("vmap_out_dims_many", lambda x: vmap(lambda a: (g(a), a.sum()), out_dims=(1, 0))(x), M)
add("vmap_in_dims_none", lambda x, y: vmap(lambda a, b: a @ b, in_dims=(0, None))(x, y), M, (5, 3))
add("vmap_of_vmap", lambda x: vmap(vmap(g))(x), (2, 4, 5))
add("vmap_of_dict", lambda x: vmap(lambda d: {"r": d["a"] + d["b"].sum()})({"a": x, "b": x * 2}), M)
add("vmap_chunks", lambda x: vmap(g, chunk_size=3)(x), M)
add("vmap_random_different", lambda x: vmap(lambda a: a + torch.rand_like(a), randomness="different")(x), M)
add("vmap_random_same", lambda x: vmap(lambda a: a + torch.rand_like(a), randomness="same")(x), M)
add("vmap_dropout", lambda x: vmap(lambda a: F.dropout(a, 0.5), randomness="different")(x), M)
add("vmap_indices", lambda x: vmap(lambda a: a[a.argsort()][:3])(x), M)
add("vmap_where", lambda x: vmap(lambda a: torch.where(a > 0, a.log(), a.exp()))(x), M)
add("vmap_scatter", lambda x: vmap(lambda a: torch.zeros_like(a).scatter(0, a.argsort(), a))(x), M)
add("vmap_in_place", lambda x: vmap(lambda a: a.clone().mul_(2).add_(a))(x), M)
add("vmap_set_item", lambda x: vmap(lambda a: _first_is_zero(a))(x), M)
add("vmap_matmul", lambda x, y: vmap(torch.matmul)(x, y), (3, 4, 5), (3, 5, 2))
add("vmap_solve", lambda x, y: vmap(torch.linalg.solve)(x + 5 * torch.eye(3, dtype=x.dtype), y), (4, 3, 3), (4, 3))
add("vmap_conv", lambda x, w: vmap(lambda a, b: F.conv2d(a, b))(x, w), (2, 1, 3, 6, 6), (2, 4, 3, 3, 3))
add("vmap_layer_norm", lambda x: vmap(lambda a: F.layer_norm(a, (5,)))(x), (3, 4, 5))
add("vmap_softmax_cross_entropy", lambda x: vmap(lambda a: F.cross_entropy(a, a.softmax(0)))(x), M)
add("vmap_grad", lambda x: vmap(grad(f))(x), M)
add("vmap_grad_and_value", lambda x: vmap(grad_and_value(f))(x), M)
add("vmap_hessian", lambda x: vmap(hessian(f))(x), M)
add("vmap_jacrev", lambda x: vmap(jacrev(g))(x), M)
add("vmap_jvp", lambda x, v: vmap(lambda a, b: jvp(g, (a,), (b,))[1])(x, v), M, M)
add("grad_of_vmap", lambda x: grad(lambda a: vmap(f)(a).sum())(x), M)
add("jacrev_of_vmap", lambda x: jacrev(vmap(g))(x), (2, 3))
add("functionalize", lambda x: functionalize(lambda a: a.clone().add_(1).mul_(a))(x), V)
add("functionalize_views", lambda x: functionalize(lambda a: _first_is_zero(a.clone()))(x), V)
add("numbers_between", lambda x: grad(lambda a: f(a) * float(len(a.shape)))(x) + x.shape[0], V)
add("break_between", lambda x: (lambda y: (print(end=""), vmap(g)(y))[1])(grad(f)(x).expand(4, 5)), V)
add("closure_over_tensor", lambda x, y: grad(lambda a: (a * y).sum())(x), V, V)
add("grad_with_no_grad_inside", lambda x: grad(lambda a: (a * _detached(a)).sum())(x), V)
add("grad_loop", lambda x: _descent(x), V)
add("autograd_jacobian", lambda x: torch.autograd.functional.jacobian(g, x), V)
add("autograd_hessian", lambda x: torch.autograd.functional.hessian(f, x), V)
add("autograd_vjp", lambda x, v: torch.autograd.functional.vjp(g, x, v), V, V)
add("autograd_jvp", lambda x, v: torch.autograd.functional.jvp(g, x, v), V, V)
add("autograd_hvp", lambda x, v: torch.autograd.functional.hvp(f, x, v), V, V)
add("autograd_vhp", lambda x, v: torch.autograd.functional.vhp(f, x, v), V, V)
add("autograd_jacobian_forward_mode",
    lambda x: torch.autograd.functional.jacobian(g, x, strategy="forward-mode", vectorize=True), V)  # fmt: skip
add("forward_mode_duals", lambda x, v: _dual(x, v), V, V)


def _first_is_zero(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 0
    return y * x


def _detached(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.sin()


def _descent(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x - 0.1 * grad(f)(x)
    return x


def _dual(x: Tensor, v: Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        return tuple(torch.autograd.forward_ad.unpack_dual(g(dual)))


def _model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)).to(dtype)


def over_model(fn: Callable[[nn.Module, dict[str, Tensor], Tensor], Any]) -> None:
    """The program that calls `fn(model, parameters, batch)`."""
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        model = _model(dtype)
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        fast = compile(lambda parameters, x: fn(model, parameters, x))
        return lambda number: fast(parameters, torch.randn(4, 5, dtype=torch.float64).to(dtype))

    _COLLECTION.programs[fn.__name__] = Program(fn.__name__, make)


@over_model
def functional_call_of_model(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """With parameters of one's own."""
    return functional_call(model, {name: parameter * 2 for name, parameter in parameters.items()}, (x,))


def _loss(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(model, parameters, (x,)).square().mean()


@over_model
def gradients_of_model(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """Of a loss with respect to the parameters."""
    return grad(lambda p: _loss(model, p, x))(parameters)


@over_model
def gradients_per_sample(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """torch's tutorial."""
    of_one = grad(lambda p, row: _loss(model, p, row.unsqueeze(0)))
    return vmap(of_one, in_dims=(None, 0))(parameters, x)


@over_model
def jacobian_of_model(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """With respect to the parameters, a sample at a time."""
    return vmap(jacrev(lambda p, row: functional_call(model, p, (row,))), in_dims=(None, 0))(parameters, x)


@over_model
def tangent_kernel(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """torch's tutorial on neural tangent kernels."""
    def of_one(p: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, p, (row.unsqueeze(0),)).squeeze(0)

    first = vmap(jacrev(of_one), (None, 0))(parameters, x)
    second = vmap(jacrev(of_one), (None, 0))(parameters, x * 0.5)
    return sum(
        torch.einsum("Naf,Mbf->NMab", a.flatten(2), b.flatten(2))
        for a, b in zip(first.values(), second.values(), strict=True)
    )


@over_model
def step_of_descent(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Any:
    """Of a model-agnostic learner: gradients through a step of gradient descent."""
    def after_one_step(p: dict[str, Tensor]) -> Tensor:
        gradients = grad(lambda q: _loss(model, q, x))(p)
        return _loss(model, {name: p[name] - 0.1 * gradients[name] for name in p}, x * 2)

    return grad_and_value(after_one_step)(parameters)


@_COLLECTION.add()
def ensemble(compile: Compile, dtype: torch.dtype) -> Step:
    """vmap over stacked models."""
    models = [_model(dtype) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = models[0]

    def call(p: dict[str, Tensor], b: dict[str, Tensor], x: Tensor) -> Tensor:
        return vmap(lambda q, c, y: functional_call(base, (q, c), (y,)), in_dims=(0, 0, None))(p, b, x)

    fast = compile(call)

    def step(number: int) -> Any:
        out = fast(parameters, buffers, torch.randn(4, 5, dtype=torch.float64).to(dtype))
        return out, torch.autograd.grad(out.square().sum(), list(parameters.values()))

    return step


@_COLLECTION.add()
def autograd_through_transform(compile: Compile, dtype: torch.dtype) -> Step:
    """Ordinary autograd of what a transform gave."""
    fast = compile(lambda x: grad(f)(x).square())

    def step(number: int) -> Any:
        x = torch.randn(5, dtype=torch.float64).to(dtype).requires_grad_()
        out = fast(x)
        return out, torch.autograd.grad(out.sum(), x)

    return step
