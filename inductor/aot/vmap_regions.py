"""Makes one node of each part of a graph that runs vmapped.

torch.compile captures `torch.vmap` as a node that enters a level of vmap, the nodes inside, and a node that leaves it.
Functionalization of such a graph meets vmapped tensors between its nodes, whose memory cannot be asked for. As one node
that enters and leaves the level itself, the part takes and returns ordinary tensors.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx
from torch._functorch import predispatch

_ENTER, _LEAVE = predispatch._vmap_increment_nesting, predispatch._vmap_decrement_nesting


class VmapRegion:
    """Runs the graph of a vmapped part; returns a tuple of the values that later nodes use."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.__name__ = self.__qualname__ = "vmap_region"  # torch.fx names nodes after functions
        self.__module__ = __name__

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return tuple(self.gm(*args))


def with_vmap_regions(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, or a copy in which each outermost vmapped part is one node."""
    if not any(node.target is _ENTER for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inside: list[fx.Node] = []
    depth = 0
    for node in gm.graph.nodes:
        depth += node.target is _ENTER
        if depth:
            inside.append(node)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        depth -= node.target is _LEAVE
        if inside and not depth:
            _add_region(gm, graph, inside, copies)
            inside = []
    found = fx.GraphModule(gm, graph)
    found.meta = gm.meta
    return found


def _add_region(gm: fx.GraphModule, graph: fx.Graph, inside: list[fx.Node], copies: dict[fx.Node, fx.Node]) -> None:
    """Add the nodes `inside` to `graph` as one call, and their results to `copies`."""
    members = set(inside)
    given = list(dict.fromkeys(arg for node in inside for arg in node.all_input_nodes if arg not in members))
    taken = [node for node in inside if any(user not in members for user in node.users)]
    region = fx.Graph()
    own: dict[fx.Node, fx.Node] = {}
    for node in given:
        own[node] = region.placeholder(node.name)
        own[node].meta = dict(node.meta)
    for node in inside:
        own[node] = region.node_copy(node, own.__getitem__)
    region.output(tuple(own[node] for node in taken))
    call = graph.call_function(VmapRegion(fx.GraphModule(gm, region)), tuple(copies[node] for node in given))
    call.meta["stack_trace"] = inside[0].meta.get("stack_trace")
    for index, node in enumerate(taken):
        copies[node] = graph.call_function(operator.getitem, (call, index))
        copies[node].meta = dict(node.meta)
