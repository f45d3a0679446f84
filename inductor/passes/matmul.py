"""Convolutions that are products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from ..aot.calls import call
from .common import aten, is_channels_last


def products_of_convolutions(gm: fx.GraphModule) -> None:
    """Convolutions of one tap, over memory with channels innermost, as `mm` or `addmm` of it as it lies."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_product(node):
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(_product(gm.graph, node))
            gm.graph.erase_node(node)


def products_of_gradients(gm: fx.GraphModule) -> None:
    """The same for the gradients of such convolutions: a product for the input's, one for the filters'."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        grad, x, weight, _, *rest = node.args
        if not _fits(x, weight, *rest[:-1]) or not _rows_lie_together(grad):
            continue
        with gm.graph.inserting_before(node):
            made = _gradients(gm.graph, node)
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)


def _gradients(graph: fx.Graph, node: fx.Node) -> list[fx.Node | None]:
    grad, x, weight, *_, wanted = node.args
    n, channels, h, w = x.meta["val"].shape  # type: ignore[union-attr]
    filters = weight.meta["val"].shape[0]  # type: ignore[union-attr]
    rows, factor = _rows(graph, grad, node), call(graph, aten.view.default, weight, [filters, channels], like=node)
    made: list[fx.Node | None] = [None, None, None]
    if wanted[0]:  # type: ignore[index]
        out = call(graph, aten.mm.default, rows, factor, like=node)
        out = call(graph, aten.view.default, out, [n, h, w, channels], like=node)
        made[0] = call(graph, aten.permute.default, out, [0, 3, 1, 2], like=node)
    if wanted[1]:  # type: ignore[index]
        turned = call(graph, aten.permute.default, rows, [1, 0], like=node)
        out = call(graph, aten.mm.default, turned, _rows(graph, x, node), like=node)
        made[1] = call(graph, aten.view.default, out, [filters, channels, 1, 1], like=node)
    if wanted[2]:  # type: ignore[index]
        made[2] = call(graph, aten.sum.dim_IntList, grad, [0, 2, 3], like=node)
    return made


def _rows(graph: fx.Graph, x: fx.Node, like: fx.Node) -> fx.Node:
    """The channels of each pixel as a row."""
    n, channels, h, w = x.meta["val"].shape
    rows = call(graph, aten.permute.default, x, [0, 2, 3, 1], like=like)
    return call(graph, aten.view.default, rows, [n * h * w, channels], like=like)


def _is_product(node: fx.Node) -> bool:
    x, weight, _, *rest = node.args
    return _fits(x, weight, *rest)


def _rows_lie_together(x: fx.Node) -> bool:
    return is_channels_last(x.meta["val"]) and 0 not in x.meta["val"].shape


def _fits(
    x: fx.Node, weight: fx.Node, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> bool:  # fmt: skip
    """Whether a convolution with these arguments is a product of matrices as they lie in memory."""
    pixels, filters = x.meta["val"], weight.meta["val"]
    if pixels.dim() != 4 or transposed or groups != 1 or pixels.dtype != filters.dtype:
        return False
    plain = all(s == 1 for s in stride) and not any(padding)
    return plain and filters.shape[2:].numel() == 1 and _rows_lie_together(x)


def _product(graph: fx.Graph, node: fx.Node) -> fx.Node:
    x, weight, bias = node.args[:3]
    n, _, h, w = x.meta["val"].shape  # type: ignore[union-attr]
    filters, channels = weight.meta["val"].shape[:2]  # type: ignore[union-attr]
    rows = _rows(graph, x, node)  # type: ignore[arg-type]
    factor = call(graph, aten.view.default, weight, [filters, channels], like=node)
    factor = call(graph, aten.permute.default, factor, [1, 0], like=node)
    if bias is None:
        out = call(graph, aten.mm.default, rows, factor, like=node)
    else:
        out = call(graph, aten.addmm.default, bias, rows, factor, like=node)
    out = call(graph, aten.view.default, out, [n, h, w, filters], like=node)
    return call(graph, aten.permute.default, out, [0, 3, 1, 2], like=node)
