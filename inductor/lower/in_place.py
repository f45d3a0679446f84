"""Finds the partial writes of an ATen graph that can be done in the memory of an input.

A graph that writes a part of an input (a key-value cache, a row of a table) ends, after functionalization, with
`input.copy_(value)`, where `value` is a chain of operators such as `index_put` and `slice_scatter` that starts with the
input. Where nothing needs the values of before, each of them writes to the input itself, and only what changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx

from ..fx_utils.arguments import node_at
from ..fx_utils.views import ANY_VIEW, operator_name
from .partial_writes import VIEW_OF, arguments_of_view, is_partial_write


@dataclass
class InPlace:
    """The writes to one input. `writes` are the nodes that are done in place; `versions` the nodes whose values are the
    memory of the input, or of a view of it, at some time: the input, the writes, and the views that they write. `order`
    has the positions of all nodes of the graph."""

    target: fx.Node
    order: dict[fx.Node, int]
    writes: set[fx.Node] = field(default_factory=set)
    versions: set[fx.Node] = field(default_factory=set)


def in_place_writes(graph: fx.Graph) -> dict[fx.Node, InPlace]:
    """For each node that can write to the memory of an input instead of making a new tensor: the writes to that input.

    Writes are left out if a node after them reads what the memory held before."""
    found: dict[fx.Node, InPlace] = {}
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    order = {node: k for k, node in enumerate(graph.nodes)} if copies else {}
    for copy in copies:
        target, value = copy.args[0], copy.args[1]
        if not (isinstance(target, fx.Node) and isinstance(value, fx.Node) and target.op == "placeholder"):
            continue
        writes = _chain(value, target)
        if not writes:
            continue
        plan = InPlace(target, order, set(writes), {target, *writes, *(node_at(w) for w in writes)})
        if all(_only_new_values_after(write, plan, order[copy]) for write in writes):
            found |= dict.fromkeys(writes, plan)
    return found


def _chain(value: fx.Node, start: fx.Node) -> list[fx.Node]:
    """The partial writes that make `value` from `start`, first to last, with those of written views before the write
    that puts the view back; empty if `value` is made otherwise."""
    writes: list[fx.Node] = []
    while value is not start:
        if not is_partial_write(value) or not isinstance(value.args[0], fx.Node):
            return []
        writes.append(value)
        view = _written_view(value)
        if view is not None:
            writes.extend(reversed(_chain(node_at(value, 1), view)))
        value = node_at(value)
    return writes[::-1]


def _written_view(node: fx.Node) -> fx.Node | None:
    """The view of the first argument that a `slice_scatter` or `select_scatter` puts back after partial writes to it;
    None for another source."""
    if node.target not in VIEW_OF or not isinstance(node.args[1], fx.Node):
        return None
    source = node_at(node, 1)
    view = source
    while is_partial_write(view) and isinstance(view.args[0], fx.Node):
        view = node_at(view)
    if view is source or view.target is not VIEW_OF[node.target] or view.args[0] is not node.args[0]:
        return None
    return view if arguments_of_view(view) == arguments_of_view(node) else None


def _only_new_values_after(write: fx.Node, plan: InPlace, end: int) -> bool:
    """Whether no node between `write` and the final copy (at `end`) uses a value from before, other than the writes."""
    order, at = plan.order, plan.order[write]
    older = [node for node in plan.versions if order[node] < at]
    return not any(at < order[user] < end for node in older for user in _readers(node, plan.versions))


def _readers(node: fx.Node, versions: set[fx.Node]) -> Iterator[fx.Node]:
    """The nodes that use a node or a view of it, less the writes in place."""
    stack, seen = [node], {node}
    while stack:
        for user in stack.pop().users:
            if user in seen or user in versions or user.op == "output":
                continue
            seen.add(user)
            yield user
            if operator_name(user) in ANY_VIEW:
                stack.append(user)


def earlier_readers(plan: InPlace, write: fx.Node) -> list[fx.Node]:
    """The nodes before `write` that are computed from the input by way of nodes before it, and that later nodes use, in
    order."""
    order, at = plan.order, plan.order[write]
    reached: set[fx.Node] = set()
    stack = [node for node in plan.versions if order[node] < at]
    while stack:
        for user in stack.pop().users:
            if order[user] < at and user not in reached and user not in plan.versions:
                reached.add(user)
                stack.append(user)
    return sorted((n for n in reached if any(order[user] > at for user in n.users)), key=order.__getitem__)
