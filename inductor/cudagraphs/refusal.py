"""Which plans cannot be recorded as CUDA graphs, and why.

A recorded ATen call must not read memory of the host or synchronize, and must not depend on anything but its recorded
arguments and torch's default generator. torch does not say which operators satisfy this, so those that do are listed;
a plan that calls any other operator is not recorded. Elementwise operators and reductions satisfy it by their kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..runtime.aten import overload
from ..runtime.plan_spec import ANY_DEVICE, Alloc, BufRef, Extern, KernelCall, Launch, PlanSpec, Slot, View

_ATTENTION = (
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
ATTENTION = frozenset(f"aten.{name}" for name in (*_ATTENTION, *(f"{name}_backward" for name in _ATTENTION)))

# Operators, without their overload, that run only kernels whose arguments do not change between calls.
_MATMUL = "mm addmm bmm baddbmm addbmm addmv mv dot _addmm_activation _scaled_mm _int_mm _grouped_mm linear matmul"
_CONVOLUTION = "convolution convolution_backward _convolution cudnn_convolution cudnn_convolution_relu"
_NORMALIZATION = (
    "native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward batch_norm_elemt "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training native_layer_norm native_layer_norm_backward "
    "native_group_norm native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward"
)
_INDEXING = (
    "index index_put index_put_ _unsafe_index _unsafe_index_put index_copy index_copy_ index_add index_add_ "
    "index_select index_fill gather scatter scatter_ scatter_add scatter_add_ scatter_reduce take_along_dim embedding "
    "embedding_dense_backward select_scatter slice_scatter masked_fill where masked_scatter"
)
_MEMORY = (
    "copy copy_ clone contiguous _to_copy fill fill_ zero zero_ full full_like empty empty_like empty_strided "
    "zeros zeros_like ones ones_like cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d flip roll arange triu tril repeat"
)
_POOLING = (
    "max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices "
    "max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d upsample_nearest2d upsample_bilinear2d "
    "upsample_nearest2d_backward upsample_bilinear2d_backward grid_sampler_2d"
)
_SCANS = "cumsum cumprod cummax cummin logcumsumexp sort topk argmax argmin argsort"
_SOFTMAX = "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data nll_loss_forward nll_loss_backward"
_RANDOM = "randint rand randn rand_like randn_like bernoulli uniform normal exponential native_dropout randint_like"
_LISTED = (_MATMUL, _CONVOLUTION, _NORMALIZATION, _INDEXING, _MEMORY, _POOLING, _SCANS, _SOFTMAX, _RANDOM)
CAPTURABLE = ATTENTION | {f"aten.{name}" for names in _LISTED for name in names.split()}

_BY_INDEX = frozenset({"aten.index", "aten.index_put", "aten.index_put_", "aten._unsafe_index"})


class NotCapturable(Exception):
    """Found while recording: what was captured must not be replayed. The message says why."""


def refusal(spec: PlanSpec) -> str | None:
    """Why calls of this plan cannot be recorded; None if they can, as far as the plan shows."""
    for i, given in enumerate(spec.inputs):
        if given.kind == "tensor" and given.device not in ("", ANY_DEVICE):
            return f"input {i} is on {given.device}"
    if any(str(x.device) != spec.device for x in spec.constants):
        return "a constant is on another device"
    dtypes = {i: given.dtype for i, given in enumerate(spec.inputs)}
    for step in spec.steps:
        on_cpu = isinstance(step, KernelCall) and spec.device != "cpu"
        if on_cpu or (isinstance(step, Launch) and step.by_value):
            return "a part of it runs on the CPU, or a kernel takes a number from there"
        if isinstance(step, Extern):
            reason = _refused_call(step, dtypes)
            if reason is not None:
                return reason
        elif isinstance(step, Alloc | Slot | View) and step.dtype:
            dtypes[step.buf] = step.dtype
    return None


def _refused_call(step: Extern, dtypes: dict[int, str]) -> str | None:
    target = overload(step.target)
    name = step.target.rpartition(".")[0]
    simple = not {torch.Tag.pointwise, *_REDUCTION}.isdisjoint(target.tags)
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}.intersection(target.tags):
        return f"the sizes or the control flow after {step.target} depend on data"
    if torch.Tag.cudagraph_unsafe in target.tags:
        return f"{step.target} is tagged as unsafe in CUDA graphs"
    known = name in CAPTURABLE or (simple and name.startswith("aten."))
    if not known or (torch.Tag.nondeterministic_seeded in target.tags and name not in CAPTURABLE):
        return f"{step.target} is not known to be capturable"
    values = list(_leaves((*step.args, *(value for _, value in step.kwargs))))
    if any(isinstance(value, torch.Generator) for value in values):
        return f"{step.target} has a generator of its own"
    if any(isinstance(value, torch.device) and value.type == "cpu" for value in values):
        return f"{step.target} makes a tensor on the CPU"
    if name in _BY_INDEX:
        indices = _leaves(step.args[1])
        kinds = {dtypes.get(ref.buf) for ref in indices if isinstance(ref, BufRef)}
        if kinds - {"int64", "int32"}:
            return f"{step.target} takes a mask, or an index of a kind that is not known, and may synchronize"
    for buf, result in zip(step.outs, step.results):
        if result is not None and buf >= 0:
            dtypes[buf] = result.dtype
    return None


_REDUCTION = {torch.Tag.reduction} if hasattr(torch.Tag, "reduction") else set()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def without_dropout(step: Extern) -> bool:
    """Whether the call is of an attention operator that draws no random numbers, so that its seeds mean nothing."""
    if step.target.rpartition(".")[0] not in ATTENTION:
        return False
    arguments = overload(step.target)._schema.arguments
    given = dict(zip((a.name for a in arguments), step.args)) | dict(step.kwargs)
    default = next((a.default_value for a in arguments if a.name == "dropout_p"), None)
    return given.get("dropout_p", default) == 0.0


def unused_seeds(spec: PlanSpec) -> frozenset[int]:
    """Positions of 0-d inputs that only attention operators without dropout take, as the seeds of their dropout. Where
    they are, and what they hold, does not matter."""
    seeds = {i for i, given in enumerate(spec.inputs) if given.kind == "tensor" and given.device == ANY_DEVICE}
    for step in spec.steps:
        if isinstance(step, Extern) and not without_dropout(step):
            values = (*step.args, *(value for _, value in step.kwargs))
            seeds -= {ref.buf for ref in _leaves(values) if isinstance(ref, BufRef)}
    return frozenset(seeds - {ref.value for ref in spec.outputs if ref.kind != "const"})
