"""Programs about autograd functions, custom operators and subclasses of Tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .programs import program, x


@program
def autograd_function() -> Any:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, limit: float) -> Any:
            ctx.save_for_backward(a)
            ctx.limit = limit
            return a.clamp(-limit, limit)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (a,) = ctx.saved_tensors
            return g * (a.abs() < ctx.limit) * 3, None

    def f(a: Any) -> Any:
        return Clip.apply(a * 2, 1.0).sin()

    return f, [(x(grad=True),)]


@program
def autograd_function_with_closure() -> Any:
    w = x()

    def f(a: Any) -> Any:
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, v: Any) -> Any:
                return v * w

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * w * 2

        return Scale.apply(a)

    return f, [(x(grad=True),)]


@program
def autograd_function_identity() -> Any:
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a.view_as(a)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    return (lambda a: Reverse.apply(a).sin() + Same.apply(a)), [(x(grad=True),)]


@program
def autograd_function_setup_context() -> Any:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(a: Any) -> Any:
            return a * a, a + 1

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    return (lambda a: Square.apply(a)[0] + 1), [(x(grad=True),)]


@program
def custom_operator() -> Any:
    @torch.library.custom_op("tracer_programs::twice", mutates_args=())
    def twice(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    twice.register_fake(lambda a: torch.empty_like(a))

    def f(a: Any) -> Any:
        return twice(a) + torch.ops.tracer_programs.twice(a)

    return f, [(x(),)]


class Tagged(torch.Tensor):
    """A subclass whose results have the same class."""


class Logged(torch.Tensor):
    """A subclass with a function of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


@program
def subclass_made_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        t = a.as_subclass(Tagged)
        return type(t * 2).__name__, (t + 1).as_subclass(torch.Tensor)

    return f, [(x(),)]


@program
def subclass_called_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        t = Tagged(a)
        return t * 2, isinstance(t, Tagged)

    return f, [(x(),)]


@program
def subclass_made_by_make_subclass() -> Any:
    def f(a: Any) -> Any:
        t = torch.Tensor._make_subclass(Tagged, a)
        return t + 1

    return f, [(x(),)]


@program
def subclass_with_function_made() -> Any:
    def f(a: Any) -> Any:
        t = Logged(a) + 1
        return t.sin()

    return f, [(x(),)]


@program
def subclass_with_attributes() -> Any:
    class Named(torch.Tensor):
        label: Any

        @staticmethod
        def __new__(cls, data: Any, label: str) -> Any:
            out = torch.Tensor._make_subclass(cls, data)
            out.label = label
            return out

    def f(a: Any) -> Any:
        t = Named(a, "left")
        return t * 2, t.label

    return f, [(x(),)]


@program
def parameter_made_in_the_graph() -> Any:
    def f(a: Any) -> Any:
        p = nn.Parameter(a.clone())
        return p * 2, isinstance(p, nn.Parameter), p.requires_grad

    return f, [(x(),)]
