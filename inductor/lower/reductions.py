"""Lowerings of reductions (sum, max, argmax, var) and of operators built from them: layer and group norm, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype
from ..ir.symbolic import Index
from .common import Reduce, derived, dims_of, drop, is_value, operand, pointwise, shared, stored
from .registry import LoweringGraph, Unlowered, lowering


def _as(x: TensorValue, dtype: torch.dtype) -> Callable[[tuple[Index, ...]], Any]:
    return lambda index: ops.to_dtype(x.load(index), dtype)


def _finish(x: TensorValue, space: Reduce, keepdim: bool) -> TensorValue:
    return x if keepdim else drop(x, space.dims)


def _simple(
    graph: LoweringGraph,
    x: TensorValue,
    kind: str,
    dim: Any,
    keepdim: bool,
    dtype: torch.dtype,
    epilogue: Callable[[Any], Any] | None = None,
) -> TensorValue:
    """One reduction over `dim`, computed in the compute dtype of `dtype`."""
    if dtype.is_complex or x.dtype.is_complex:
        raise Unlowered
    if dtype == torch.bool:  # sum and product of booleans
        kind = {"sum": "any", "prod": "all"}.get(kind, kind)
    space = Reduce(tuple(x.size), dims_of(dim, len(x.size)))
    out = space(graph, x, kind, _as(x, compute_dtype(dtype)), dtype, epilogue)
    return _finish(out, space, keepdim)


@lowering("sum")
def sum_(
    graph: LoweringGraph, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorValue:
    """The sum."""
    return _simple(graph, x, "sum", dim, keepdim, graph.val.dtype)


@lowering("mean")
def mean(
    graph: LoweringGraph, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorValue:
    """The mean."""
    count = Reduce(tuple(x.size), dims_of(dim, len(x.size))).count
    out = compute_dtype(graph.val.dtype)
    return _simple(graph, x, "sum", dim, keepdim, graph.val.dtype, lambda s: ops.div(s, ops.constant(count, out)))


@lowering("prod")
def prod(
    graph: LoweringGraph, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TensorValue:
    """The product."""
    return _simple(graph, x, "prod", dim, keepdim, graph.val.dtype)


@lowering("any")
def any_(graph: LoweringGraph, x: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
    """Whether any element is nonzero."""
    return _truth(graph, x, "any", dim, keepdim)


@lowering("all")
def all_(graph: LoweringGraph, x: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
    """Whether every element is nonzero."""
    return _truth(graph, x, "all", dim, keepdim)


def _truth(graph: LoweringGraph, x: TensorValue, kind: str, dim: Any, keepdim: bool) -> TensorValue:
    if x.dtype.is_complex or graph.val.dtype != torch.bool:
        raise Unlowered
    space = Reduce(tuple(x.size), dims_of(dim, len(x.size)))
    out = space(graph, x, kind, _as(x, torch.bool), torch.bool)
    return _finish(out, space, keepdim)


def _refuse_empty(x: TensorValue) -> None:
    """Unlowered for a tensor without elements, for which ATen raises the error."""
    if any(type(n) is int and n == 0 for n in x.size):
        raise Unlowered


def _extreme(graph: LoweringGraph, x: TensorValue, kind: str, dim: Any, keepdim: bool) -> TensorValue:
    _refuse_empty(x)
    if x.dtype == torch.bool:
        kind = "any" if kind == "max" else "all"
    return _simple(graph, x, kind, dim, keepdim, x.dtype)


@lowering("amax")
def amax(graph: LoweringGraph, x: TensorValue, dim: Any = (), keepdim: bool = False) -> TensorValue:
    """The greatest element."""
    return _extreme(graph, x, "max", dim, keepdim)


@lowering("amin")
def amin(graph: LoweringGraph, x: TensorValue, dim: Any = (), keepdim: bool = False) -> TensorValue:
    """The least element."""
    return _extreme(graph, x, "min", dim, keepdim)


def _position(graph: LoweringGraph, x: TensorValue, kind: str, dim: int | None, keepdim: bool) -> TensorValue:
    if x.dtype.is_complex or x.dtype == torch.bool:
        raise Unlowered
    _refuse_empty(x)
    space = Reduce(tuple(x.size), dims_of(dim, len(x.size)))
    return _finish(space(graph, x, kind, stored(x).load, torch.int64), space, keepdim)


@lowering("argmax")
def argmax(graph: LoweringGraph, x: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    """The position of the greatest element."""
    return _position(graph, x, "argmax", dim, keepdim)


@lowering("argmin")
def argmin(graph: LoweringGraph, x: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    """The position of the least element."""
    return _position(graph, x, "argmin", dim, keepdim)


def _with_position(graph: LoweringGraph, x: TensorValue, kind: str, args: tuple[Any, ...]) -> Any:
    if not args:
        return _extreme(graph, x, kind, None, False)
    dim, keepdim = args[0], len(args) > 1 and bool(args[1])
    if is_value(dim):
        return pointwise(
            ops.maximum if kind == "max" else ops.minimum, (x, dim), compute_dtype(graph.val.dtype), graph.val
        )
    position = _position(graph, x, f"arg{kind}", dim, keepdim)
    return _extreme(graph, x, kind, dim, keepdim), position


@lowering("max")
def max_(graph: LoweringGraph, x: TensorValue, *args: Any) -> Any:
    """The greatest element, with its position if a dimension is given; or the elementwise maximum of two tensors."""
    return _with_position(graph, x, "max", args)


@lowering("min")
def min_(graph: LoweringGraph, x: TensorValue, *args: Any) -> Any:
    """The least element, with its position if a dimension is given; or the elementwise minimum of two tensors."""
    return _with_position(graph, x, "min", args)


# ---- moments


def _moments(
    graph: LoweringGraph,
    x: TensorValue,
    dims: tuple[int, ...],
    finish: Callable[[Any], Any],
    dtype: torch.dtype | None = None,
) -> tuple[BufferView, BufferView, torch.dtype]:
    """(mean, finish(sum of squared deviations), dtype). Both are computed in `dtype`, by default the compute dtype of
    `x`; reduced dimensions are kept with size 1."""
    dtype = dtype or compute_dtype(x.dtype)
    space = Reduce(tuple(x.size), dims)
    load = _as(x, dtype)
    center = space(graph, x, "sum", load, dtype, lambda s: ops.div(s, ops.constant(space.count, dtype)))
    near = operand(center, dtype, len(x.size))

    def squared(index: tuple[Index, ...]) -> Any:
        d = ops.sub(load(index), near(index))
        return ops.mul(d, d)

    return center, space(graph, x, "sum", squared, dtype, finish), dtype


def _variance(
    graph: LoweringGraph, x: TensorValue, dim: Any, correction: Any, root: bool
) -> tuple[BufferView, BufferView, Reduce]:
    if not x.dtype.is_floating_point:
        raise Unlowered
    x = shared(graph, x)
    dims = dims_of(dim, len(x.size))
    space = Reduce(tuple(x.size), dims)
    correction = 1 if correction is None else correction
    divisor: Any = None  # computed in the kernel if the count is symbolic and the correction is a fraction
    if isinstance(space.count, int) or correction == int(correction):
        divisor = space.count - (int(correction) if correction == int(correction) else correction)
        divisor = divisor if divisor > 0 else 0
    # Eager accumulates in float64 on the CPU: squares of float32 numbers above 1e19 exceed float32's range.
    dtype = torch.float64 if x.device.type == "cpu" else compute_dtype(x.dtype)

    def finish(s: Any) -> Any:
        if divisor == 0:
            # no degrees of freedom: nan or inf, as in torch
            return ops.div(s, ops.constant(0.0, dtype))
        if divisor is None:
            rest = ops.sub(ops.constant(space.count, dtype), ops.constant(correction, dtype))
            v = ops.div(s, ops.maximum(rest, ops.constant(0.0, dtype)))
        else:
            v = ops.div(s, ops.constant(divisor, dtype))
        return ops.sqrt(v) if root else v

    # The square root has an infinite derivative at zero, so the deviation of equal numbers must be exactly zero. In a
    # wider dtype it is; otherwise the first element is subtracted from all.
    near = _from_first(x, dims) if root and dtype == compute_dtype(x.dtype) else x
    center, spread, _ = _moments(graph, near, dims, finish, dtype)
    return center, spread, space


def _from_first(x: TensorValue, dims: tuple[int, ...]) -> TensorValue:
    """x minus its first element along the reduced dimensions: exactly zero where all elements are equal."""
    if any(x.size[d] == 0 for d in dims):
        return x

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return ops.sub(x.load(index), x.load([0 if d in dims else i for d, i in enumerate(index)]))

    return Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, x.reads + 1, x.work + 1)


def _cast(x: TensorValue, dtype: torch.dtype) -> TensorValue:
    return x if x.dtype == dtype else derived(x, lambda v: ops.to_dtype(v, compute_dtype(dtype)), dtype, 0)


def _spread_args(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """(dim, correction, keepdim) from the arguments of any overload: (dim, unbiased, keepdim), (unbiased), or
    (dim, *, correction)."""
    if "correction" in kwargs or not args or not isinstance(args[0], bool):
        dim = args[0] if args else kwargs.get("dim")
        correction = kwargs.get("correction", 1)
        if len(args) > 1:
            correction = 1 if args[1] else 0
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        return dim, kwargs.get("unbiased", correction), keepdim
    return None, int(args[0]), False


@lowering("var")
def var(graph: LoweringGraph, x: TensorValue, *args: Any, **kwargs: Any) -> TensorValue:
    """The variance."""
    dim, correction, keepdim = _spread_args(args, kwargs)
    _, spread, space = _variance(graph, x, dim, correction, root=False)
    return _cast(_finish(spread, space, keepdim), graph.val.dtype)


@lowering("std")
def std(graph: LoweringGraph, x: TensorValue, *args: Any, **kwargs: Any) -> TensorValue:
    """The standard deviation."""
    dim, correction, keepdim = _spread_args(args, kwargs)
    _, spread, space = _variance(graph, x, dim, correction, root=True)
    return _cast(_finish(spread, space, keepdim), graph.val.dtype)


@lowering("var_mean")
def var_mean(graph: LoweringGraph, x: TensorValue, *args: Any, **kwargs: Any) -> tuple[TensorValue, TensorValue]:
    """The variance and the mean."""
    dim, correction, keepdim = _spread_args(args, kwargs)
    center, spread, space = _variance(graph, x, dim, correction, root=False)
    dtype = graph.val[0].dtype
    return _cast(_finish(spread, space, keepdim), dtype), _cast(_finish(center, space, keepdim), dtype)


def _refuse_mixed(x: TensorValue, *affine: TensorValue | None) -> None:
    """Unlowered for dtypes that ATen's CPU kernels reject: weight and bias must have the dtype of `x`, or float32 if
    `x` has half precision."""
    dtypes = {a.dtype for a in affine if a is not None}
    allowed = ({x.dtype}, {torch.float32}) if x.dtype in (torch.bfloat16, torch.float16) else ({x.dtype},)
    if x.device.type == "cpu" and dtypes and dtypes not in allowed:
        raise Unlowered


def _inverse_deviation(count: Any, eps: float, dtype: torch.dtype) -> Callable[[Any], Any]:
    """From the sum of `count` squared deviations to 1 / sqrt(variance + eps)."""
    return lambda s: ops.rsqrt(ops.add(ops.div(s, ops.constant(count, dtype)), ops.constant(eps, dtype)))


@lowering("native_layer_norm")
def native_layer_norm(
    graph: LoweringGraph, x: TensorValue, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """`x` normalized over its last len(shape) dimensions, the mean, and 1 / sqrt(variance + eps)."""
    _refuse_mixed(x, weight, bias)
    # The moments must be those of the stored values, which the backward reads: where these are nearly equal, rounding
    # would change the variance by a large factor.
    x = shared(graph, stored(x))
    rank = len(x.size)
    dims = tuple(range(rank - len(shape), rank))
    dtype = compute_dtype(x.dtype)
    center, scale, _ = _moments(graph, x, dims, _inverse_deviation(math.prod(shape), eps, dtype))

    def fn(v: Any, m: Any, r: Any, *affine: Any) -> Any:
        v = ops.mul(ops.sub(v, m), r)
        rest = list(affine)
        if weight is not None:
            v = ops.mul(v, rest.pop(0))
        return ops.add(v, rest.pop(0)) if bias is not None else v

    affine = [a for a in (weight, bias) if a is not None]
    out = pointwise(fn, (x, center, scale, *affine), dtype, graph.val[0], 4)
    return out, _cast(center, graph.val[1].dtype), _cast(scale, graph.val[2].dtype)


@lowering("native_group_norm")
def native_group_norm(
    graph: LoweringGraph, x: TensorValue, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """`x` normalized over groups of channels, the means, and 1 / sqrt(variance + eps)."""
    if 0 in x.size:
        raise Unlowered
    _refuse_mixed(x, weight, bias)
    x = shared(graph, stored(x))
    size, per = tuple(x.size), c // group
    dtype = compute_dtype(x.dtype)
    # dimension 1 as (group, channel in group)
    grouped = Pointwise(
        x.device,
        x.dtype,
        (size[0], group, per, *size[2:]),
        lambda i: x.load([i[0], i[1] * per + i[2], *i[3:]]),
        x.reads,
        x.work,
    )
    finish = _inverse_deviation(per * hw, eps, dtype)
    center, scale, _ = _moments(graph, grouped, tuple(range(2, len(size) + 1)), finish)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        at = [index[0], index[1] // per, *[0] * (len(size) - 1)]
        v = ops.mul(ops.sub(x.load(index), center.load(at)), scale.load(at))
        if weight is not None:
            v = ops.mul(v, ops.to_dtype(weight.load([index[1]]), dtype))
        return v if bias is None else ops.add(v, ops.to_dtype(bias.load([index[1]]), dtype))

    val = graph.val[0]
    out = Pointwise(val.device, val.dtype, size, inner_fn, x.reads + 4, x.work + 4, tuple(val.stride()))
    inner = tuple(range(2, len(size) + 1))
    return out, _cast(drop(center, inner), graph.val[1].dtype), _cast(drop(scale, inner), graph.val[2].dtype)


# ---- softmax


def _softmax_parts(
    graph: LoweringGraph, x: TensorValue, dim: int, finish: Callable[[Any], Any] | None = None
) -> tuple[TensorValue, BufferView, BufferView, torch.dtype]:
    """(x, maximum, finish(sum of exp(x - maximum)), compute dtype). The maximum and the sum have that dtype and keep
    `dim` with size 1."""
    if not graph.val.dtype.is_floating_point:  # only possible without elements: ATen computes softmax of floats only
        raise Unlowered
    x = shared(graph, x)
    dtype = compute_dtype(graph.val.dtype)
    space = Reduce(tuple(x.size), dims_of(dim, len(x.size)))
    top = space(graph, x, "max", _as(x, dtype), dtype)
    above = operand(top, dtype, len(x.size))

    def weight(index: tuple[Index, ...]) -> Any:
        return ops.exp(ops.sub(ops.to_dtype(x.load(index), dtype), above(index)))

    return x, top, space(graph, x, "sum", weight, dtype, finish), dtype


@lowering("_softmax")
def softmax(graph: LoweringGraph, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """exp(x) over its sum along one dimension."""
    x, top, total, dtype = _softmax_parts(graph, x, dim)
    return pointwise(lambda v, m, s: ops.div(ops.exp(ops.sub(v, m)), s), (x, top, total), dtype, graph.val, 8)


@lowering("_log_softmax")
def log_softmax(graph: LoweringGraph, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """The logarithm of softmax."""
    x, top, total, dtype = _softmax_parts(graph, x, dim, lambda s: ops.log(s))
    return pointwise(lambda v, m, s: ops.sub(ops.sub(v, m), s), (x, top, total), dtype, graph.val, 2)
