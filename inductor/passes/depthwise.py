"""Permutes the weights of depthwise convolutions on a GPU to have channels innermost, so that the generated loops read
adjacent memory for neighbouring channels.

The pass applies to convolutions that `lower/convolution.py` lowers to loops and whose weights are graph inputs. One
kernel permutes the weights of many convolutions into one tensor, and each convolution uses a view of its part.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from ..aot.calls import call
from ..lower.convolution import loops_pay
from ..lower.views import MAX_SMALL_PARTS
from .common import Convolution, aten


def filters_by_tap(gm: fx.GraphModule) -> None:
    """Permutes filters that are graph inputs, all in one kernel, so that neighbouring channels read adjacent memory."""
    nodes = [n for n in gm.graph.find_nodes(op="call_function", target=aten.convolution.default) if _fits(n)]
    for start in range(0, len(nodes), MAX_SMALL_PARTS):
        _pack(gm.graph, nodes[start : start + MAX_SMALL_PARTS])


def _fits(node: fx.Node) -> bool:
    given = Convolution.of(node)
    val = given.filters
    turned = given.weight.op == "placeholder" and val.is_contiguous() and val.shape[2:].numel() > 1
    return turned and loops_pay(node.meta["val"], tuple(val.shape), given.groups)


def _pack(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    with graph.inserting_before(nodes[0]):
        flat = []
        for node in nodes:
            turned = call(graph, aten.permute.default, node.args[1], [2, 3, 0, 1], like=node)
            flat.append(call(graph, aten.reshape.default, turned, [-1], like=node))
        packed = call(graph, aten.cat.default, flat) if len(flat) > 1 else flat[0]
        at = 0
        for node in nodes:
            weight = Convolution.of(node).filters
            filters, one, *taps = weight.shape
            end = at + weight.numel()
            part = call(graph, aten.slice.Tensor, packed, 0, at, end, like=node)
            part = call(graph, aten.view.default, part, [*taps, filters, one], like=node)
            part = call(graph, aten.permute.default, part, [2, 3, 0, 1], like=node)
            node.args = (node.args[0], part, *node.args[2:])
            at = end
