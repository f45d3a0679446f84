"""Removes nodes that nothing uses.

torch's `Graph.eliminate_dead_code` asks of each node whether it has side effects before it looks whether anything uses
the node, and checks the whole graph first, which takes most of its time.
"""

from __future__ import annotations

from torch import fx


def remove_unused(graph: fx.Graph) -> None:
    """Remove the nodes without users and side effects, and then those that only these used, from a graph that is in
    topological order, and from the graphs that it calls."""
    for node in reversed(graph.nodes):
        if not node.users and not node.is_impure():
            graph.erase_node(node)
    owner = graph.owning_module
    names = {node.target for node in graph.find_nodes(op="get_attr")} if owner is not None else set()
    for name in names:
        part = getattr(owner, name, None) if isinstance(name, str) and "." not in name else None
        if isinstance(part, fx.GraphModule):
            remove_unused(part.graph)
            part.recompile()
