"""Rewrites 1x1 convolutions in channels_last, and their gradients, as matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import getitem_key
from ..lower.convolution import is_channels_last
from .common import Convolution, aten


def products_of_convolutions(gm: fx.GraphModule) -> None:
    """Rewrites 1x1 convolutions of channels_last tensors as `mm` or `addmm` on a view of the same memory."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _fits(Convolution.of(node)):
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(_product(gm.graph, node))
            gm.graph.erase_node(node)


def products_of_gradients(gm: fx.GraphModule) -> None:
    """Rewrites the gradients of such convolutions: one product for the input and one for the weight."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        backward = Backward.of(node)
        if not _fits(backward.convolution) or not _rows_lie_together(backward.grad):
            continue
        with gm.graph.inserting_before(node):
            gradients = _gradients(gm.graph, node, backward)
        for user in list(node.users):
            user.replace_all_uses_with(cast(fx.Node, gradients[getitem_key(user)]))
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)


class Backward(NamedTuple):
    """The arguments of `aten.convolution_backward`."""

    grad: fx.Node
    convolution: Convolution
    wanted: Sequence[bool]

    @staticmethod
    def of(node: fx.Node) -> Backward:
        """The arguments of a node that calls `aten.convolution_backward`."""
        grad, x, weight, _, *rest, wanted = cast(tuple[Any, ...], node.args)
        return Backward(grad, Convolution(x, weight, None, *rest), wanted)


def _gradients(graph: fx.Graph, node: fx.Node, backward: Backward) -> list[fx.Node | None]:
    (grad, convolution, wanted), x, weight = backward, backward.convolution.x, backward.convolution.weight
    n, channels, h, w = convolution.pixels.shape
    filters = convolution.filters.shape[0]
    rows, factor = _rows(graph, grad, node), call(graph, aten.view.default, weight, [filters, channels], like=node)
    gradients: list[fx.Node | None] = [None, None, None]
    if wanted[0]:
        out = call(graph, aten.mm.default, rows, factor, like=node)
        out = call(graph, aten.view.default, out, [n, h, w, channels], like=node)
        gradients[0] = call(graph, aten.permute.default, out, [0, 3, 1, 2], like=node)
    if wanted[1]:
        turned = call(graph, aten.permute.default, rows, [1, 0], like=node)
        out = call(graph, aten.mm.default, turned, _rows(graph, x, node), like=node)
        gradients[1] = call(graph, aten.view.default, out, [filters, channels, 1, 1], like=node)
    if wanted[2]:
        gradients[2] = call(graph, aten.sum.dim_IntList, grad, [0, 2, 3], like=node)
    return gradients


def _rows(graph: fx.Graph, x: fx.Node, like: fx.Node) -> fx.Node:
    """A view of `x` as a matrix whose rows are the channels of one pixel."""
    n, channels, h, w = x.meta["val"].shape
    rows = call(graph, aten.permute.default, x, [0, 2, 3, 1], like=like)
    return call(graph, aten.view.default, rows, [n * h * w, channels], like=like)


def _rows_lie_together(x: fx.Node) -> bool:
    return is_channels_last(x.meta["val"]) and 0 not in x.meta["val"].shape


def _fits(given: Convolution) -> bool:
    """Whether a convolution is a matrix product on views of its operands: channels_last, 1x1, stride 1, no padding and
    no groups."""
    pixels, filters = given.pixels, given.filters
    if pixels.dim() != 4 or given.transposed or given.groups != 1 or pixels.dtype != filters.dtype:
        return False
    plain = all(s == 1 for s in given.stride) and not any(given.padding)
    return plain and filters.shape[2:].numel() == 1 and _rows_lie_together(given.x)


def _product(graph: fx.Graph, node: fx.Node) -> fx.Node:
    given = Convolution.of(node)
    n, _, h, w = given.pixels.shape
    filters, channels = given.filters.shape[:2]
    rows = _rows(graph, given.x, node)
    factor = call(graph, aten.view.default, given.weight, [filters, channels], like=node)
    factor = call(graph, aten.permute.default, factor, [1, 0], like=node)
    if given.bias is None:
        out = call(graph, aten.mm.default, rows, factor, like=node)
    else:
        out = call(graph, aten.addmm.default, given.bias, rows, factor, like=node)
    out = call(graph, aten.view.default, out, [n, h, w, filters], like=node)
    return call(graph, aten.permute.default, out, [0, 3, 1, 2], like=node)
