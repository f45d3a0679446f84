"""The operator `flex_attention`, written with operators of ATen: the whole matrix of scores is computed.

This is what the operator means. Autograd differentiates it, and the compiler traces it, like any other function.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.flex_attention import flex_attention as FLEX_ATTENTION
from torch.overrides import TorchFunctionMode

NEG_INF = -math.inf


class IndexByTensors(TorchFunctionMode):
    """`x[i, j]` gathers elements if all indices are ints or tensors, whatever their sizes.

    Without it, an index that is a tensor of one element is read as a Python number, which no vmapped tensor allows.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            x, indices = args[0], args[1] if type(args[1]) is tuple else (args[1],)
            if all(type(i) is int or isinstance(i, torch.Tensor) for i in indices):
                places = [torch.tensor(i, device=x.device) if type(i) is int else i for i in indices]
                return torch.ops.aten.index(x, places)
        return func(*args, **(kwargs or {}))


def indexed_by_tensors(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)` with indices that are tensors (see `IndexByTensors`)."""
    with IndexByTensors():
        return fn(*args)


def working_dtype(query: torch.dtype) -> torch.dtype:
    """The dtype of scores and logsumexp."""
    return torch.float64 if query is torch.float64 else torch.float32


def autocasts(kind: str) -> bool:
    """Whether autocast is on for this type of device."""
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def dtype_under_autocast(x: torch.Tensor) -> torch.dtype:
    """The dtype to which autocast, if it is on for this device, converts a query, key or value."""
    kind = x.device.type
    if not autocasts(kind):
        return x.dtype
    key = {"cuda": torch._C.DispatchKey.AutocastCUDA, "cpu": torch._C.DispatchKey.AutocastCPU}.get(kind)
    known = key is not None and key in FLEX_ATTENTION.py_kernels  # not in older versions of torch
    eligible = x.dtype.is_floating_point and x.dtype is not torch.float64
    return torch.get_autocast_dtype(kind) if known and eligible else x.dtype


def stride_order(query: torch.Tensor) -> list[int]:
    """The dimensions of the output from the outermost in memory to the innermost: those of the query, except that the
    last dimension is always the innermost."""
    strides = query.stride()
    return [*sorted(range(query.dim() - 1), key=lambda dim: -strides[dim]), query.dim() - 1]


def dense_flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., Any],
    block_mask: Sequence[Any], scale: float, kernel_options: Any, score_others: Sequence[Any] = (),
    mask_others: Sequence[Any] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The output (B, Hq, M, Dv), and for each of its rows, in units of log(2), the logsumexp and the maximum of the
    scores (B, Hq, M).

    query: (B, Hq, M, D). key: (B or 1, Hkv, N, D). value: (B or 1, Hkv, N, Dv), where Hq is a multiple of Hkv.
    `score_mod(score, b, h, q_idx, kv_idx, *score_others)` and `mask_mod(b, h, q_idx, kv_idx, *mask_others)`, the last
    item of `block_mask`, take scalars. The blocks of `block_mask` say nothing that `mask_mod` does not. Rows without
    any score are zero, and their logsumexp is -inf.
    """
    query, key, value = (x.to(dtype_under_autocast(x)) for x in (query, key, value))
    kind = query.device.type
    with torch.autocast(kind, enabled=False) if autocasts(kind) else contextlib.nullcontext():
        return _dense(query, key, value, score_mod, block_mask[-1], scale, score_others, mask_others)


class DenseFlexAttention:
    """`dense_flex_attention` with these graphs; called with the operator's other arguments."""

    def __init__(self, score_mod: fx.GraphModule, mask_mod: fx.GraphModule) -> None:
        self.score_mod, self.mask_mod = score_mod, mask_mod
        self.__name__ = self.__qualname__ = "dense_flex_attention"  # torch.fx names nodes after functions
        self.__module__ = __name__

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float,
        score_others: Sequence[Any] = (), mask_others: Sequence[Any] = (),
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return dense_flex_attention(
            query, key, value, self.score_mod, (self.mask_mod,), scale, None, score_others, mask_others
        )


def with_dense_attention(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, or a copy in which `DenseFlexAttention` replaces the operator."""

    def make(score_mod: fx.GraphModule, mask_mod: fx.GraphModule, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        query, key, value, _, _, scale, _, *others = args
        return DenseFlexAttention(score_mod, mask_mod), (query, key, value, scale, *others)

    return replace_operator(gm, make)


def replace_operator(gm: fx.GraphModule, make: Callable[..., tuple[Any, tuple[Any, ...]]]) -> fx.GraphModule:
    """`gm`, or a copy in which other functions replace the operator: `make(score_mod, mask_mod, args)` returns the
    function and its arguments for a call with `args`."""
    if not any(node.target is FLEX_ATTENTION for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    next(iter(graph.find_nodes(op="output"))).meta = dict(next(iter(gm.graph.find_nodes(op="output"))).meta)
    for node in graph.find_nodes(op="call_function", target=FLEX_ATTENTION):
        args: list[Any] = list(node.args)
        graphs: list[fx.Node] = [args[3], args[4][-1]]
        node.target, node.args = make(*(gm.get_submodule(str(each.target)) for each in graphs), args)
        for attribute in graphs:
            if not attribute.users:
                graph.erase_node(attribute)
    found = fx.GraphModule(gm, graph)
    found.meta = gm.meta
    return found


def _dense(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., Any],
    mask_mod: Callable[..., Any], scale: float, score_others: Sequence[Any], mask_others: Sequence[Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    key, value = (_for_each_head(x, query) for x in (key, value))
    working = working_dtype(query.dtype)
    scores = query.to(working) @ key.to(working).transpose(-2, -1) * scale
    places = [torch.arange(size, device=scores.device) for size in scores.shape]
    kept = over_grid(mask_mod, 0, mask_others)(*places, *mask_others)
    changed = over_grid(score_mod, 1, score_others)(scores, *places, *score_others).to(working)
    changed = torch.where(kept, changed, NEG_INF)
    logsumexp, largest = changed.logsumexp(-1), changed.detach().amax(-1)
    weights = torch.ops.aten._safe_softmax(changed, -1)
    output = weights.to(query.dtype) @ value
    order = stride_order(query)
    output = output.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])
    return output, logsumexp / math.log(2), largest / math.log(2)


def _for_each_head(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """A key or value, repeated for each batch and each head of the query."""
    batch, heads = query.shape[:2]
    if x.shape[0] != batch:
        x = x.expand(batch, -1, -1, -1)
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def over_grid(fn: Callable[..., Any], scores: int, others: Sequence[Any]) -> Callable[..., Any]:
    """`fn` of scalars as a function of `scores` matrices of scores and of the four ranges of indices."""

    def scalar(*args: Any) -> Any:
        result = indexed_by_tensors(fn, *args)
        return result[0] if isinstance(result, tuple | list) else result

    for axis in (3, 2, 1, 0):
        places = [0 if axis == other else None for other in range(4)]
        scalar = torch.vmap(scalar, in_dims=(*[0] * scores, *places, *[None] * len(others)))
    return scalar
