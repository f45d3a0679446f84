"""Splits `addmm` on the CPU into `mm` and an addition that generated kernels can fuse."""

from __future__ import annotations

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..fx_utils.views import OF_ALL_ELEMENTS, operator_name
from ..lower.registry import find
from .common import aten


def biases_apart(gm: fx.GraphModule) -> None:
    """Rewrites `addmm` as `mm` and an addition if generated kernels read the result and can fuse the addition.

    This saves a pass over memory: ATen copies the bias into every row of the result before it multiplies.
    """
    for node in gm.graph.find_nodes(op="call_function", target=aten.addmm.default):
        bias, left, right = (node_at(node, k) for k in range(3))
        val = node.meta["val"]
        if node.kwargs or bias.meta["val"].dim() != 1 or val.device.type != "cpu":
            continue
        if val.dtype not in (torch.float32, torch.float64) or not _read_by_kernels(node):
            continue
        with gm.graph.inserting_before(node):
            product = call(gm.graph, aten.mm.default, left, right, like=node)
            node.replace_all_uses_with(call(gm.graph, aten.add.Tensor, product, bias, like=node))
        gm.graph.erase_node(node)


def _read_by_kernels(node: fx.Node) -> bool:
    """Whether all users of a result, looking through views, are lowered to generated kernels."""
    return bool(node.users) and all(
        _read_by_kernels(user) if operator_name(user) in OF_ALL_ELEMENTS else find(user.target) is not None
        for user in node.users
    )
