"""Helpers shared by lowerings: construction of elementwise values, views and reductions, and number conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import Unsupported
from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout
from ..ir.handler import ops
from ..ir.nodes import Allocator, BufferView, InnerFn, Pointwise, TensorValue, compute_dtype
from ..ir.ops import REDUCTIONS
from ..ir.size import Size
from ..ir.symbolic import Index


def is_value(x: Any) -> bool:
    """Whether `x` is a tensor of the graph, as opposed to a number or None."""
    return isinstance(x, Pointwise | BufferView)


def used_results(node: fx.Node) -> set[Any]:
    """The positions of a node's result tuple that are used."""
    return {user.args[1] for user in node.users if user.users}


def wrapped(x: Any, dtype: torch.dtype) -> Any:
    """An int wrapped around as an integer tensor would store it: -3 as uint8 is 253. A symbolic Size is assumed to be
    within the limits of the dtype; if its hint is not, Unsupported is raised."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return x
    limits = torch.iinfo(dtype)
    if isinstance(x, Size) and limits.bits < 64 and (x > limits.max or x < limits.min):
        raise Unsupported(
            f"{x}, which varies and is not within the limits of {dtype}, in an operation with a tensor of that dtype"
        )
    if type(x) is not int:
        return x
    return (x - limits.min) % (1 << limits.bits) + limits.min


def overflows(x: Any, dtype: torch.dtype) -> bool:
    """Whether ATen's checked conversion of a number to `dtype` fails: for 300 as uint8 (but not -3), 1e5 as float16."""
    if dtype.is_floating_point and type(x) in (int, float):
        return math.isfinite(x) and abs(x) > torch.finfo(dtype).max
    varies = isinstance(x, Size)
    if not varies and type(x) is not int or dtype.is_complex or dtype.is_floating_point or dtype == torch.bool:
        return False
    limits = torch.iinfo(dtype)
    if varies and limits.bits == 64:
        return False
    return bool(x > limits.max or x < (limits.min or -limits.max))


def operand(x: Any, dtype: torch.dtype, rank: int) -> InnerFn:
    """A function that gives the element of `x` as `dtype`; `x` is a number or a tensor broadcast to `rank` dims."""
    if not is_value(x):
        number = wrapped(x, dtype)
        return lambda index: ops.constant(number, dtype)
    sizes = tuple(x.size)

    def load(index: tuple[Index, ...]) -> Any:
        own = index[rank - len(sizes) :]
        return ops.to_dtype(x.load(tuple(0 if n == 1 else i for n, i in zip(sizes, own))), dtype)

    return load


def stored(x: Any, near_zero: bool = True) -> Any:
    """`x` as an operand of a discontinuous operator (comparison, rounding to an integer, argmax): elements of half
    precision are first rounded to their dtype, so that the result agrees with what other readers see in memory.
    `near_zero=False` is for operators that are discontinuous only at zero: rounding to bfloat16 does not turn other
    numbers into zero, so only float16 is rounded."""
    halves = (torch.float16, torch.bfloat16) if near_zero else (torch.float16,)
    if not is_value(x) or x.dtype not in halves:
        return x
    stride = x.stride if isinstance(x, Pointwise) else tuple(x.layout.stride)
    return Pointwise(
        x.device, x.dtype, tuple(x.size), lambda i: ops.as_stored(x.load(i), x.dtype), x.reads, x.work, stride
    )


def pointwise(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    compute: torch.dtype,
    like: torch.Tensor,
    work: int = 1,
    compute_of: Sequence[torch.dtype] | None = None,
) -> Pointwise:
    """`fn` of the elements of `inputs`, with the size and dtype of `like`. Inputs are converted to `compute`, or to the
    dtypes in `compute_of`."""
    rank = like.dim()
    dtypes = compute_of or [compute] * len(inputs)
    loads = [operand(x, d, rank) for x, d in zip(inputs, dtypes)]
    result = compute_dtype(like.dtype)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return ops.to_dtype(fn(*[load(index) for load in loads]), result)

    values = [x for x in inputs if is_value(x)]
    return Pointwise(
        like.device,
        like.dtype,
        tuple(like.shape),
        inner_fn,
        reads=sum(x.reads for x in values),
        work=work + sum(x.work for x in values),
        stride=tuple(like.stride()),
    )


