"""Rows that every program of a product with a row needs, such as a normalized hidden state: each program computes them.

In decoding one token a normalization is a kernel of one program, which takes the GPU longer to start than to run. Its
row is a few kilobytes, and each program of the product behind it reads that row anyway. Computing it there pays where
the matrix is on its way from memory meanwhile, before the kernel ahead has ended: on an H200 a token of a decoder of
1.26B parameters took 0.967 ms without this and 0.938 ms with it, but 1.038 ms if no matrix was read ahead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ir.buffer import ExternKernel
from ..ir.nodes import GraphIR
from .index import Affine
from .node import Group
from .scheduler import accesses, output_names

Step = Group | ExternKernel
LEAST_ROWS, MAX_LENGTH = 256, 1 << 14  # of the products: results, and terms of each
MAX_READERS = 3  # kernels that compute the row again
MAX_ROWS_READ, MAX_OPS = 6, 200  # of what a program does again


def with_shared_rows(steps: Sequence[Step], graph: GraphIR) -> list[Step]:
    """The schedule, with groups that compute one row as a part of the groups that read it, where these reduce that row
    with many others and nothing else needs a kernel for it."""
    found = _Steps(steps, output_names(graph))
    for at, step in enumerate(steps):
        if isinstance(step, Group) and found.steps[at] is step and _is_row(step):
            found.move(step, at)
    return [step for step in found.steps if step is not None]


def _is_row(group: Group) -> bool:
    """Whether a group on a GPU reduces one row, and is cheap to compute again."""
    if type(group) is not Group or not group.reduces or not group.fusible or group.device.type != "cuda":
        return False
    sizes = [*group.outer, *group.inner]
    if group.outer or any(type(n) is not int for n in sizes) or math.prod(group.inner) > MAX_LENGTH:
        return False
    if group.scans or group.sorts or group.by_value or any(m.node.partial for m in group.members):
        return False
    rows = {access.buf for m in group.members for access in m.reads() if access.index.names()}
    own = {m.node.name for m in group.members}
    few = len(rows - own) <= MAX_ROWS_READ and sum(len(m.node.unnamed_ops) for m in group.members) <= MAX_OPS
    return few and group.written_names() <= own  # in place, other programs would read what one overwrites


class _Steps:
    """A schedule that changes. `accessed` are the names that each step reads and writes, `readers` the positions of the
    steps that read each buffer."""

    def __init__(self, steps: Sequence[Step], outputs: set[str]) -> None:
        self.steps: list[Step | None] = list(steps)
        self.outputs = outputs
        self.accessed = [accesses(step) for step in steps]
        self.readers: dict[str, list[int]] = {}
        for at, (reads, _) in enumerate(self.accessed):
            for name in reads:
                self.readers.setdefault(name, []).append(at)

    def move(self, row: Group, at: int) -> None:
        """Makes the group at `at` a part of those that read it, if it can be."""
        readers = sorted({k for name in row.stored for k in self.readers.get(name, ()) if k != at})
        takers = [k for k in readers if _takes(self.steps[k], row)]
        if not takers or len(takers) > MAX_READERS or readers[0] != takers[0] or takers[0] < at:
            return
        read_by_others = set[str]().union(*(self.accessed[k][0] for k in readers if k not in takers))
        kept = row.stored & (self.outputs | read_by_others)
        reads = row.read_names()
        if any(not _along_row(row, name) for name in kept):
            return
        if any(reads & writes for _, writes in self.accessed[at + 1 : takers[-1] + 1]):
            return
        for k in takers:
            step = self.steps[k]
            assert isinstance(step, Group)
            joined = self.steps[k] = _joined(row, step, kept if k == takers[0] else set())
            for name in reads - self.accessed[k][0]:
                self.readers.setdefault(name, []).append(k)
            self.accessed[k] = accesses(joined)
        self.steps[at], self.accessed[at] = None, (set(), set())


def _takes(step: Step | None, row: Group) -> bool:
    """Whether a group can compute the row itself: it reduces it with at least LEAST_ROWS others, and reads its results
    where they were written."""
    if type(step) is not Group or not step.reduces or not step.fusible or step.device != row.device:
        return False
    if step.inner != row.inner or step.scans or step.sorts or any(type(n) is not int for n in step.outer):
        return False
    if math.prod(step.outer) < LEAST_ROWS:
        return False
    inner, outer = {name for name, _ in step.inner_vars()}, {name for name, _ in step.outer_vars()}
    reads = [access for m in step.members for access in m.reads()]
    if not any(_streams(access.index, inner, outer) for access in reads):
        return False
    written = {access.buf: access.index for m in row.members for access in m.writes()}
    return all(access.index == written[access.buf] for access in reads if access.buf in row.stored)


def _streams(index: Any, inner: set[str], outer: set[str]) -> bool:
    """Whether elements that lie together are those of one row of several."""
    names = index.names()
    return isinstance(index, Affine) and bool(names & outer) and any(index.coef(name) == 1 for name in names & inner)


def _along_row(row: Group, name: str) -> bool:
    return any(access.index.names() for m in row.members for access in m.writes() if access.buf == name)


def _joined(row: Group, step: Group, kept: set[str]) -> Group:
    """`step`, whose programs compute the row first; one of them stores what is `kept`."""
    members = [*row.members, *step.members]
    return Group(step.outer, step.inner, members, stored=step.stored | kept, by_value=step.by_value)
