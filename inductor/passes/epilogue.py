"""Activations computed by the matrix product in front of them, before its result is written."""

from __future__ import annotations

from torch import fx

from ..aot.calls import call
from .common import aten

DEVICES = ("cuda",)  # whose libraries compute them
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.permute.default, aten.transpose.int)


def activated_products(gm: fx.GraphModule) -> bool:
    """`relu` and tanh-approximated `gelu` of `addmm` with a bias vector, on a GPU, as one call; whether there were any.

    Views may stand in between: an activation of a view is a view of the activation.
    """
    found = False
    for node in [n for n in gm.graph.nodes if _activation(n) is not None]:
        product = node.args[0]
        while product.target in _VIEWS and len(product.users) == 1:  # type: ignore[union-attr]
            product = product.args[0]  # type: ignore[union-attr]
        if not _fits(product):  # type: ignore[arg-type]
            continue
        with gm.graph.inserting_before(product):
            args = product.args  # type: ignore[union-attr]
            fused = call(gm.graph, aten._addmm_activation.default, *args, use_gelu=_activation(node), like=product)
        product.replace_all_uses_with(fused)  # type: ignore[union-attr]
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        found = True
    return found


def _activation(node: fx.Node) -> bool | None:
    """Whether the node is a gelu, None if it is neither that nor a relu."""
    if node.target is aten.relu.default:
        return False
    if node.target is aten.gelu.default and node.kwargs.get("approximate") == "tanh":
        return True
    return None


def _fits(product: fx.Node) -> bool:
    if product.target is not aten.addmm.default or product.kwargs or len(product.users) != 1:
        return False
    bias, rows, _ = (a.meta["val"] for a in product.args)  # type: ignore[union-attr]
    return bias.device.type in DEVICES and bias.dim() == 1 and bias.is_contiguous() and 0 not in rows.shape
