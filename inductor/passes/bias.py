"""Splits `addmm` into `mm` and an addition that generated kernels can fuse, where that is faster."""

from __future__ import annotations

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..lower.alignment import has_padded_rows, read_by_loops
from ..lower.products import is_row_product
from .common import aten


def biases_apart(gm: fx.GraphModule) -> None:
    """Rewrites `addmm` as `mm` and an addition if generated kernels read the result and can fuse the addition.

    On the CPU this saves a pass over memory: ATen copies the bias into every row of the result before it multiplies. On
    a GPU it is done for results whose rows will be padded, into which cuBLAS does not add a bias, and for products that
    are lowered to kernels.
    """
    for node in gm.graph.find_nodes(op="call_function", target=aten.addmm.default):
        bias, left, right = (node_at(node, k) for k in range(3))
        val = node.meta["val"]
        if node.kwargs or bias.meta["val"].dim() != 1:
            continue
        fits = _fits_cpu(node) if val.device.type == "cpu" else _fits_gpu(node, left, right)
        if not fits:
            continue
        with gm.graph.inserting_before(node):
            product = call(gm.graph, aten.mm.default, left, right, like=node)
            node.replace_all_uses_with(call(gm.graph, aten.add.Tensor, product, bias, like=node))
        gm.graph.erase_node(node)


def _fits_gpu(node: fx.Node, left: fx.Node, right: fx.Node) -> bool:
    return has_padded_rows(node, (left, right)) or is_row_product(left.meta["val"], right.meta["val"])


def _fits_cpu(node: fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.float32, torch.float64) and read_by_loops(node)
