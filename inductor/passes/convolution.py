"""Splits the bias off convolutions, so that its addition is fused with the operators that follow."""

from __future__ import annotations

from torch import fx

from ..aot.calls import call
from .common import Convolution, aten


def without_bias(gm: fx.GraphModule) -> None:
    """Rewrites biases of 2-d convolutions as additions. cudnn would add them in a separate pass over the result."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        x, weight, bias, *rest = Convolution.of(node)
        if bias is None or x.meta["val"].dim() != 4:
            continue
        with gm.graph.inserting_before(node):
            plain = call(gm.graph, aten.convolution.default, x, weight, None, *rest, like=node)
            column = call(gm.graph, aten.view.default, bias, [-1, 1, 1], like=node)
            node.replace_all_uses_with(call(gm.graph, aten.add.Tensor, plain, column, like=node))
        gm.graph.erase_node(node)
