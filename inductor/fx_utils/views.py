"""Names the ATen operators that make views, for passes that look through views to a tensor's other users or to the node
that computes it.

`aot/memory.py` finds views by operator schema, to know what shares memory; `lower/views.py` lowers them.
"""

from __future__ import annotations

from torch import fx

RESHAPES = frozenset("view _unsafe_view reshape _reshape_alias".split())  # keep the row-major order of elements
PERMUTATIONS = frozenset("permute transpose t".split())
OF_ALL_ELEMENTS = RESHAPES | PERMUTATIONS | frozenset("unsqueeze squeeze expand".split())
ANY_VIEW = OF_ALL_ELEMENTS | frozenset("slice select".split())


def operator_name(node: fx.Node) -> str:
    """The name of a node's ATen operator without its overload, such as "add"; "" if it calls something else."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.removeprefix("aten::")
