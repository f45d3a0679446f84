"""Fuses an activation into the preceding `addmm`, whose library kernel applies it before writing the result."""

from __future__ import annotations

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..fx_utils.views import PERMUTATIONS, RESHAPES, operator_name
from .common import aten

DEVICES = ("cuda",)  # device types whose libraries fuse activations
HALF = (torch.float16, torch.bfloat16)


def activated_products(gm: fx.GraphModule) -> bool:
    """Fuses `relu` and tanh-approximated `gelu` of an `addmm` with a bias vector on a GPU. Returns whether any was.

    Views between the two are allowed, since an activation of a view is a view of the activation.
    """
    found = False
    for node in [n for n in gm.graph.nodes if _activation(n) is not None]:
        product = node_at(node)
        while _is_view(product) and len(product.users) == 1:
            product = node_at(product)
        if not _fits(product):
            continue
        with gm.graph.inserting_before(product):
            gelu = _activation(node)
            fused = call(gm.graph, aten._addmm_activation.default, *product.args, use_gelu=gelu, like=product)
        product.replace_all_uses_with(fused)
        node.replace_all_uses_with(node_at(node))
        found = True
    return found


def _is_view(node: fx.Node) -> bool:
    return operator_name(node) in RESHAPES | PERMUTATIONS and node.target is not aten.view.dtype


def _activation(node: fx.Node) -> bool | None:
    """True for a gelu that can be fused, False for a relu, None for other nodes.

    A gelu in float32 or float64 is not fused: the library approximates tanh to about 1e-5, which is only below the
    rounding error in half precision.
    """
    if node.target is aten.relu.default:
        return False
    if node.target is aten.gelu.default and node.kwargs.get("approximate") == "tanh":
        return True if node.meta["val"].dtype in HALF else None
    return None


def _fits(product: fx.Node) -> bool:
    if product.target is not aten.addmm.default or product.kwargs or len(product.users) != 1:
        return False
    bias, rows = (node_at(product, k).meta["val"] for k in range(2))
    return bias.device.type in DEVICES and bias.dim() == 1 and bias.is_contiguous() and 0 not in rows.shape
