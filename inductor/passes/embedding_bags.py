"""Embedding bags of one known length become loops on a GPU: rows of the table are read where they are summed.

`F.embedding_bag` of a matrix of indices calls ATen with the flattened indices and with offsets that it makes of the
length of a row. Sums and means, their gradients for the table and for the weights of single indices are rewritten; bags
of other lengths, maxima and gradients scaled by frequency are calls of ATen.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from torch import fx

from ..aot.calls import call, device_of
from ..fx_utils.dead_code import remove_unused
from .common import aten

DEVICES = ("cuda",)
_SUM, _MEAN = 0, 1
_FORWARD = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)


def bags_of_one_length(gm: fx.GraphModule) -> bool:
    """Replaces embedding bags of one length. Returns whether there were any. Nodes carry fake tensors."""
    changed = False
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target not in _REWRITES:
            continue
        given = _arguments(node)
        with gm.graph.inserting_before(node):
            bags = _bags(node, given)
            if bags is None:
                continue
            made = _REWRITES[node.target](node, given, bags)
        results = [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]
        for old in results if node.target in _FORWARD else [node]:
            old.replace_all_uses_with(made)
        changed = True
    if changed:
        remove_unused(gm.graph)
        gm.recompile()
    return changed


class _Bags(NamedTuple):
    """The arguments that the operators on bags share. `indices`: (bags, length)."""

    indices: fx.Node
    weights: fx.Node | None
    mode: int
    padding: int


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments by name; those that are not given have their defaults."""
    declared = node.target._schema.arguments  # type: ignore[union-attr]
    given = {a.name: a.default_value for a in declared if a.has_default_value()}
    return {**given, **dict(zip((a.name for a in declared), node.args)), **node.kwargs}


def _bags(node: fx.Node, given: dict[str, Any]) -> _Bags | None:
    """The bags of an operator, with the nodes that give the indices their shape; None if it is not rewritten."""
    offsets, flat, padding = given["offsets"], given["indices"], given["padding_idx"]
    device, shape = device_of(flat), flat.meta["val"].shape
    if device is None or device.type not in DEVICES or offsets.target is not aten.arange.start_step:
        return None
    if given.get("scale_grad_by_freq") or given.get("sparse") or given.get("include_last_offset"):
        return None
    start, end, step = (*offsets.args, 1)[:3]
    if not all(type(n) is int for n in (start, end, step, *shape)) or start or not end or shape != (end,):
        return None
    if not step or end % step or given["mode"] not in (_SUM, _MEAN) or (given["mode"] == _MEAN and padding >= 0):
        return None
    size, graph = [end // step, step], node.graph
    weights = given.get("per_sample_weights")
    if weights is not None:
        weights = call(graph, aten.unsqueeze.default, call(graph, aten.view.default, weights, size, like=node), -1)
    return _Bags(call(graph, aten.view.default, flat, size, like=node), weights, given["mode"], padding)


def _without_padding(node: fx.Node, bags: _Bags, values: fx.Node) -> fx.Node:
    """`values`, with zeros for the indices that are padding. `values`: (bags, length, ...)."""
    if bags.padding < 0:
        return values
    graph = node.graph
    kept = call(graph, aten.ne.Scalar, bags.indices, bags.padding, like=node)
    if values.meta["val"].dim() > kept.meta["val"].dim():
        kept = call(graph, aten.unsqueeze.default, kept, -1, like=node)
    return call(graph, aten.where.ScalarOther, kept, values, 0.0, like=node)


def _forward(node: fx.Node, given: dict[str, Any], bags: _Bags) -> fx.Node:
    graph = node.graph
    rows = call(graph, aten.embedding.default, given["weight"], bags.indices, like=node)
    if bags.weights is not None:
        rows = call(graph, aten.mul.Tensor, rows, bags.weights, like=node)
    rows = _without_padding(node, bags, rows)
    combine = aten.mean.dim if bags.mode == _MEAN else aten.sum.dim_IntList
    return call(graph, combine, rows, [1], like=node)


def _table_gradient(node: fx.Node, given: dict[str, Any], bags: _Bags) -> fx.Node:
    graph, grad = node.graph, given["grad"]
    rows, length = bags.indices.meta["val"].shape
    if bags.mode == _MEAN:
        grad = call(graph, aten.div.Tensor, grad, length, like=node)
    size = [rows, length, grad.meta["val"].shape[-1]]
    spread = call(graph, aten.expand.default, call(graph, aten.unsqueeze.default, grad, 1, like=node), size, like=node)
    if bags.weights is not None:
        spread = call(graph, aten.mul.Tensor, spread, bags.weights, like=node)
    padding, count = bags.padding, given["num_weights"]
    return call(graph, aten.embedding_dense_backward.default, spread, bags.indices, count, padding, False, like=node)


def _weights_gradient(node: fx.Node, given: dict[str, Any], bags: _Bags) -> fx.Node:
    graph = node.graph
    rows = call(graph, aten.embedding.default, given["weight"], bags.indices, like=node)
    grad = call(graph, aten.unsqueeze.default, given["grad"], 1, like=node)
    products = call(graph, aten.mul.Tensor, rows, grad, like=node)
    sums = _without_padding(node, bags, call(graph, aten.sum.dim_IntList, products, [-1], like=node))
    return call(graph, aten.view.default, sums, [-1], like=node)


_REWRITES = {
    **dict.fromkeys(_FORWARD, _forward),
    aten._embedding_bag_backward.default: _table_gradient,
    aten._embedding_bag_per_sample_weights_backward.default: _weights_gradient,
}
