"""Graphs for inference whose parameters and buffers are constants: batch norms become part of the weights of the
convolution before them, weights are laid out for oneDNN, and whatever depends on constants alone is computed once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ..aot.calls import call
from ..fx_utils.arguments import getitem_key, node_at, output_of
from ..fx_utils.dead_code import remove_unused
from ..fx_utils.views import ANY_VIEW, operator_name
from ..lower.common import used_results
from ..lower.layouts import OPAQUE
from ..runtime.fold import Fold
from ..runtime.plan_spec import BufRef, Extern
from .common import Convolution, aten
from .onednn import hint

mkldnn = torch.ops.mkldnn
_NORMS = {
    aten._native_batch_norm_legit_no_training.default: 6, aten._batch_norm_no_update.default: 6,
    aten.native_batch_norm.default: 7,
}  # fmt: skip  # the position of eps
GROWTH = 2  # constants of more than this many times the size of what they are computed from are not kept


def fold_batch_norms(gm: fx.GraphModule, frozen: Sequence[fx.Node]) -> None:
    """Moves batch norms with constant statistics into the weight and the bias of the convolution before them."""
    constant = constants_of(gm.graph, frozen)
    for target in _NORMS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            _fold_norm(gm.graph, node, constant)


def _fold_norm(graph: fx.Graph, node: fx.Node, constant: set[fx.Node]) -> None:
    x, weight, bias, mean, var, *rest = node.args
    if not isinstance(x, fx.Node) or x.target is not aten.convolution.default or len(x.users) != 1:
        return
    if node.target is aten.native_batch_norm.default and rest[0]:  # of the batch itself
        return
    given = Convolution.of(x)
    parts = [p for p in (given.weight, given.bias, weight, bias, mean, var) if p is not None]
    if given.transposed or used_results(node) != {0} or not all(p in constant for p in parts):
        return
    dtype = given.filters.dtype
    wide = dtype if dtype == torch.float64 else torch.float32

    def do(target: Any, *args: Any) -> fx.Node:
        return call(graph, target, *args, like=node)

    def widened(part: Any) -> fx.Node:
        return _cast(graph, part, wide, node)

    with graph.inserting_before(x):
        scale = do(aten.rsqrt.default, do(aten.add.Tensor, widened(var), node.args[_NORMS[node.target]]))  # type: ignore[index]
        if weight is not None:
            scale = do(aten.mul.Tensor, scale, widened(weight))
        column = do(aten.view.default, scale, [-1, *[1] * (given.filters.dim() - 1)])
        filters = _cast(graph, do(aten.mul.Tensor, widened(given.weight), column), dtype, node)
        start = do(aten.neg.default, widened(mean))
        if given.bias is not None:
            start = do(aten.sub.Tensor, widened(given.bias), widened(mean))
        shift = do(aten.mul.Tensor, start, scale)
        if bias is not None:
            shift = do(aten.add.Tensor, shift, widened(bias))
        folded = do(aten.convolution.default, given.x, filters, _cast(graph, shift, dtype, node), *x.args[3:])
    for user in list(node.users):
        if user.target is operator.getitem and getitem_key(user) == 0:
            user.replace_all_uses_with(folded)
            graph.erase_node(user)
    graph.erase_node(node)
    graph.erase_node(x)


def _cast(graph: fx.Graph, x: fx.Node, dtype: torch.dtype, like: fx.Node) -> fx.Node:
    return x if x.meta["val"].dtype == dtype else call(graph, aten._to_copy.default, x, dtype=dtype, like=like)


def pack_weights(gm: fx.GraphModule, frozen: Sequence[fx.Node]) -> None:
    """Lays out the constant weights of oneDNN's products and convolutions as it reads them."""
    constant = constants_of(gm.graph, frozen)
    for target in (mkldnn._linear_pointwise.default, mkldnn._convolution_pointwise.default,
                   mkldnn._convolution_pointwise.binary):  # fmt: skip
        for node in gm.graph.find_nodes(op="call_function", target=target):
            at = 2 if target is mkldnn._convolution_pointwise.binary else 1
            weight = node_at(node, at)
            if weight in constant:
                _pack(gm.graph, node, at, weight)


def _pack(graph: fx.Graph, node: fx.Node, at: int, weight: fx.Node) -> None:
    size = [hint(n) for n in node_at(node).meta["val"].shape]
    with graph.inserting_before(node):
        if node.target is mkldnn._linear_pointwise.default:
            rows = 1
            for n in size[:-1]:
                rows *= n
            packed = graph.call_function(mkldnn._reorder_linear_weight.default, (weight, rows))
        else:
            settings = node.args[at + 2 : at + 6]
            packed = graph.call_function(mkldnn._reorder_convolution_weight.default, (weight, *settings, size))
    packed.meta = dict(weight.meta)  # torch has no fake tensors of this layout
    packed.meta[OPAQUE] = True
    node.update_arg(at, packed)


