"""Adds checks for operators that may raise, but whose results the graph does not use in full.

An operator such as an index lookup raises for some elements of its operands, such as an index out of range. Eager
raises even if the result is unused, so the compiled graph has to check all of these elements too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import getitem_key, node_at
from ..torch_compat import present
from .calls import call, device_of

aten = torch.ops.aten

# ATen operators that check their elements before they compute: indices, classes, probabilities.
_LOOK = frozenset(present(aten, *"""
    _ctc_loss _embedding_bag _linalg_eigh _linalg_svd bernoulli bincount binary_cross_entropy embedding embedding_bag
    gather histc index index_add index_copy index_fill index_put index_reduce index_select linalg_eig linalg_eigvals
    linalg_lstsq lu_unpack masked_scatter max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss_forward
    multinomial nll_loss_forward nll_loss2d_forward normal one_hot poisson put scatter scatter_add scatter_reduce
    segment_reduce take
""".split()))  # fmt: skip
_DIVIDE = frozenset((aten.div, aten.floor_divide, aten.fmod, aten.remainder))  # raise for integers divided by 0
# For these and for divisions, loops compute only the elements that are read; the other operators are ATen calls.
_IN_LOOPS = frozenset((aten.embedding, aten.gather, aten.index, aten.index_select))
# Lookups of whole rows; the indices apply to some dimensions of the first operand only.
_ROWS = frozenset((aten.embedding, aten.index, aten.index_select))

# How operators read a tensor if they do not always read every element. These, and all operators tagged as pointwise,
# read each element if each element of their own result is read.
_SHOW_ALL = frozenset(present(aten, *"""
    _batch_norm_no_update _native_batch_norm_legit_no_training _reshape_alias _to_copy _unsafe_view addmm alias
    bucketize cat clone complex constant_pad_nd contiguous detach expand flip floor_divide hardswish leaky_relu lift
    lift_fresh lift_fresh_copy native_batch_norm permute polar repeat reshape roll rsub searchsorted special_ndtr
    squeeze stack t transpose true_divide unsqueeze upsample_nearest2d_backward view
    view_as_complex view_as_complex_copy view_as_real view_as_real_copy
""".split()))  # fmt: skip
_SHOW_PART = frozenset(present(aten, *"""
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d adaptive_max_pool2d
    adaptive_max_pool2d_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward col2im im2col
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d
    reflection_pad3d_backward replication_pad1d replication_pad2d replication_pad3d tril triu unfold_backward
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d
""".split()))  # fmt: skip
_SHOW_NONE = frozenset(present(aten, *"""
    _assert_tensor_metadata empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like
    rand_like randint_like randn_like zeros_like
