"""Convolutions that are products of matrices."""

from __future__ import annotations

from torch import fx

from .common import aten, call, is_channels_last


def products_of_convolutions(gm: fx.GraphModule) -> None:
    """Convolutions of one tap, over memory with channels innermost, as `mm` or `addmm` of it as it lies."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_product(node):
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(_product(gm.graph, node))
            gm.graph.erase_node(node)


def _is_product(node: fx.Node) -> bool:
    x, weight, _, stride, padding, _, transposed, _, groups = node.args
    x, weight = x.meta["val"], weight.meta["val"]  # type: ignore[union-attr]
    if x.dim() != 4 or transposed or groups != 1 or x.dtype != weight.dtype:
        return False
    plain = all(s == 1 for s in stride) and not any(padding)  # type: ignore[union-attr, arg-type]
    return plain and weight.shape[2:].numel() == 1 and is_channels_last(x) and 0 not in x.shape


def _product(graph: fx.Graph, node: fx.Node) -> fx.Node:
    x, weight, bias = node.args[:3]
    n, _, h, w = x.meta["val"].shape  # type: ignore[union-attr]
    filters, channels = weight.meta["val"].shape[:2]  # type: ignore[union-attr]
    rows = call(graph, aten.permute.default, x, [0, 2, 3, 1], like=node)
    rows = call(graph, aten.view.default, rows, [n * h * w, channels], like=node)
    factor = call(graph, aten.view.default, weight, [filters, channels], like=node)
    factor = call(graph, aten.permute.default, factor, [1, 0], like=node)
    if bias is None:
        out = call(graph, aten.mm.default, rows, factor, like=node)
    else:
        out = call(graph, aten.addmm.default, bias, rows, factor, like=node)
    out = call(graph, aten.view.default, out, [n, h, w, filters], like=node)
    return call(graph, aten.permute.default, out, [0, 3, 1, 2], like=node)
