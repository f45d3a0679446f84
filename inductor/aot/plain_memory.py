"""Ensures that kernels can read each tensor of a graph directly from memory, as strided elements of the buffer's dtype.

Inside an ATen graph, `computed_values` replaces views that only reinterpret memory (conjugate or negative bit, another
dtype) by operators that write the values to new memory. At the boundary, `refuse_special` raises Unsupported for inputs
and outputs that are sparse, nested or quantized, have a conjugate or negative bit, or are autograd's zero tensors,
which have no memory. Which tensors share memory is the subject of `memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from ..errors import Unsupported
from .fake import make_fx

aten = torch.ops.aten


def _with_strides(copy: Callable[..., Any], fixed: int) -> Callable[..., Any]:
    """`copy`, whose result is contiguous, applied to the dimensions in the order in which they are in memory, so that
    the result has the strides of the view. The last `fixed` dimensions stay where they are."""

    def call(x: torch.Tensor, *args: Any) -> Any:
        leading = x.dim() - fixed
        strides = x.stride()
        order = sorted(range(leading), key=lambda d: -strides[d])
        if order == list(range(leading)):
            return copy(x, *args)
        result = copy(x.permute(*order, *range(leading, x.dim())), *args)
        return result.permute(*(order.index(d) for d in range(leading)), *range(leading, result.dim()))

    return call


def _view_of_dtype(x: torch.Tensor, dtype: torch.dtype) -> Any:
    """The values of `x.view(dtype)`; with another element size, the last dimension is the innermost one in memory."""
    fixed = 0 if x.dtype.itemsize == dtype.itemsize else 1
    return _with_strides(aten.view_copy.dtype, fixed)(x, dtype)


# For each view operator that changes how memory is read, what computes its values.
_VALUES: dict[Any, Callable[..., Any]] = {
    aten._conj.default: aten._conj_physical.default,
    aten._neg_view.default: aten.neg.default,
    aten.view_as_real.default: _with_strides(aten.view_as_real_copy.default, 0),
    aten.view_as_complex.default: _with_strides(aten.view_as_complex_copy.default, 1),
    aten.view.dtype: _view_of_dtype,
}


def computed_values(graph: torch.fx.GraphModule, fakes: Sequence[Any]) -> torch.fx.GraphModule:
    """Replace such views in `graph` by operators that compute their values. `graph` is an ATen graph whose only writes
    are final copies.

    If there are any, the graph is traced again on `fakes`, under the modes of the first trace, because later strides
    may differ.
    """
    if not any(node.target in _VALUES for node in graph.graph.nodes):
        return graph
    return make_fx(_Values(graph).run, decomposition_table=_VALUES)(*fakes)


class _Values(torch.fx.Interpreter):
    """Runs a traced graph; the tracer may have replaced a tensor that autograd made of a number by the number."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in (aten._conj.default, aten._neg_view.default) and not isinstance(args[0], torch.Tensor):
            return args[0].conjugate() if target is aten._conj.default else -args[0]
        return super().call_function(target, args, kwargs)


def why_not_plain(x: torch.Tensor) -> str | None:
    """Why the memory of `x` does not hold its elements; None if it does."""
    if x.is_sparse or x.layout != torch.strided:
        return f"a tensor of layout {x.layout}"
    if x.is_nested:
        return "a nested tensor"
    if x.is_quantized:
        return "a quantized tensor"
    if x.is_conj():
        return "a tensor with its conjugate bit set"
    if x.is_neg():
        return "a tensor with its negative bit set"
    if torch._is_zerotensor(x):
        return "a zero tensor, which has no memory"
    return None


def refuse_special(values: Iterable[Any]) -> None:
    """Raise Unsupported if one of these values is a tensor whose memory does not hold its elements."""
    for x in values:
        reason = why_not_plain(x) if isinstance(x, torch.Tensor) else None
        if reason is not None:
            raise Unsupported(reason)