""".split()))  # fmt: skip
# These read only a part of their first tensor operand, or only its size; the other operands are read as a whole.
_FIRST_IN_PART = frozenset((aten._unsafe_index, aten.copy, aten.embedding, aten.fill, aten.gather, aten.index,
                            aten.index_select, aten.select_scatter, aten.slice_scatter))  # fmt: skip
_CHOOSE = {aten.where: 0, aten.masked_fill: 1}  # the position of the condition
_SPLIT = frozenset((aten.chunk, aten.split, aten.split_with_sizes, aten.unbind))
_MAX_NESTED = 20  # depth to which parts of parts are followed


def check_unused(graph: fx.Graph, results: Iterable[fx.Node], end: fx.Node) -> None:
    """Add checks to an ATen graph before node `end`, for operators that may raise and whose value `results` and nodes
    with effects do not need in full. The added check is true for any elements; its only purpose is that they are
    computed.

    Only on the CPU: on a GPU a check would cost a kernel, and eager raises nothing there that a program could handle.
    """
    raising = []
    for node in graph.nodes:
        if node is end:
            break
        if node.op == "call_function" and _may_raise(node):
            raising.append(node)
    if not raising:
        return
    uses = _Uses(graph, results)
    for node in raising:
        if node not in uses.live or _packet(node) in _IN_LOOPS | _DIVIDE and not uses.whole(node):
            with graph.inserting_before(end):
                _check(graph, node)


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _may_raise(node: fx.Node) -> bool:
    packet, device = _packet(node), device_of(node)
    if device is None or device.type != "cpu":
        return False
    if packet in _DIVIDE:
        val, divisor = node.meta["val"], node.args[1]
        whole = not (val.is_floating_point() or val.is_complex())
        return whole and (isinstance(divisor, fx.Node) or isinstance(divisor, int) and divisor == 0)
    if packet in (aten.index, aten.index_put):
        return any(not _is_mask(i) for i in _given_indices(node))
    return packet in _LOOK


def _given_indices(node: fx.Node) -> Iterator[fx.Node]:
    indices = node.args[1]
    assert isinstance(indices, list | tuple)
    return (i for i in indices if isinstance(i, fx.Node))


def _is_mask(index: fx.Node) -> bool:
    """Whether an index is a mask; a mask raises only for its size."""
    return index.meta["val"].dtype in (torch.bool, torch.uint8)


class _Uses:
    """How the values of a graph are used."""

    def __init__(self, graph: fx.Graph, results: Iterable[fx.Node]) -> None:
        self.results = frozenset(results)
        self.live = set(self.results)  # nodes that results and effects are computed from
        for node in reversed(graph.nodes):
            if node.op not in ("output", "placeholder") and (node in self.live or node.is_impure()):
                self.live.add(node)
                self.live.update(node.all_input_nodes)

    def whole(self, node: fx.Node, nested: int = 0) -> bool:
        """Whether every element of a tensor is computed because it is used; False if that is not known."""
        seen, todo = {node}, [node]
        while todo:
            source = todo.pop()
            if source in self.results or self._parts_cover(source, nested):
                return True
            for user in source.users:
                if user in seen or user not in self.live or user.op == "output":
                    continue
                reads = _reads(user, source)
                if reads == "wholly":
                    return True
                if reads == "as used":
                    seen.add(user)
                    todo.append(user)
        return False

    def _parts_cover(self, source: fx.Node, nested: int) -> bool:
        """Whether parts of a tensor that are each used as a whole cover the tensor."""
        parts: dict[int, list[tuple[int, int]]] = {}
        for dim, start, stop, part in _parts(source) if nested < _MAX_NESTED else ():
            if part in self.live and self.whole(part, nested + 1):
                parts.setdefault(dim, []).append((start, stop))
        return any(_cover(spans, source.meta["val"].shape[dim]) for dim, spans in parts.items())


def _reads(user: fx.Node, source: fx.Node) -> str:
    """Which elements of `source` are read by `user`: "wholly": all; "as used": all if all of its result are used;
    "partly": otherwise."""
    packet, val = _packet(user), user.meta.get("val")
    if packet in _SHOW_NONE or packet in _SHOW_PART or _packet_is_cropping(user):
        return "partly"
    if packet in _FIRST_IN_PART and user.args[0] is source and source not in _other_operands(user):
        return "partly"
    if isinstance(val, torch.Tensor) and isinstance(val.numel(), int) and not val.numel():
        return "partly"
    if packet in _CHOOSE:
        return "partly" if _is_known(node_at(user, _CHOOSE[packet])) else "as used"
    if packet in _SHOW_ALL or packet in _FIRST_IN_PART:
        return "as used"
    if isinstance(user.target, torch._ops.OpOverload):
        if torch.Tag.pointwise in user.target.tags:
            return "as used"
        if any(each.alias_info is not None and not each.alias_info.is_write for each in user.target._schema.returns):
            return "partly"  # other views
    elif user.target is operator.getitem:
        return "partly" if getitem_key(user) else "as used"  # others are batch statistics
    return "wholly"


def _packet_is_cropping(node: fx.Node) -> bool:
    """Whether a node is a padding with negative amounts, which crops."""
    return _packet(node) is aten.constant_pad_nd and any(
        not isinstance(n, int) or n < 0 for n in node.args[1]  # type: ignore[union-attr]
    )


def _other_operands(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    fx.map_arg((node.args[1:], node.kwargs), found.add)
    return found


def _is_known(condition: fx.Node) -> bool:
    """Whether a condition depends on positions alone, so that loops are split where it changes."""
    seen, todo = {condition}, [condition]
    while todo:
        node = todo.pop()
        if node.op != "call_function":
            return False
        todo += (fresh := [x for x in node.all_input_nodes if x not in seen])
        seen.update(fresh)
    return True


def _parts(source: fx.Node) -> Iterator[tuple[int, int, int, fx.Node]]:
    """Slices of a tensor that nodes take: (dimension, start, end, node); only where these are plain integers."""
    val = source.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return
    for user in source.users:
        packet = _packet(user)
        if user.kwargs:
            continue
        dim = user.args[2] if packet in _SPLIT - {aten.unbind} and len(user.args) > 2 else 0  # noqa: PLR2004
        if packet in (aten.slice, aten.select, aten.unbind) and len(user.args) > 1:
            dim = user.args[1]
        size = val.shape[dim] if isinstance(dim, int) and val.dim() else None
        if not isinstance(dim, int) or not isinstance(size, int):
            continue
        dim %= val.dim()
        if packet in _SPLIT:
            yield from _split_parts(user, dim)
        elif packet is aten.slice:
            span = slice(*(*user.args[2:], None, None)[:3])  # start, end, step
            if all(n is None or isinstance(n, int) for n in (span.start, span.stop, span.step)):
                start, stop, step = span.indices(size)
                yield from [(dim, start, stop, user)] if step == 1 else ()
        elif packet is aten.select and isinstance(position := user.args[2], int):
            yield dim, position % size, position % size + 1, user


def _split_parts(node: fx.Node, dim: int) -> Iterator[tuple[int, int, int, fx.Node]]:
    ends = [0]
    for val in node.meta["val"]:
        size = 1 if _packet(node) is aten.unbind else val.shape[dim]
        if not isinstance(size, int):
            return
        ends.append(ends[-1] + size)
    for user in node.users:
        if user.target is operator.getitem:
            yield dim, ends[getitem_key(user)], ends[getitem_key(user) + 1], user


def _cover(spans: Iterable[tuple[int, int]], size: Any) -> bool:
    """Whether these ranges of positions cover all positions below `size`."""
    reached = 0
    for start, stop in sorted(spans):
        if start > reached:
            return False
        reached = max(reached, stop)
    return isinstance(size, int) and reached >= size


def _check(graph: fx.Graph, node: fx.Node) -> None:
    """Add an assertion that is true for any elements of the node's value, so that the elements are computed."""
    x = _narrow(graph, node) if _packet(node) in _ROWS else node
    val = x.meta["val"]
    if isinstance(val, tuple | list):
        x = graph.call_function(operator.getitem, (node, 0))
        x.meta = dict(node.meta) | {"val": val[0]}
    if x.meta["val"].layout != torch.strided:
        return
    same, other = (call(graph, op, x, x, like=node) for op in (aten.eq.Tensor, aten.ne.Tensor))
    either = call(graph, aten.logical_or.default, same, other, like=node)
    holds = call(graph, aten.all.default, either, like=node)
    call(graph, aten._assert_async.default, holds, like=node)


def _narrow(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """The same lookup in a smaller table, one element per row, which raises the same exceptions."""
    table, args = node_at(node), list(node.args)
    match _packet(node):
        case aten.embedding:
            given = {0}
        case aten.index:
            indices = node.args[1]
            assert isinstance(indices, list | tuple)
            if any(_is_mask(i) for i in _given_indices(node)):
                return node
            given = {d for d, i in enumerate(indices) if i is not None}
        case _:
            dim = node.args[1]
            assert isinstance(dim, int)
            given = {dim % max(1, table.meta["val"].dim())}
    for dim, size in enumerate(table.meta["val"].shape):
        if dim not in given and isinstance(size, int) and size > 1:
            table = call(graph, aten.slice.Tensor, table, dim, 0, 1, like=node)
    args[0] = table
    return node if table is node.args[0] else call(graph, node.target, *args, like=node, **node.kwargs)