def derived(x: TensorValue, fn: Callable[[Any], Any], dtype: torch.dtype, work: int = 1) -> Pointwise:
    """`fn` of each element of `x`. It receives x's compute dtype and returns the compute dtype of `dtype`."""
    return Pointwise(x.device, dtype, tuple(x.size), lambda i: fn(x.load(i)), x.reads, x.work + work)


def view_of(
    x: TensorValue,
    size: Sequence[int],
    reindex: Callable[[tuple[Index, ...]], Sequence[Index]],
    relayout: Callable[[Layout], Layout | None],
) -> TensorValue:
    """A view of `x`: a BufferView if `x` is in memory and `relayout` gives a layout, otherwise a Pointwise that maps
    each index with `reindex`."""
    if isinstance(x, BufferView):
        layout = relayout(x.layout)
        if layout is not None:
            return BufferView(x.buffer, layout)
    return Pointwise(
        x.device,
        x.dtype,
        tuple(size),
        lambda index: x.load(reindex(index)),
        x.reads,
        x.work,
        view=(x, relayout) if isinstance(x, Pointwise) else None,
    )


def shared(graph: Allocator, x: TensorValue) -> TensorValue:
    """`x`, realized if computing it again for each of several readers would cost more than storing it."""
    if isinstance(x, Pointwise) and (x.reads > 3 or x.work > 12):
        return x.realize(graph)
    return x


def dims_of(dim: Any, rank: int) -> tuple[int, ...]:
    """The dimensions to reduce, nonnegative and sorted. `dim` None or an empty list means all dimensions."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return tuple(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(d % rank for d in dims)) if rank else ()


# The result of a reduction over no elements. A kind without an entry gives 0.
OF_NOTHING: dict[str, float | bool] = {"prod": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True}


@dataclass(frozen=True)
class Reduce:
    """A reduction over the dimensions `dims` of a tensor of size `size`."""

    size: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements that are reduced to one result."""
        return math.prod(self.size[d] for d in self.dims)

    def __call__(
        self,
        graph: Allocator,
        like: TensorValue,
        kind: str,
        fn: InnerFn,
        dtype: torch.dtype,
        epilogue: Callable[[Any], Any] | None = None,
    ) -> BufferView:
        """A new buffer of `dtype` that holds epilogue(reduction of fn); reduced dimensions are kept with size 1.

        `fn(full index)` gives values in the compute dtype of `dtype`. For arg kinds it may give any dtype, and the
        result is int64.
        """
        size = tuple(1 if d in self.dims else n for d, n in enumerate(self.size))
        dims = [d for d in self.dims if self.size[d] != 1]
        outer = [d for d in range(len(size)) if d not in self.dims]
        layout = Layout.contiguous(like.device, dtype, size)
        empty = any(type(self.size[d]) is int and self.size[d] == 0 for d in dims)
        if empty:
            dims = []

        def body_of(name: str) -> LoopBody:
            def run(index: tuple[Index, ...], rindex: tuple[Index, ...]) -> None:
                full: list[Index] = [0] * len(size)
                kept = list(full)
                for d, i in zip(outer, index):
                    full[d] = kept[d] = i
                for d, i in zip(dims, rindex):
                    full[d] = i
                if empty:  # `fn` would load from a tensor without elements
                    value = ops.constant(OF_NOTHING.get(kind, 0), compute_dtype(dtype))
                else:
                    value = fn(tuple(full))
                if dims:
                    value = ops.reduction(compute_dtype(dtype), kind, value)
                elif REDUCTIONS[kind].position_of is not None:
                    value = ops.constant(0, dtype)
                if epilogue is not None:
                    value = epilogue(value)
                ops.store(name, layout.index(kept), ops.to_dtype(value, dtype))

            return trace([self.size[d] for d in outer], [self.size[d] for d in dims], run)

        return BufferView(graph.add_computed(layout, body_of), layout)


def drop(x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """`x` without these dimensions of size 1."""
    return with_dims(x, [d for d in range(len(x.size)) if d not in dims])


def with_dims(x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """`x` with only these dimensions, in this order. The other dimensions must have size 1."""

    def reindex(index: tuple[Index, ...]) -> list[Index]:
        full: list[Index] = [0] * len(x.size)
        for d, i in zip(dims, index):
            full[d] = i
        return full

    return view_of(
        x,
        [x.size[d] for d in dims],
        reindex,
        lambda at: at.with_view([at.size[d] for d in dims], [at.stride[d] for d in dims]),
    )
