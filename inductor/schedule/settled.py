"""Finds the buffers whose contents no kernel of a graph changes, such as weights. Kernels may read these while the
kernel ahead of them still runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.buffer import Buffer, ExternKernel
from ..ir.nodes import GraphIR
from .node import Group
from .scheduler import accesses


def mark_settled(steps: Sequence[Group | ExternKernel], graph: GraphIR) -> None:
    """Sets `settled` of each group: the inputs and constants that it reads and that no step writes."""
    given = {b.name for b in (*graph.inputs, *graph.constants) if isinstance(b, Buffer)}
    given -= set[str]().union(*(accesses(step)[1] for step in steps))
    for step in steps:
        if isinstance(step, Group) and step.device.type == "cuda":
            step.settled = frozenset(given & step.read_names())
