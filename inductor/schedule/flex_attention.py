"""Calls of flex_attention as units of a schedule, for which kernels are generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..ir.buffer import Buffer, ComputedBuffer, ExternKernel, Layout, View
from ..ir.flex_attention import FlexKernel
from .index import variable
from .node import Group, Member, Node
from .scheduler import extern_reads

# The variables of the functions: batch, head of the query, row and column of the scores.
VARIABLES = ("zb", "zh", "m", "n")


@dataclass(eq=False)
class FlexGroup(Group):
    """A forward or backward of flex_attention. Its only member is the loop nest of its functions over all scores,
    which reads and writes registers of its kernels; `stored` are the kernel's results that are used."""

    kernel: FlexKernel = None  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:
        """The device of its results."""
        return next(out.layout.device for out in self.kernel.outputs if out is not None)

    def read_names(self) -> set[str]:
        """Buffers that its kernels read."""
        return set(extern_reads(self.kernel))

    def written_names(self) -> set[str]:
        """Its results."""
        return {out.name for out in self.kernel.outputs if out is not None}

    def member_group(self) -> Group:
        """The functions alone, as the group that code generation turns into values."""
        written = {access.buf for member in self.members for access in member.node.writes}
        return Group(self.outer, [], self.members, stored=written)


def layout_of(operand: Buffer | View) -> Layout:
    """The layout of an operand, in its buffer."""
    return operand.layout


def with_flex_attention(steps: Sequence[Group | ExternKernel]) -> list[Group | ExternKernel]:
    """The schedule with groups in the place of calls of flex_attention."""
    return [_group(step) if isinstance(step, FlexKernel) else step for step in steps]


def _group(kernel: FlexKernel) -> FlexGroup:
    body = kernel.body
    source = ComputedBuffer(kernel.name, layout_of(kernel.query), body, kernel.origins)
    env = {v.name: variable(name) for v, name in zip(body.iter_vars, VARIABLES)}
    stored = {out.name for out in kernel.outputs if out is not None}
    return FlexGroup(list(body.iter_sizes), [], [Member(Node.of(source), env)], False, stored, kernel=kernel)
