"""Converts convolutions to channels_last, the memory layout that a GPU's tensor cores need, and of which oneDNN's
convolutions on the CPU read and write tensors without copies in a layout of their own.

Inputs and weights of convolutions are copied to that layout unless they already have it. The fake results of the nodes
that follow are recomputed, so that the layout propagates through every operator that preserves it. Graph outputs get
their original strides back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..aot.calls import call, value_of
from ..fx_utils.arguments import node_at
from ..fx_utils.views import RESHAPES, operator_name
from ..ir.nodes import dense_order
from ..lower.convolution import is_channels_last
from ..lower.views import view_strides
from .common import Convolution, aten, in_onednn

# Operators besides pointwise ones that accept any strides. Other operators get inputs in their original strides.
_ANY_STRIDES = frozenset(
    "hardswish floor_divide special_ndtr convolution native_batch_norm _native_batch_norm_legit_no_training "
    "_batch_norm_no_update native_group_norm native_layer_norm max_pool2d_with_indices avg_pool2d "
    "_adaptive_avg_pool2d adaptive_max_pool2d max_pool2d_with_indices_backward avg_pool2d_backward "
    "_adaptive_avg_pool2d_backward upsample_nearest2d upsample_bilinear2d "
    "upsample_bicubic2d mean sum amax amin max min var var_mean std cat stack clone _to_copy contiguous "
    "constant_pad_nd reflection_pad2d "
    "replication_pad2d permute transpose t select slice expand unsqueeze squeeze split split_with_sizes chunk unbind "
    "alias detach flip roll _softmax _log_softmax mm addmm bmm baddbmm zeros_like ones_like full_like "
    "empty_like".split()
)
_CONVOLVED = {"convolution": 2, "convolution_backward": 3}  # how many arguments are converted
_FEW = 16  # convolutions from or to fewer channels are not faster in channels_last
_HALF = (torch.float16, torch.bfloat16)


def channels_last(
    gm: fx.GraphModule, shared: Sequence[int | None] = (), force: bool = False, on_cpu: bool = False
) -> bool:
    """Converts `gm` to channels_last if that is expected to be faster, or with `force`. Returns whether it did.

    `shared` is as for `lower_graph`. Graphs with results that share memory with each other are not converted. `on_cpu`:
    convert graphs on the CPU as well.
    """
    convolutions = [n for n in gm.graph.find_nodes(op="call_function", target=aten.convolution.default) if _flat(n)]
    groups = [g for g in shared if g is not None]
    if not convolutions or len(set(groups)) < len(groups) or not (force or _pays(convolutions, on_cpu)):
        return False
    _Conversion(gm.graph).run()
    return True


def _flat(node: fx.Node) -> bool:
    return node_at(node).meta["val"].dim() == 4


def _pays(convolutions: Sequence[fx.Node], on_cpu: bool) -> bool:
    """Whether most of the arithmetic is in convolutions that have a fast kernel for this layout."""
    fast = total = 0
    for node in convolutions:
        val = node.meta["val"]
        if not (on_cpu and in_onednn(val) if val.device.type == "cpu" else _on_tensor_cores(val)):
            return False
        work, better = _work(node)
        total += work
        fast += work if better else 0
    return 2 * fast > total


def _on_tensor_cores(val: torch.Tensor) -> bool:
    if val.device.type != "cuda" or not torch.backends.cudnn.enabled:
        return False
    return val.dtype in _HALF or val.dtype == torch.float32 and torch.backends.cudnn.allow_tf32


def _work(node: fx.Node) -> tuple[int, bool]:
    """The number of multiplications of a convolution, and whether it has a fast kernel for channels_last: it must be
    dense or depthwise and have at least _FEW channels."""
    given = Convolution.of(node)
    weight, groups = given.filters, given.groups
    each, filters = weight.shape[1], weight.shape[0]
    if given.transposed:
        each, filters = filters // groups, each
    space = given.pixels if given.transposed else node.meta["val"]
    work = space.numel() // space.shape[1] * weight.numel() if space.shape[1] else 0
    if groups == 1:
        return work, min(each, filters) >= _FEW
    return work, each == 1 and groups >= _FEW


class _Conversion:
    """Converts a graph in one walk. `before` holds the original fake result of each node whose strides changed."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.before: dict[fx.Node, Any] = {}
        self.converted: dict[fx.Node, fx.Node] = {}
        self.restored: dict[fx.Node, fx.Node] = {}

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "output":
                self.graph.inserting_before(node)
                node.args = fx.map_arg(node.args, self.restore)
            elif node.op == "call_function":
                self.graph.inserting_before(node)
                self.visit(node)
        self.graph.inserting_before()

    def visit(self, node: fx.Node) -> None:
        """Replaces the arguments of a node by tensors in a layout that it accepts and updates its fake result."""
        changed = any(n in self.before for n in node.all_input_nodes)
        name = operator_name(node) or "getitem"
        if name in _CONVOLVED and _flat(node):
            given = tuple(node_at(node, k) for k in range(_CONVOLVED[name]))
            taken = tuple(map(self.convert, given))
            changed |= taken != given
            node.args = (*taken, *node.args[len(given) :])
            if node.meta.get("backward"):  # the copies replace tensors that autograd saved
                for x in set(taken) - set(given):
                    x.meta["saved"] = True
        elif not changed:
            return
        elif name in RESHAPES:
            self.make_viewable(node)
        elif not _takes_any(node.target, name):
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), self.restore)
            changed = False
        if changed:
            self.renew(node)

    def renew(self, node: fx.Node) -> None:
        """Recomputes the fake result of a node and remembers the old one if the strides changed."""
        old, new = node.meta["val"], value_of(node.target, node.args, node.kwargs)
        node.meta["val"] = new
        if _strides(old) != _strides(new):
            self.before[node] = old

    def convert(self, node: fx.Node) -> fx.Node:
        """The node's tensor in channels_last, copied if necessary."""
        val = node.meta["val"]
        if is_channels_last(val):
            return node
        if node not in self.converted:
            self.converted[node] = call(
                self.graph, aten.clone.default, node, memory_format=torch.channels_last, like=node
            )
        return self.converted[node]

    def make_viewable(self, node: fx.Node) -> None:
        """Copies the argument of a view operator if its new strides do not allow the view."""
        x = node_at(node)
        val = x.meta["val"]
        if view_strides(val.shape, val.stride(), node.meta["val"].shape) is None:
            copy = call(self.graph, aten.clone.default, x, memory_format=torch.contiguous_format, like=node)
            node.args = (copy, *node.args[1:])

    def restore(self, node: fx.Node) -> fx.Node:
        """The node's tensor in its original strides, copied if they changed."""
        if node not in self.before:
            return node
        if node not in self.restored:
            self.restored[node] = self.copy(node)
        return self.restored[node]

    def copy(self, node: fx.Node) -> fx.Node:
        old = self.before[node]
        order = dense_order(old.shape, old.stride()) if isinstance(old, torch.Tensor) else None
        if order is None:  # a non-dense view, or several results: recompute from arguments in their original strides
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.restore)
            return call(self.graph, node.target, *args, **kwargs, like=node)
        if old.is_contiguous():
            return call(self.graph, aten.clone.default, node, memory_format=torch.contiguous_format, like=node)
        turned = call(self.graph, aten.permute.default, node, order, like=node)
        turned = call(self.graph, aten.clone.default, turned, memory_format=torch.contiguous_format, like=node)
        back = [order.index(d) for d in range(len(order))]
        return call(self.graph, aten.permute.default, turned, back, like=node)


def _takes_any(target: Any, name: str) -> bool:
    pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
    return pointwise or name in _ANY_STRIDES or name == "getitem" or name == "copy_"


def _strides(val: Any) -> Any:
    """The strides that matter, for comparison: those of dimensions larger than 1 in tensors with elements."""
    if isinstance(val, tuple | list):
        return [_strides(v) for v in val]
    if not isinstance(val, torch.Tensor):
        return None
    return [s for n, s in zip(val.shape, val.stride()) if n > 1 and val.numel()]
