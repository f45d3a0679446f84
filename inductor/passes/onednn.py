"""Matrix products on the CPU as calls of oneDNN, with the bias and the activation that follow in the same call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..fx_utils.views import RESHAPES, operator_name
from ..lower.products import is_row_product
from ..process.processor import mkl_lacks_avx512
from .common import aten, in_onednn

LEAST_ROWS = 4  # MKL multiplies fewer rows as fast, since that only takes the time to read the matrix
LEAST_WORK = 1 << 20  # multiplications from which on the call's own time (10 us) does not matter


class Activation(NamedTuple):
    """An activation as oneDNN's operators in torch take it: its name, numbers and algorithm."""

    name: str = "none"
    scalars: tuple[float, ...] = ()
    algorithm: str = ""


def products_of_onednn(gm: fx.GraphModule, constant: Collection[fx.Node] = ()) -> None:
    """Rewrites `mm` and `addmm` as calls of oneDNN, and fuses activations into them: in float32 on processors where
    that is faster than MKL, and in bfloat16, where ATen calls oneDNN too but copies the bias into the result before. A
    right matrix in `constant` will be laid out for oneDNN."""
    found = False
    for target in (aten.mm.default, aten.addmm.default):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            found |= _as_linear(gm.graph, node, constant)
    if found:
        fuse_activations(gm.graph, torch.ops.mkldnn._linear_pointwise.default)


def _as_linear(graph: fx.Graph, node: fx.Node, constant: Collection[fx.Node]) -> bool:
    """Rewrites a product, if it is large enough. Returns whether it did."""
    bias = node_at(node) if node.target is aten.addmm.default else None
    left, right = (node_at(node, k) for k in ((1, 2) if bias is not None else (0, 1)))
    if node.kwargs or is_row_product(left.meta["val"], right.meta["val"]):
        return False
    if not _pays(left.meta["val"], right.meta["val"], right in constant):
        return False
    with graph.inserting_before(node):
        weight = call(graph, aten.permute.default, right, [1, 0], like=node)
        taken = bias if bias is not None and _is_row(bias.meta["val"], right.meta["val"]) else None
        result = call(graph, torch.ops.mkldnn._linear_pointwise.default, left, weight, taken, "none", [], "", like=node)
        if bias is not taken:
            result = call(graph, aten.add.Tensor, result, bias, like=node)
        node.replace_all_uses_with(result)
    graph.erase_node(node)
    return True


def _pays(left: torch.Tensor, right: torch.Tensor, constant: bool) -> bool:
    if not in_onednn(left) or left.dtype != right.dtype:
        return False
    if left.dtype == torch.float32 and not mkl_lacks_avx512():
        return False
    (rows, terms), columns = map(hint, left.shape), hint(right.shape[1])
    least = LEAST_ROWS if not constant else 2 if left.dtype == torch.float32 else 1
    return rows >= least and rows * terms * columns >= (LEAST_WORK if rows > 1 else LEAST_WORK >> 1)


def hint(size: Any) -> int:
    """The size, or the one that a symbol stands for in this compilation; asking for it assumes nothing."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size


def _is_row(bias: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether a bias has one number for each column, and not one for all."""
    return bias.dim() == 1 and hint(bias.shape[0]) == hint(right.shape[1])


# ---- activations


def fuse_activations(graph: fx.Graph, target: Any) -> None:
    """Moves activations into the calls of oneDNN's operator `target` that compute their only operand. Reshapes between
    the two are allowed, since an activation of a view is a view of the activation."""
    for node in list(graph.nodes):
        activation = activation_of(node)
        if activation is None:
            continue
        producer = node_at(node)
        while operator_name(producer) in RESHAPES and len(producer.users) == 1 and producer.op == "call_function":
            producer = node_at(producer)
        if producer.target is not target or len(producer.users) != 1 or producer.args[-3] != "none":
            continue
        producer.args = (*producer.args[:-3], activation.name, list(activation.scalars), activation.algorithm)
        node.replace_all_uses_with(node_at(node))
        graph.erase_node(node)


_PLAIN = {
    aten.relu.default: Activation("relu"), aten.sigmoid.default: Activation("sigmoid"),
    aten.tanh.default: Activation("tanh"), aten.silu.default: Activation("swish"),
    aten.hardswish.default: Activation("hardswish"), aten.hardsigmoid.default: Activation("hardsigmoid"),
}  # fmt: skip


def activation_of(node: fx.Node) -> Activation | None:
    """The activation that a node computes; None for other nodes, and for activations that oneDNN does not compute."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.target in _PLAIN:
        return _PLAIN[node.target]
    if node.target is aten.gelu.default:
        return Activation("gelu", (), str(node.kwargs.get("approximate", "none")))
    numbers: tuple[Any, ...] = tuple(node.args[1:])
    if node.target is aten.hardtanh.default and not node.kwargs:
        low, high = (*numbers, -1.0, 1.0)[:2] if not numbers else (*numbers, 1.0)[:2]
        return Activation("hardtanh", (float(low), float(high))) if _all_numbers(low, high) else None
    if node.target is aten.leaky_relu.default and not node.kwargs:
        slope = numbers[0] if numbers else 0.01
        return Activation("leaky_relu", (float(slope),)) if _all_numbers(slope) else None
    return None


def _all_numbers(*values: Any) -> bool:
    return all(type(value) in (int, float) for value in values)
