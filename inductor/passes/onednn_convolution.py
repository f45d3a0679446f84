"""Convolutions on the CPU as calls of oneDNN, which also add a residual and apply the activation that follows."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..lower.convolution import is_channels_last
from .common import Convolution, aten, in_onednn
from .onednn import Activation, activation_of, fuse_activations

mkldnn = torch.ops.mkldnn


def convolutions_of_onednn(gm: fx.GraphModule) -> None:
    """Rewrites convolutions in channels_last as calls of oneDNN, with what follows them in the same call."""
    found = [_as_pointwise(gm.graph, node) for node in list(gm.graph.nodes) if _fits(node)]
    if found:
        fuse_activations(gm.graph, mkldnn._convolution_pointwise.default)
        for node in found:
            _add_residual(gm.graph, node)


def _fits(node: fx.Node) -> bool:
    if node.target is not aten.convolution.default:
        return False
    given, val = Convolution.of(node), node.meta["val"]
    fits = not given.transposed and val.dim() == 4 and in_onednn(val) and is_channels_last(given.pixels)
    return fits and val.dtype == given.pixels.dtype == given.filters.dtype


def _as_pointwise(graph: fx.Graph, node: fx.Node) -> fx.Node:
    given = Convolution.of(node)
    with graph.inserting_before(node):
        settings = _pair(given.padding), _pair(given.stride), _pair(given.dilation), given.groups
        args: tuple[Any, ...] = (given.x, given.weight, given.bias, *settings, "none", [], "")
        result = call(graph, mkldnn._convolution_pointwise.default, *args, like=node)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
    return result


def _pair(numbers: Any) -> list[int]:
    return list(numbers) * (2 // len(numbers))


def _add_residual(graph: fx.Graph, node: fx.Node) -> None:
    """Moves an addition of a tensor of the same layout, and a relu after it, into the call that computes one of its
    operands."""
    if len(node.users) != 1 or node.args[-3] != "none":
        return
    (addition,) = node.users
    if addition.target is not aten.add.Tensor or addition.kwargs or len(addition.args) != 2:
        return
    other = next((x for x in addition.args if x is not node), None)
    if not isinstance(other, fx.Node) or not _alike(other.meta["val"], node.meta["val"]):
        return
    relu = _only_relu(addition)
    last = relu if relu is not None else addition
    with graph.inserting_before(addition):
        x, rest = node.args[0], node.args[1:-3]
        how: tuple[Any, ...] = ("add", 1.0, None if relu is None else "relu", [], None)
        fused = graph.call_function(mkldnn._convolution_pointwise.binary, (x, other, *rest, *how))
        fused.meta = dict(node.meta)  # torch has no fake implementation of this overload
    last.replace_all_uses_with(fused)
    for done in dict.fromkeys((last, addition, node)):
        graph.erase_node(done)


def _only_relu(node: fx.Node) -> fx.Node | None:
    """The relu that alone uses a node's result."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    return user if user is not None and activation_of(user) == Activation("relu") and node_at(user) is node else None


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and is_channels_last(a) and is_channels_last(b)
