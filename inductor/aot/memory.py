"""Finds which nodes of an ATen graph share memory, and gives each output of a traced joint graph memory of its own.

`viewed` and `roots` follow views by operator schemas; the partitioner and others use them. `separate_memory` runs once,
after the joint trace: it drops `detach` and `alias`, makes the tangents inputs, and copies outputs that share memory
with an input or another output. `overlap.py` compares tensors instead of nodes, `plain_memory.py` is about what the
bytes of a tensor mean, and `runtime/arena.py` plans memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from ..fx_utils.arguments import joint_results, node_at, output_of
from ..fx_utils.dead_code import remove_unused
from .calls import call
from .functionalize import NotFunctional
from .results import InputState, dense

aten = torch.ops.aten
# autograd's bookkeeping operators: equal to their argument in a graph without writes
_SAME = (aten.detach.default, aten.alias.default)


def is_random(op: Any) -> bool:
    """Whether an operator draws random numbers from a generator."""
    return isinstance(op, torch._ops.OpOverload) and _facts(op)[1]


def viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument whose memory the result (or each result) shares; None if it has memory of its own."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem or node.target is aten._unsafe_view.default:
        source = node_at(node)
        return source if node.target is not operator.getitem or viewed(source) is not None else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    places = _facts(node.target)[2]
    if places:
        for place, given in enumerate(node.args):
            if place in places and isinstance(given, torch.fx.Node):
                return given
    return None


# By id: an operator, whether it is random, and `_viewed_arguments`. The hash of an operator takes a call in Python.
_FACTS: dict[int, tuple[torch._ops.OpOverload, bool, tuple[int, ...]]] = {}


def _facts(op: torch._ops.OpOverload) -> tuple[torch._ops.OpOverload, bool, tuple[int, ...]]:
    found = _FACTS.get(id(op))
    if found is None:
        random = torch.Tag.nondeterministic_seeded in op.tags
        found = _FACTS[id(op)] = op, random, _viewed_arguments(op)
    return found


def _viewed_arguments(op: torch._ops.OpOverload) -> tuple[int, ...]:
    """The positions of the arguments whose memory the result of an operator may share, without being written."""
    infos = enumerate(argument.alias_info for argument in op._schema.arguments)
    return tuple(place for place, alias in infos if alias is not None and not alias.is_write)


def roots(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """For each node, the node that owns the memory of its value."""
    found: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        source = viewed(node)
        found[node] = node if source is None else found[source]
    return found


def separate_memory(gm: torch.fx.GraphModule, states: Sequence[InputState], writes: Sequence[int]) -> None:
    """Turn the fourth list of outputs, the tangents, into inputs. Give returned tensors memory of their own with the
    layout in `states`, and keep written values separate from the inputs that are written. Set `meta["backward"]` to
    whether autograd's backward created the node."""
    later = False
    tangents = joint_results(gm.graph).tangents
    for node in list(gm.graph.nodes):
        later = later or node in tangents
        node.meta["backward"] = later
        if node.op == "call_function" and node.target in _SAME:
            node.replace_all_uses_with(node_at(node))
            gm.graph.erase_node(node)
    _to_inputs(gm.graph, joint_results(gm.graph).tangents)
    returned, written, gradients, _ = joint_results(gm.graph)
    root = roots(gm.graph)
    inputs = gm.graph.find_nodes(op="placeholder")
    clobbered = {inputs[i] for i in writes}
    written = [
        _copied(x, InputState.of(x.meta["val"])) if root[x] in clobbered and x is not inputs[i] else x
        for i, x in zip(writes, written)
    ]
    taken: set[torch.fx.Node] = set()
    fresh = []
    for node, state in zip(returned, states):
        foreign = root[node].op != "call_function" or root[node] in taken
        taken.add(root[node])
        fresh.append(_copied(node, state) if foreign or not _has_strides(node.meta["val"], state.stride) else node)
    output_of(gm.graph).args = ([fresh, written, gradients],)
    remove_unused(gm.graph)
    gm.recompile()


def _to_inputs(graph: torch.fx.Graph, nodes: Sequence[torch.fx.Node]) -> None:
    last = graph.find_nodes(op="placeholder")[-1]
    for k, node in enumerate(nodes):
        with graph.inserting_after(last):
            last = graph.placeholder(f"tangent_{k}")
        last.meta = dict(node.meta)
        node.replace_all_uses_with(last)
        graph.erase_node(node)


def _has_strides(x: torch.Tensor, stride: tuple[int, ...]) -> bool:
    return x.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), stride))


def _copied(node: torch.fx.Node, state: InputState) -> torch.fx.Node:
    """A copy with the strides of `state`, inserted before the graph's output."""
    if not dense(state.size, state.stride):
        raise NotFunctional("the memory layout of a result has gaps")
    order = sorted(range(len(state.stride)), key=lambda d: (-state.stride[d], d))
    back = sorted(range(len(order)), key=order.__getitem__)
    with node.graph.inserting_before(output_of(node.graph)):
        turned = call(node.graph, aten.permute.default, node, order)
        copy = call(node.graph, aten.clone.default, turned, memory_format=torch.contiguous_format)
        return call(node.graph, aten.permute.default, copy, back)


def ancestors(
    nodes: Iterable[torch.fx.Node],
    sources: Callable[[torch.fx.Node], Iterable[torch.fx.Node]] = operator.attrgetter("all_input_nodes"),
) -> set[torch.fx.Node]:
    """The nodes and everything that they are computed from; `sources` gives the inputs of a node."""
    found: set[torch.fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(sources(node))
    return found
