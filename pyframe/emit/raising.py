"""Decides whether an operator may raise an exception that depends on the elements of its operands, such as an index out
of range or an integer division by zero. Errors that depend only on shapes and dtypes occur while tracing already.

`eager_retry` uses this to decide whether a graph's changes of its inputs may ever have to be undone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

# With integers, these raise for a divisor of zero.
_DIVISIONS = {"div", "div_", "floor_divide", "floor_divide_", "remainder", "remainder_", "fmod", "fmod_"}

# Like views and pointwise operators, these check shapes and dtypes only. Any other operator may check elements.
_SHAPES_ALONE = frozenset("""
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _fused_rms_norm _local_scalar_dense _log_softmax
    _native_batch_norm_legit _native_batch_norm_legit_no_training _prelu_kernel
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable _softmax _to_copy
    _trilinear _unsafe_view addbmm addmm addmv addr alias all amax amin aminmax any arange argmax argmin argsort
    avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm binary_cross_entropy_with_logits bmm cat clone
    constant_pad_nd contiguous convolution copy copy_ count_nonzero cummax cummin cumprod cumsum detach device dot
    embedding_dense_backward empty empty_like empty_permuted empty_strided eye fill_ flip full full_like group_norm
    huber_loss kthvalue l1_loss layer_norm lift_fresh linalg_vector_norm linspace logcumsumexp logspace logsumexp
    masked_fill masked_fill_ max max_pool2d max_pool2d_with_indices max_pool3d_with_indices mean median min mm mode
    mse_loss mv native_batch_norm native_dropout native_group_norm native_layer_norm new_empty new_empty_strided
    new_full new_ones new_zeros nonzero norm normal_ ones ones_like pad prod rand rand_like randint randint_like
    randn randn_like randperm reflection_pad1d reflection_pad2d repeat replication_pad1d replication_pad2d
    replication_pad3d rms_norm roll rot90 scalar_tensor select_scatter slice_scatter smooth_l1_loss sort
    split_with_sizes_copy stack std std_mean sum topk trace tril tril_indices triu triu_indices uniform_
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d var var_mean where zero_ zeros zeros_like
""".split())

_OPTIMIZER_STEPS = frozenset("""
    _fused_adagrad _fused_adagrad_ _fused_adam _fused_adam_ _fused_adamw _fused_adamw_ _fused_sgd _fused_sgd_
""".split())


def may_raise(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator (an OpOverload, called with fake tensors) may raise for some elements of tensors like its
    arguments."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in ("aten", "prims", "prim"):
        return True
    name = func._schema.name.partition("::")[2]
    if name in _DIVISIONS:
        return all(not (each.is_floating_point() or each.is_complex()) for each in _tensors(args))
    if name in _SHAPES_ALONE or name in _OPTIMIZER_STEPS or torch.Tag.pointwise in func.tags:
        return False
    if name.startswith("_foreach_"):
        return _foreach_may_raise(name)
    is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
    return not is_view


@functools.cache
def name_may_raise(name: str) -> bool:
    """Whether a function or method of this name in torch or `operator` may raise for some elements of tensors, as far
    as the name says: True if it does not."""
    name = _OF_OPERATORS.get(name.strip("_"), name)
    if name.startswith("_foreach_"):
        return _foreach_may_raise(name)
    packet = getattr(torch.ops.aten, name, None)
    if name in _DIVISIONS or not isinstance(packet, torch._ops.OpOverloadPacket):
        return True
    return any(may_raise(getattr(packet, overload), ()) for overload in packet.overloads())


def node_may_raise(node: fx.Node) -> bool:
    """Whether a node may raise depending on tensor elements, as far as its target and an index say: a node that may is
    never missed. An integer that varies may be too large for operators."""
    if node.op == "placeholder":
        return isinstance(node.meta.get("val"), torch.SymInt)
    return node.op in ("call_function", "call_method") and call_may_raise(node.target, node.args)


def call_may_raise(target: Any, args: Sequence[Any]) -> bool:
    """As `node_may_raise`, of a node that calls a function or method with these arguments."""
    if target is operator.getitem:  # of a tensor or of the results of an operator
        index = args[1]
        return any(isinstance(each, fx.Node) for each in (index if isinstance(index, tuple | list) else (index,)))
    return name_may_raise(target if isinstance(target, str) else getattr(target, "__name__", ""))


# How functions of the module `operator` and methods of tensors are called among the operators.
_OF_OPERATORS = {
    "truediv": "true_divide", "invert": "bitwise_not", "pos": "positive", "matmul": "mm", "float": "_to_copy",
}  # fmt: skip


@functools.cache
def _foreach_may_raise(name: str) -> bool:
    """Whether an operator on lists of tensors may raise: it does what the operator on single tensors that it is named
    after does to each, in place or not."""
    single = name.removeprefix("_foreach_").removesuffix("_")
    if not _SHAPES_ALONE.isdisjoint((single, f"{single}_")):
        return False
    packet = getattr(torch.ops.aten, single, None)
    overloads = [] if packet is None else [getattr(packet, each) for each in packet.overloads()]
    return not any(torch.Tag.pointwise in each.tags for each in overloads)


def _tensors(args: Sequence[Any]) -> Iterator[torch.Tensor]:
    return (each for each in args if isinstance(each, torch.Tensor))
