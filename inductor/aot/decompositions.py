"""The table of decompositions: which ATen operators are replaced by simpler ones before lowering."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import _core_aten_decompositions_post_autograd
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from ..errors import Unsupported
from ..ir.nodes import dense_order
from ..lower import LOWERINGS
from .argument_dtypes import (
    BACKWARDS,
    BATCH_NORMS,
    LOSSES,
    OF_ONE_DTYPE,
    loss_of_first_dtype,
    of_mixed_parameters,
    of_second_dtype,
    of_several_dtypes,
)
from .batch_norm import batch_norm, batch_norm_without_running, writing_batch_norm
from .fake_layout import PADS, PADS_BACKWARD, pad_format
from .foreach import foreach_decompositions
from .interpolation import LINEAR, LINEAR_VEC, linear, linear_vec
from .margin_loss import multi_margin_loss, multi_margin_loss_backward
from .torch_mistakes import NEAREST, NEAREST_OF_VOLUMES, WRONG

aten = torch.ops.aten

# ATen's own kernels are better than what these would decompose into.
_KEPT = set(
    "addmm baddbmm addmv addbmm mv dot embedding_dense_backward _scaled_dot_product_flash_attention_for_cpu "
    "grid_sampler_2d upsample_bilinear2d upsample_bicubic2d upsample_nearest2d im2col col2im unfold "
    "index_add index_add_ index_copy index_copy_ index_fill index_fill_ "
    "native_dropout bernoulli uniform normal take masked_select linspace".split()
)


# Composite operators that a trace does not decompose by itself: they have a kernel for a device, or a decomposition of
# ours takes the place of torch's.
_COMPOSITES = (
    *NEAREST, *NEAREST_OF_VOLUMES, aten.upsample_linear1d.vec, aten.upsample_trilinear3d.vec,
    aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default, aten.native_channel_shuffle.default,
)  # fmt: skip


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's core decompositions without most of its composite operators. A trace decomposes these whether they are in
    the table or not, and torch takes a sixth of a second to find all 500 of them."""
    table: dict[Any, Callable[..., Any]] = dict(_core_aten_decompositions_post_autograd())
    for op in _COMPOSITES:
        table[op] = op.py_kernels.get(DispatchKey.CompositeImplicitAutograd, op.decompose)
    return table


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's core decompositions, except where a lowering or ATen's kernel is better, plus our own."""
    table = {}
    for op, fn in core_decompositions().items():
        name = op._schema.name.removeprefix("aten::") if isinstance(op, torch._ops.OpOverload) else None
        loops = name in LOWERINGS and op not in _LOOPS_ON_CPU
        if name is not None and not loops and name not in _KEPT and op not in WRONG:
            table[op] = fn
    table |= foreach_decompositions()
    table[aten._efficientzerotensor.default] = zeros
    table[aten.native_batch_norm.default] = writing_batch_norm
    table[aten._native_batch_norm_legit_functional.default] = batch_norm
    table[aten._native_batch_norm_legit.no_stats] = batch_norm_without_running
    table[aten.as_strided_scatter.default] = as_strided_scatter
    table |= dict.fromkeys((aten.max_unpool2d.default, aten.max_unpool3d.default), max_unpool)
    table[aten.linalg_vector_norm.default] = vector_norm
    table[aten.multi_margin_loss.default] = multi_margin_loss
    table[aten.multi_margin_loss_backward.default] = multi_margin_loss_backward
    table[getattr(aten.random, "from")] = random_from
    table[aten.std_mean.correction] = _of_floats(std_mean, table.get(aten.std_mean.correction))
    table |= {op: linear for op in LINEAR if op in table} | {op: linear_vec for op in LINEAR_VEC if op in table}
    orders: dict[Any, Callable[..., Sequence[int] | None]] = {aten.select_scatter.default: _as_first}
    orders |= {op: _descending for op in NEAREST} | {op: _as_kernel(op) for op in _OTHER_LAYOUTS}
    orders |= {op: _by_channels for op in NEAREST_OF_VOLUMES} | {op: _as_padded for op in PADS}
    orders |= {op: _as_input_padded for op in PADS_BACKWARD}
    for op, order in orders.items():
        if op in table:
            table[op] = _with_layout(table[op], order)
    table |= {op: loss_of_first_dtype(table[op]) for op in LOSSES if op in table}
    table |= {op: of_second_dtype(table[op]) for op in BACKWARDS if op in table}
    refusals: dict[Any, Callable[..., bool]] = dict.fromkeys(OF_ONE_DTYPE, of_several_dtypes)
    refusals |= dict.fromkeys(BATCH_NORMS, of_mixed_parameters)
    refusals |= dict.fromkeys(_FLOATS_ONLY, _of_integers)
    refusals |= dict.fromkeys((*LINEAR, *LINEAR_VEC), _of_integers_or_on_cpu)
    refusals |= dict.fromkeys(_NLL_LOSSES, _of_other_classes)
    refusals[aten.binary_cross_entropy.default] = _on_cpu_or_of_several_dtypes
    refusals[aten.sgn.default] = _of_complex  # torch's divides by a complex length, whose reciprocal overflows
    refusals |= dict.fromkeys((*PADS, *_NEAREST_ON_CPU), _static_on_cpu)
    refusals |= dict.fromkeys(PADS_BACKWARD, _static_on_cpu_or_of_several_dtypes)
    for op, refuses in refusals.items():
        if op in table:
            table[op] = _where_taken(table[op], refuses)
    return table


def random_from(x: torch.Tensor, low: int, high: int | None, *, generator: Any = None) -> torch.Tensor:
    """Integers from `low` up to `high`. The overload is called `from`, a keyword, so that torch.fx cannot print a graph
    that contains it."""
    if high is None or generator is not None:
        return NotImplemented
    return torch.randint_like(x, low, high, memory_format=torch.preserve_format)


def max_unpool(x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int], *geometry: Any) -> torch.Tensor:
    """Zeros with the elements of `x`, (..., planes, *sizes), at their indices into planes of `output_size`. Torch's own
    decomposition does not check the indices: those outside of a plane would write to its neighbours."""
    dims = len(output_size)
    size = (*x.shape[:-dims], *output_size)
    if torch.are_deterministic_algorithms_enabled() or 0 in size or 0 in x.shape:
        return NotImplemented
    planes = x.new_zeros((math.prod(size[:-dims]), math.prod(output_size)))
    return planes.scatter(1, indices.flatten(-dims).flatten(0, -2), x.flatten(-dims).flatten(0, -2)).view(size)


_NEAREST_ON_CPU = (*NEAREST, *NEAREST_OF_VOLUMES, aten._upsample_nearest_exact2d.default)
# Operators with lowerings for tensors on the CPU only.
_LOOPS_ON_CPU = (*PADS, *PADS_BACKWARD, *LINEAR, *LINEAR_VEC, *_NEAREST_ON_CPU)
# ATen has no integer kernels for these operators, although torch's decompositions accept integers.
_FLOATS_ONLY = (
    aten.celu.default, aten.elu.default, aten.log_sigmoid_forward.default, aten.hardshrink.default, aten.glu.default,
    aten.smooth_l1_loss.default, aten.huber_loss.default, aten.soft_margin_loss.default,
)  # fmt: skip
_NLL_LOSSES = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)


def _of_integers(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _of_complex(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    return x.is_complex()


def _of_integers_or_on_cpu(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    return x.is_cpu or _of_integers(x)  # ATen's kernel for the CPU is faster than loops that gather


def _of_other_classes(x: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    return target.dtype not in (torch.int64, torch.uint8)


def _on_cpu_or_of_several_dtypes(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    # on the CPU, ATen's kernel checks that each element is a probability
    return x.is_cpu or of_several_dtypes(x, *args, **kwargs)


def _static_on_cpu(x: torch.Tensor, *args: Any) -> bool:
    return x.is_cpu and all(type(n) is int for n in x.shape)  # a lowering reads rows in parts


def _static_on_cpu_or_of_several_dtypes(grad: torch.Tensor, x: torch.Tensor, *args: Any) -> bool:
    return _static_on_cpu(x) or of_several_dtypes(grad, x, *args)


def _where_taken(decomposition: Callable[..., Any], refuses: Callable[..., bool]) -> Callable[..., Any]:
    """`decomposition`, except for arguments that `refuses` marks: there the operator may raise, and is kept."""

    @functools.wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if refuses(*args, **kwargs) else decomposition(*args, **kwargs)

    return call


# torch's decompositions of these lay out results in another order than the kernels (see tools/fake_layouts.py).
_OTHER_LAYOUTS = (
    aten.logaddexp.default, aten.logaddexp2.default, aten.xlogy.Tensor, aten.special_xlog1py.default,
    aten.channel_shuffle.default,
)  # fmt: skip


def _as_kernel(op: Any) -> Callable[..., Sequence[int] | None]:
    """A layout rule: the order of dimensions that the operator itself gives on fake tensors."""

    def order(*args: Any, **kwargs: Any) -> Sequence[int] | None:
        with disable_proxy_modes_tracing():
            whole = op(*args, **kwargs)
        return dense_order(whole.shape, whole.stride())

    return order


def _as_first(x: torch.Tensor, *args: Any, **kwargs: Any) -> Sequence[int] | None:
    return dense_order(x.shape, x.stride())


def _descending(x: torch.Tensor, *args: Any, **kwargs: Any) -> Sequence[int]:
    return tuple(range(x.dim()))


def _in_format(x: torch.Tensor, memory_format: torch.memory_format) -> Sequence[int]:
    """The order of dimensions of a tensor with the rank of `x` in a memory format: contiguous or channels last."""
    return _descending(x) if memory_format == torch.contiguous_format else (0, *range(2, x.dim()), 1)


def _as_padded(x: torch.Tensor, *args: Any, **kwargs: Any) -> Sequence[int]:
    return _in_format(x, pad_format(x))


def _as_input_padded(gradient: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> Sequence[int]:
    return _as_padded(x)


def _by_channels(x: torch.Tensor, *args: Any, **kwargs: Any) -> Sequence[int]:
    return _in_format(x, suggest_memory_format(x))


def _with_layout(
    decomposition: Callable[..., Any], order: Callable[..., Sequence[int] | None]
) -> Callable[..., Any]:
    """`decomposition` with its result copied to another order of dimensions in memory: `order(*args)` gives the
    dimensions, outermost first. Used if the decomposition's own order differs from the kernel's."""

    @functools.wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        dims = order(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or not dims:
            return result
        return result.permute(*dims).contiguous().permute(*(dims.index(d) for d in range(len(dims))))

    return call


def zeros(
    size: Sequence[int], *, dtype: torch.dtype | None = None, layout: torch.layout | None = None,
    device: torch.device | None = None, pin_memory: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    """aten._efficientzerotensor with memory: autograd's zero tensors have none that a kernel could read."""
    return torch.zeros(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


def as_strided_scatter(
    base: torch.Tensor, src: torch.Tensor, size: Sequence[int], stride: Sequence[int],
    storage_offset: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Decomposition of aten.as_strided_scatter to positions within `base`. ATen's kernel counts `storage_offset` from
    the start of the storage, but a compiled graph may place `base` anywhere in a shared storage."""
    if not base.is_contiguous():
        return NotImplemented
    start: Any = 0 if storage_offset is None else storage_offset - base.storage_offset()
    flat, count = base.reshape(-1), src.numel()
    last = start + sum((n - 1) * step for n, step in zip(size, stride))
    if count and (start < 0 or last >= flat.shape[0]):
        raise Unsupported("as_strided_scatter to places outside of the tensor")  # outside of the storage, eager raises
    order = dense_order(size, stride)
    if order is not None:
        pieces = [flat[:start], src.permute(order).reshape(-1), flat[start + count :]]
        return torch.cat(pieces).reshape(base.shape)
    position = torch.full((), start, dtype=torch.int64, device=base.device)
    for n, step in zip(size, stride):
        position = position.unsqueeze(-1) + torch.arange(n, device=base.device) * step
    return flat.scatter(0, position.reshape(-1), src.reshape(-1)).reshape(base.shape)


def std_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """aten.std_mean for real numbers. torch's decomposition takes the root of a variance rounded to the dtype of `x`,
    which is infinite for numbers whose squares exceed its range."""
    over = list(dim) if dim else list(range(x.dim()))
    return aten.std.correction(x, dim, correction=correction, keepdim=keepdim), x.mean(over, keepdim)


def _of_floats(ours: Callable[..., Any], others: Callable[..., Any] | None) -> Callable[..., Any]:
    """`ours` for real floating-point tensors, otherwise `others`, or the operator itself."""

    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.is_floating_point():
            return ours(x, *args, **kwargs)
        return NotImplemented if others is None else others(x, *args, **kwargs)

    return call


def vector_norm(
    x: torch.Tensor, ord: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False,
    *, dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """aten.linalg_vector_norm of order 2 for real numbers; half precision is rounded once, at the end."""
    result = dtype or x.dtype
    if ord != 2 or not x.is_floating_point() or not result.is_floating_point:  # noqa: PLR2004
        return NotImplemented
    wide = result if result in (torch.float32, torch.float64) else torch.float32
    x = x.to(wide)
    return (x * x).sum(list(dim or range(x.dim())), keepdim).sqrt().to(result)