# ---- what is constant


def constants_of(graph: fx.Graph, frozen: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that depend on constant inputs, or on nothing. Those whose memory the graph may return or write do
    not count."""
    exposed = _exposed(graph)
    constant = {node for node in frozen if node not in exposed}
    for node in graph.nodes:
        if node.op == "call_function" and node not in exposed and _may_fold(node):
            if all(given in constant for given in node.all_input_nodes) and _pays(node):
                constant.add(node)
    return constant


def _exposed(graph: fx.Graph) -> set[fx.Node]:
    """The results of a graph and what it writes to, with all that may share their memory."""
    written = [node_at(node) for node in graph.find_nodes(op="call_function", target=aten.copy_.default)]
    waiting = [*output_of(graph).all_input_nodes, *written]
    found: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            schema = getattr(node.target, "_schema", None)
            shares = node.target is operator.getitem or operator_name(node) in ANY_VIEW
            if shares or schema is not None and any(r.alias_info is not None for r in schema.returns):
                waiting += node.all_input_nodes
    return found


def _may_fold(node: fx.Node) -> bool:
    """Whether ATen may compute a node ahead of the calls: a pure operator that returns a tensor on the CPU of known
    size."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "mkldnn"):
        return False
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    val = node.meta.get("val")
    known = isinstance(val, torch.Tensor) and val.device.type == "cpu" and _is_static(val)
    symbols = (x for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, torch.SymInt | torch.SymFloat))
    return known and next(symbols, None) is None


def _is_static(val: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*val.shape, *val.stride()))


def _pays(node: fx.Node) -> bool:
    """Whether the result is not much larger than what it is computed from."""
    given = [g.meta["val"].numel() for g in node.all_input_nodes]
    return not given or node.meta["val"].numel() <= GROWTH * sum(given)


# ---- the split


def split_constants(gm: fx.GraphModule, frozen: Sequence[fx.Node]) -> Fold | None:
    """Takes out of a graph what depends on the constant inputs `frozen` alone. The constants that the rest reads become
    inputs behind all others. None, and an unchanged graph, if there are none."""
    graph = gm.graph
    constant = constants_of(graph, frozen)
    needed = [n for n in graph.nodes if n in constant and n.op == "call_function" and _is_read(n, constant)]
    kept = [n for n in needed if not _is_trivial(n, set(frozen))]
    if not kept:
        return None
    ancestors = _ancestors(kept)
    inputs = list(graph.find_nodes(op="placeholder"))
    used = [n for n in frozen if n in ancestors]
    numbers = {n: k for k, n in enumerate(used)}
    steps = [_step(n, numbers) for n in graph.nodes if n in ancestors and n.op == "call_function"]
    fold = Fold(tuple(inputs.index(n) for n in used), tuple(steps), tuple(numbers[n] for n in kept))
    last = inputs[-1]
    for k, node in enumerate(kept):
        with graph.inserting_after(last):
            last = graph.placeholder(f"constant{k}")
        last.meta = {key: node.meta[key] for key in ("val", OPAQUE) if key in node.meta}
        node.replace_all_uses_with(last)
    remove_unused(graph)
    gm.recompile()
    return fold


def _is_read(node: fx.Node, constant: set[fx.Node]) -> bool:
    return any(user not in constant for user in node.users)


def _is_trivial(node: fx.Node, frozen: set[fx.Node]) -> bool:
    """Whether a node is an input, a view of one, or depends on none, so that there is nothing to save."""
    while node not in frozen and operator_name(node) in ANY_VIEW and node.all_input_nodes:
        node = node_at(node)
    return node in frozen or not any(n in frozen for n in _ancestors([node]))


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    waiting, found = list(nodes), set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _step(node: fx.Node, numbers: dict[fx.Node, int]) -> Extern:
    """The call of ATen that computes a node, which gets the next of the `numbers`."""

    def ref(value: Any) -> Any:
        return BufRef(numbers[value]) if isinstance(value, fx.Node) else value

    args, kwargs = (_plain(fx.node.map_aggregate(given, ref)) for given in (node.args, node.kwargs))
    numbers[node] = len(numbers)
    return Extern(str(node.target), args, tuple(kwargs.items()), (numbers[node],))


def _plain(value: Any) -> Any:
    """A structure of arguments in Python's own containers instead of fx's."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(v) for v in value]
        return items if isinstance(value, list) else tuple(items)
    return value
