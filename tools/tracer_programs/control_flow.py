"""Programs about control flow operators, vmap and scripted functions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .programs import program, x


@program
def cond_plain() -> Any:
    def f(a: Any) -> Any:
        return torch.cond(a.sum() > 0, lambda v: v + 1, lambda v: v - 1, (a,))

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program
def cond_nested_with_closures() -> Any:
    w = x(3)

    def f(a: Any, b: Any) -> Any:
        scale = a.sum()

        def inner_true(v: Any) -> Any:
            return v * scale + w

        def inner_false(v: Any) -> Any:
            return v - b

        def outer_true(v: Any) -> Any:
            return torch.cond(b.sum() > 0, inner_true, inner_false, (v.sin(),))

        def outer_false(v: Any) -> Any:
            return v * scale

        return torch.cond(a.sum() > 0, outer_true, outer_false, (a,))

    one = torch.ones(3)
    return f, [(one, one), (one, -one), (-one, one)]


@program
def cond_on_a_shape() -> Any:
    def f(a: Any) -> Any:
        return torch.cond(a.shape[0] > 3, lambda: a + 1, lambda: a - 1, ())

    return f, [(x(4),), (x(2),)]


@program
def cond_with_modules() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, a: Any) -> Any:
            return torch.cond(a.mean() > 0, self.left, self.right, (a,))

    return Model(), [(torch.ones(2, 4),), (-torch.ones(2, 4),)]


@program
def while_loop() -> Any:
    def f(n: Any, a: Any) -> Any:
        return torch.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (n, a))

    return f, [(torch.tensor(0), x())]


@program
def vmap_plain() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.vmap(torch.dot)(a, b), torch.vmap(lambda r: r.sum() * 2, in_dims=1)(a)

    return f, [(x(3, 4), x(3, 4))]


@program
def vmap_with_several_out_dims() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: (r + 1, r * 2), out_dims=(0, 1))(a)

    return f, [(x(3, 4),)]


@program
def vmap_with_one_out_dim_for_a_tuple() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: (r + 1, r.sum()), out_dims=0)(a), torch.vmap(lambda r: r.outer(r), out_dims=2)(a)

    return f, [(x(3, 4),)]


@program
def vmap_with_none_out_dims() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.vmap(lambda r: (r + 1, b * 2), out_dims=(0, None))(a)

    return f, [(x(3, 4), x(4))]


@program
def vmap_with_in_dims_in_a_dict() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.vmap(lambda d, s: d["a"] * d["b"] + s, in_dims=({"a": 0, "b": None}, None))({"a": a, "b": b}, 2.0)

    return f, [(x(3, 4), x(4))]


@program
def vmap_chunked_and_random() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(torch.sin, chunk_size=2)(a) + torch.vmap(lambda r: r, randomness="same")(a)

    return f, [(x(4, 3),)]


@program
def vmap_over_dropout() -> Any:
    def f(a: Any) -> Any:
        return torch.vmap(lambda r: F.dropout(r, 0.5), randomness="different")(a)

    return f, [(x(4, 3),)]


@program
def script_function() -> Any:
    @torch.jit.script
    def g(a: torch.Tensor) -> torch.Tensor:
        return a.sin() + 1

    def f(a: Any) -> Any:
        return g(a) * 2

    return f, [(x(),)]


@program
def script_module() -> Any:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def f(a: Any) -> Any:
        return scripted(a) * 2

    return f, [(x(2, 4),)]


@program
def traced_by_jit() -> Any:
    traced = torch.jit.trace(lambda a: a.sin() + 1, (x(),))

    def f(a: Any) -> Any:
        return traced(a) * 2

    return f, [(x(),)]


@program
def jit_helpers() -> Any:
    def f(a: Any) -> Any:
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            return a
        items = torch.jit.annotate(list[int], [1, 2])
        return a + sum(items)

    return f, [(x(),)]


@program
def graph_module() -> Any:
    gm = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def f(a: Any) -> Any:
        return gm(a) + 1

    return f, [(x(2, 4),)]
