"""Corrects strides, dtypes and sizes of fake results where torch's fake operators disagree with its kernels.

`tools/fake_layouts.py` finds the operators whose strides differ. A rule first calls torch's own fake operator and
changes only the strides, or only the dtype, of its result; the rest, and the errors, stay torch's.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _meta_registrations
from torch._decomp import decomposition_table, meta_table
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DynamicOutputShapeException, torch_decomp_decompositions

from .argument_dtypes import result_dtypes

aten = torch.ops.aten

# Operators on two tensors for which torch's fake tensors use a decomposition whose results have another order of
# dimensions than one elementwise pass over the broadcast operands gives.
_ELEMENTWISE = (
    aten.copysign.Tensor, aten.floor_divide.default, aten.div.Tensor_mode, aten.xlogy.Tensor,
    aten.special_xlog1py.default, aten.logaddexp.default, aten.logaddexp2.default, aten.logical_and.default,
    aten.logical_or.default, aten.logical_xor.default, aten.heaviside.default,
)  # fmt: skip
_CONTIGUOUS = (aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.pow.Scalar)
_BATCH_NORMS = (
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
)  # fmt: skip
_NORMS = (aten.native_layer_norm.default, aten.native_group_norm.default)  # those that save a mean and a deviation
_CHANNELS = (  # contiguous or channels last on the CPU
    aten.channel_shuffle.default,
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
)  # fmt: skip

# Padding by reflection and replication: torch's fake operators and decompositions differ from the kernels, and between
# releases of torch.
PADS = (
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default,
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default,
)  # fmt: skip
PADS_BACKWARD = (
    aten.reflection_pad1d_backward.default, aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default, aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default, aten.replication_pad3d_backward.default,
)  # fmt: skip


@functools.cache
def mend_layouts() -> None:
    """Register rules that give fake tensors the strides of the kernels' results."""
    if hasattr(_meta_registrations, "div_rtn"):
        _meta_registrations.div_rtn = _rounded_down
    _register(aten._unique.default, _sizes_of_unique)
    _register_before_decomposition(aten.roll.default, on_cpu(_rolled))
    layouts: dict[Any, Callable[..., Any]] = {aten.ldexp.Tensor: _as_ldexp, **dict.fromkeys(_ELEMENTWISE, _broadcast)}
    layouts |= dict.fromkeys(_CONTIGUOUS, _contiguous) | dict.fromkeys(_CHANNELS, _by_channels)
    of_torch = {op: rule for op in _NORMS if (rule := fake_impls.op_implementations_dict.get(op)) is not None}
    for operator, rule in of_torch.items():
        fake_impls.op_implementations_dict[operator] = _with_saved(rule)
    if (rule := fake_impls.op_implementations_dict.get(aten.index.Tensor)) is not None:
        fake_impls.op_implementations_dict[aten.index.Tensor] = _with_index_layout(rule)
    layouts |= {operator: _unchanged for operator in _NORMS if operator not in of_torch}
    layouts |= dict.fromkeys(PADS, _padded) | dict.fromkeys(PADS_BACKWARD, _pad_gradient)
    for operator, layout in layouts.items():
        _register_before_decomposition(operator, _with_layout(layout, *_decomposed(operator)))
    for operator, dtype in result_dtypes().items():
        _register_before_decomposition(operator, _with_dtype(dtype, *_decomposed(operator)))


def _rounded_down(x: Any, y: Any) -> Any:
    """Divides the sizes of pooling. That of torch 2.11 also compares the remainder with 0, so that even sizes need a
    graph of their own, and then never corrects the quotient, which Python has rounded down."""
    return x // y


def _decomposed(operator: Any) -> tuple[Callable[..., Any] | None, bool]:
    """The decomposition with which torch's fake tensors compute the operator's result, if they have no implementation
    of its own, and whether they use it even if all sizes are known."""
    decomposed = None if operator in meta_table else decomposition_table.get(operator)
    return decomposed, decomposed is not None and torch_decomp_decompositions(operator)


