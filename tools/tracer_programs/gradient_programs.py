"""Programs about gradients, hooks, random numbers and kinds of tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .programs import program, x


@program
def gradients_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        with torch.enable_grad():
            b = a.detach().requires_grad_()
            (g,) = torch.autograd.grad((b.sin() * b).sum(), b)
        return g * 2

    return f, [(x(),)]


@program
def backward_in_the_function() -> Any:
    def f(w: Any, a: Any) -> Any:
        loss = (w * a).sin().sum()
        loss.backward()
        return loss.detach() * 2

    w = x(grad=True)
    return f, [(w, x()), (w, x())], lambda: w.grad


@program
def grad_fn_hooks() -> Any:
    seen: list[Any] = []

    def f(a: Any) -> Any:
        b = a.sin()
        b.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
        return b * 2

    return f, [(x(grad=True),)], lambda: list(seen)


@program
def tensor_hooks() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        b.register_hook(lambda g: g * 3)
        return b * 2

    return f, [(x(grad=True),)]


@program
def tensor_hook_that_appends() -> Any:
    seen: list[Any] = []

    def f(a: Any) -> Any:
        b = a.sin()
        b.register_hook(lambda g: seen.append(g.shape))
        return b * 2

    return f, [(x(grad=True),)], lambda: list(seen)


@program
def post_accumulate_grad_hook() -> Any:
    def f(w: Any, a: Any) -> Any:
        w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
        return (w * a).sum()

    return f, [(x(grad=True), x())]


@program
def retain_grad() -> Any:
    def f(a: Any) -> Any:
        b = a.sin()
        b.retain_grad()
        return b * 2

    return f, [(x(grad=True),)]


@program
def requires_grad_changed() -> Any:
    def f(a: Any) -> Any:
        b = a.clone().detach()
        b.requires_grad_(True)
        c = b * 2
        return c.requires_grad, c.detach(), a.requires_grad

    return f, [(x(grad=True),)]


@program
def no_grad_decorator() -> Any:
    @torch.no_grad()
    def g(a: Any) -> Any:
        return a * 2

    def f(a: Any) -> Any:
        return g(a).requires_grad, g(a) + a

    return f, [(x(grad=True),)]


@program
def random_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        return a + torch.rand(4) + torch.randn_like(a) + F.dropout(a, 0.5, training=True)

    return f, [(x(),)]


@program
def generator_of_torch() -> Any:
    def f(a: Any) -> Any:
        g = torch.Generator().manual_seed(5)
        return a + torch.rand(4, generator=g)

    return f, [(x(),)]


@program
def sparse_tensors() -> Any:
    def f(a: Any) -> Any:
        return torch.sparse.mm(a.to_sparse(), a) + 1

    return f, [(x(3, 3),)]


@program
def nested_tensor_made() -> Any:
    def f(a: Any, b: Any) -> Any:
        nested = torch.nested.nested_tensor([a, b], layout=torch.jagged)
        return (nested * 2).sin().values()

    return f, [(x(2, 3), x(4, 3))]


@program
def nested_tensor_given() -> Any:
    def f(nested: Any) -> Any:
        return nested * 2 + 1

    nested = torch.nested.nested_tensor([x(2, 3), x(4, 3)], layout=torch.jagged)
    return (lambda n: f(n).values()), [(nested,)]


@program
def quantile_and_others() -> Any:
    def f(a: Any) -> Any:
        hist = torch.histc(a, 4, -2, 2)
        return torch.quantile(a, 0.5), torch.bincount(torch.tensor([1, 2, 1]), minlength=4), hist, torch.cdist(a, a)

    return f, [(x(3, 4),)]


@program
def einsum_and_tensordot() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.einsum("ij,kj->ik", a, b), torch.tensordot(a, b.t(), 1), torch.meshgrid(a[0], b[0], indexing="ij")

    return f, [(x(2, 3), x(4, 3))]


@program
def broadcast_and_block() -> Any:
    def f(a: Any, b: Any) -> Any:
        p, q = torch.broadcast_tensors(a, b)
        return (
            p + q,
            torch.block_diag(a, b),
            torch.cartesian_prod(a, b),
            torch.atleast_2d(a),
            torch.broadcast_shapes((2, 1), (1, 3)),
        )

    return f, [(x(3), x(3))]


@program
def foreach_operators() -> Any:
    def f(a: Any, b: Any) -> Any:
        torch._foreach_add_([a, b], 1.0)
        return torch._foreach_mul([a, b], [2.0, 3.0])

    a, b = x(), x()
    return f, [(a, b)], lambda: (a, b)


@program
def clip_grad_norm() -> Any:
    p = torch.nn.Parameter(x())
    p.grad = x() * 10

    def f(a: Any) -> Any:
        return torch.nn.utils.clip_grad_norm_([p], 1.0) + a.sum()

    return f, [(x(),)], lambda: p.grad


@program
def parameters_to_vector() -> Any:
    model = torch.nn.Linear(3, 2)

    def f(a: Any) -> Any:
        return torch.nn.utils.parameters_to_vector(model.parameters()) * 2 + a

    return f, [(x(1),)]


@program
def set_item_of_numpy_scalar() -> Any:
    def f(a: Any) -> Any:
        b = torch.zeros(3)
        b[1] = a.max()
        b[a.argmax() % 3] = 4.0
        return b

    return f, [(x(),)]


@program
def complex_tensors() -> Any:
    def f(a: Any) -> Any:
        z = torch.complex(a, a + 1)
        return torch.view_as_real(z * 2j), z.abs(), torch.fft.ifft(torch.fft.fft(z)).real, z.conj().imag

    return f, [(x(),)]
