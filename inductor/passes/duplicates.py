"""Elementwise operators and views that are called again with the same arguments are computed once.

Layers of a model often compute the same thing from the same inputs: a mask from a position, sines and cosines from
angles. Each would be computed in a kernel of every layer.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ..fx_utils.dead_code import remove_unused
from ..fx_utils.views import ANY_VIEW, operator_name

aten = torch.ops.aten
_CONSTANTS = (aten.scalar_tensor.default, aten.full.default, aten.arange.start_step)


def without_duplicates(gm: fx.GraphModule) -> bool:
    """Lets users of a repeated value use the first one. Returns whether anything was changed.

    Values that are results of the graph or written to inputs, directly or through views, are kept: they are tensors of
    their own.
    """
    kept = _results(gm.graph)
    first: dict[Any, fx.Node] = {}
    changed = False
    for node in gm.graph.nodes:
        if _may_write(node):
            first.clear()
        if not _is_pure(node):
            continue
        found = first.setdefault((node.target, _frozen(node.args), _frozen(node.kwargs)), node)
        if found is not node and node not in kept:
            node.replace_all_uses_with(found)
            changed = True
    if changed:
        remove_unused(gm.graph)
        gm.recompile()
    return changed


def _may_write(node: fx.Node) -> bool:
    """Whether a node may write to memory that nodes behind it read."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    return node.op.startswith("call") and target is not operator.getitem


def _is_pure(node: fx.Node) -> bool:
    """Whether a node computes a tensor elementwise or as a view, or a constant, and does nothing else."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if target in _CONSTANTS:
        return True
    if torch.Tag.nondeterministic_seeded in target.tags or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    return torch.Tag.pointwise in target.tags or target is aten._to_copy.default or operator_name(node) in ANY_VIEW


def _results(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose memory, directly or through views, is that of a result, or is written to an input."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        ends = node.op == "output" or node.target is aten.copy_.default
        if ends or node in found and operator_name(node) in ANY_VIEW:
            found.update(node.all_input_nodes)
    return found


def _frozen(value: Any) -> Any:
    """A hashable form of arguments, different for numbers of different types and for zeros of different signs."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return type(value), repr(value)