def _sizes_of_unique(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """The sizes depend on data; torch before 2.12 predicts one element."""
    raise DynamicOutputShapeException(operator)


def _register(operator: Any, rule: Callable[..., Any]) -> None:
    if not fake_impls._is_op_registered_to_fake_rule(operator):
        fake_impls.register_op_impl(operator)(rule)


def _register_before_decomposition(operator: Any, rule: Callable[..., Any]) -> None:
    _register(operator, rule)
    meta_table.setdefault(operator, rule)  # with symbolic sizes, operators missing in this table are decomposed first


def on_cpu(result: Callable[..., Any]) -> Callable[..., Any]:
    """A fake tensor rule that calls `result` on the CPU, and leaves everything else (or NotImplemented) to torch."""

    def rule(mode: Any, operator: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.device.type != "cpu":
            return NotImplemented
        with mode:
            return result(x, *args, **kwargs)

    return rule


def _with_saved(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A fake tensor rule for a norm, with the dtypes of what the norm saves corrected."""

    @functools.wraps(rule)
    def corrected(mode: Any, operator: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        result, *saved = rule(mode, operator, x, *args, **kwargs)
        with mode:
            return result, *_saved(saved, x, args)

    return corrected


def _with_index_layout(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A fake tensor rule for `x[indices]` with the strides of the kernel's result."""

    @functools.wraps(rule)
    def corrected(mode: Any, operator: Any, x: Any, indices: Any, **kwargs: Any) -> Any:
        result = rule(mode, operator, x, indices, **kwargs)
        with mode:
            stride = _indexed(result, x, indices)
            if stride is None or stride == result.stride():
                return result
            return torch.empty_strided(result.shape, stride, dtype=result.dtype, device=result.device)

    return corrected


def _indexed(result: torch.Tensor, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> tuple[Any, ...] | None:
    """The strides of `x[indices]` if torch's fake operator may predict others: those of one elementwise pass over `x`,
    with stride 0 along the dimensions of the indices, and over the indices, with stride 0 along the others. The fake
    operator ignores the indices, which decide if they have several dimensions in another order."""
    places = [d for d, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if all(index.dim() < 2 or index.is_contiguous() for index in given) or _holds(x.numel() == 0):
        return None
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return None
    given = list(torch.broadcast_tensors(*given))
    if x.device.type != "cpu" and any(index.stride() != given[0].stride() for index in given):
        return None  # the kernel makes them contiguous
    count = given[0].dim()
    first = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    others = [x.stride(d) for d in range(x.dim()) if d not in places]
    source = x.as_strided(result.shape, (*others[:first], *[0] * count, *others[first:]))
    around = (None,) * first, (None,) * (len(others) - first)
    operands = [index[(*around[0], ..., *around[1])].expand(result.shape) for index in given]
    return tuple(compute_elementwise_output_strides(source, *operands))


class _Inside(threading.local):
    """The operators whose rules this thread is evaluating; for these, torch's own implementations run."""

    def __init__(self) -> None:
        self.operators: set[Any] = set()


_inside = _Inside()


def _with_layout(
    layout: Callable[..., Any], decomposed: Callable[..., Any] | None, always: bool
) -> Callable[..., Any]:
    """A fake tensor rule that takes torch's result and changes the strides of the (first) result. `layout(result,
    *args)` returns a memory format, a tensor with the right strides, or None if torch is right. `decomposed`: the
    operator's decomposition, if torch's fake tensors have no implementation of its own; with `always`, they use it
    even if all sizes are known."""

    def rule(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        if operator in _inside.operators:
            return NotImplemented
        _inside.operators.add(operator)
        try:
            with mode:
                if operator is aten.native_batch_norm.default and not kwargs and mode.shape_env is None:
                    if (known := _normalized(*args)) is not None:
                        return known
                compute = decomposed if always or mode.shape_env is not None else None
                computed = (compute or operator)(*args, **kwargs)
                several = isinstance(computed, tuple | list)
                if operator in _BATCH_NORMS:
                    computed = (computed[0], *_statistics(computed[1:], args))
                if operator in _NORMS:
                    computed = (computed[0], *_saved(computed[1:], args[0], args[1:]))
                first = computed[0] if several else computed
                wanted = layout(first, *args)
                if wanted is None:
                    return computed
                stride = _like(first, wanted).stride() if isinstance(wanted, torch.memory_format) else wanted.stride()
                if stride == first.stride():
                    return computed
                first = torch.empty_strided(first.shape, stride, dtype=first.dtype, device=first.device)
                return (first, *computed[1:]) if several else first
        finally:
            _inside.operators.discard(operator)

    return rule


def _with_dtype(
    dtype: Callable[..., torch.dtype], decomposed: Callable[..., Any] | None, always: bool
) -> Callable[..., Any]:
    """A fake tensor rule that takes torch's result in the dtype `dtype(*args)`. See `_with_layout` for `decomposed` and
    `always`."""

    def rule(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        if operator in _inside.operators:
            return NotImplemented
        _inside.operators.add(operator)
        try:
            with mode:
                compute = decomposed if always or mode.shape_env is not None else None
                return (compute or operator)(*args, **kwargs).to(dtype(*args, **kwargs))
        finally:
            _inside.operators.discard(operator)

    return rule


def _like(x: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=memory_format)


def _broadcast(result: torch.Tensor, x: torch.Tensor, y: Any) -> torch.Tensor | None:
    """The sum of the operands, which has the layout of any elementwise result."""
    return torch.add(x, y) if isinstance(y, torch.Tensor) else None


def _contiguous(result: torch.Tensor, *args: Any) -> torch.memory_format:
    return torch.contiguous_format


def _unchanged(result: torch.Tensor, *args: Any) -> None:
    """The layout that torch predicts."""


def _as_ldexp(result: torch.Tensor, x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Layout of a product with a power of 2; the power is contiguous."""
    return torch.add(x, _like(exponent, torch.contiguous_format))


def _by_channels(result: torch.Tensor, x: torch.Tensor, *args: Any) -> torch.memory_format | None:
    return suggest_memory_format(x) if x.device.type == "cpu" and x.numel() else None


def _normalized(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *numbers: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """The results of batch normalisation with given statistics on the CPU, where nothing is saved, if all tensors have
    one dtype; otherwise None. torch computes them with some 25 operators on fake tensors."""
    given = [each for each in (weight, bias) if each is not None] + [mean, variance]
    if training or x.device.type != "cpu" or x.dim() < 2 or not x.dtype.is_floating_point or not x.numel():
        return None
    for each in given:
        if each is None or each.shape != x.shape[1:2] or each.dtype != x.dtype or each.device != x.device:
            return None
    return _like(x, suggest_memory_format(x)), x.new_empty(0), x.new_empty(0)


def _statistics(results: Sequence[torch.Tensor], args: Sequence[Any]) -> list[torch.Tensor]:
    """The results of batch normalisation after the first: the mean and deviation that are saved, a buffer that some
    operators reserve for the backward, and the new running statistics if the operator returns them."""
    saved, rest, running = _saved(results[:2], args[0], args[1:5]), list(results[2:]), args[3:5]
    reserved = len(rest) % 2
    return saved + rest[:reserved] + [x.to(old.dtype) for x, old in zip(rest[reserved:], running)]


def _saved(results: Sequence[torch.Tensor], x: torch.Tensor, given: Sequence[Any]) -> list[torch.Tensor]:
    """The mean and the deviation of `x` that a norm saves. On the CPU they have the dtype of the tensors among `given`,
    its parameters and running statistics, which is float32 beside an `x` in half precision or the dtype of `x`."""
    parameters = [a for a in given if isinstance(a, torch.Tensor)]
    if x.device.type != "cpu" or not parameters:
        return list(results)
    return [result.to(parameters[0].dtype) for result in results]


def pad_format(x: torch.Tensor) -> torch.memory_format:
    """The layout of `x` padded by reflection or replication: on the CPU channels last if that of `x` is."""
    return suggest_memory_format(x) if x.device.type == "cpu" else torch.contiguous_format


def _padded(result: torch.Tensor, x: torch.Tensor, *args: Any) -> torch.memory_format:
    return pad_format(x)


def _pad_gradient(result: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, *args: Any) -> torch.memory_format:
    return pad_format(x)


def _rolled(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """The layout of concatenating two parts along each dimension; without dimensions, torch rolls the flat tensor."""
    if not dims or len(shifts) != len(dims) or not all(-x.dim() <= d < x.dim() for d in dims):
        return NotImplemented
    for shift, d in zip(shifts, dims):
        size = x.shape[d]
        whole = any(map(_holds, (shift == 0, size == 0, size == 1)))  # one of the two parts is empty
        if not whole and not _holds(abs(shift) == 1):  # a dynamic size is at least 2
            whole = _holds(shift % size == 0)
        x = _like(x, torch.contiguous_format if whole else suggest_memory_format(x))
    return x


def _holds(condition: bool | torch.SymBool) -> bool:
    """Whether a condition holds; False if that depends on data."""
    if isinstance(condition, bool):
        return condition
    # imported here because it imports sympy
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(condition)
