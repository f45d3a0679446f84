"""The scheduler's main loop: turns buffers in program order into fused groups in execution order.

Each buffer is fused into the best earlier group that accepts it, or becomes a group of its own.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Sequence

import torch

from ..ir.buffer import Buffer, ComputedBuffer, ExternKernel, View
from ..ir.nodes import BufferView, GraphIR
from ..ir.size import hint
from . import score
from .alike import Decisions, Fusion, Placed
from .collectives import is_start, overlapped
from .dependencies import Dependencies
from .fuse import Fuse, fuse
from .node import Group, Node

GENERATOR = "%generator"  # pseudo-buffer for the state of the random number generator
COLLECTIVES = "%collectives"  # pseudo-buffer for the order in which collectives start

MAX_CANDIDATES = 64  # how many earlier readers of a buffer, nearest first, are considered for fusion with a new reader

MAX_REFUSALS = 200  # sentences on loops that were left apart, which compiled graphs keep

log = logging.getLogger("inductor.schedule")


class _Unit:
    """A group or an ATen call (extern kernel), with the names of the buffers that it reads and writes."""

    def __init__(self, number: int, what: Group | ExternKernel, reads: set[str], writes: set[str]) -> None:
        self.number, self.what, self.reads, self.writes = number, what, reads, writes


def schedule(graph: GraphIR) -> list[Group | ExternKernel]:
    """Fuses the buffers of a graph into groups and returns groups and extern kernels in an order that respects all
    dependencies. The `stored` set of each group names the buffers that must reach memory."""
    scheduler = _Scheduler(graph)
    for number, buffer in enumerate(graph.buffers):
        scheduler.place(number, buffer)
    graph.not_fused = scheduler.refusals
    ordered = scheduler.ordered()
    _mark_stored(ordered, output_names(graph))
    _mark_by_value(ordered, graph)
    return overlapped([u.what for u in ordered], accesses)


def accesses(item: Group | ExternKernel) -> tuple[set[str], set[str]]:
    """The names of the buffers that a group or an extern kernel reads and writes."""
    if isinstance(item, ExternKernel):
        return _names(item, None)
    return item.read_names(), item.written_names()


def output_names(graph: GraphIR) -> set[str]:
    """Names of the buffers that the graph returns, directly or as views."""
    return {o.buffer.name for o in graph.outputs if isinstance(o, BufferView)}


def extern_reads(kernel: ExternKernel) -> list[str]:
    """Names of the buffers that an extern kernel reads, without duplicates."""
    return list(dict.fromkeys((o.buffer if isinstance(o, View) else o).name for o in kernel.operands()))


def _names(buffer: ComputedBuffer | ExternKernel, group: Group | None) -> tuple[set[str], set[str]]:
    if isinstance(buffer, ExternKernel):
        writes = {o.name for o in buffer.outputs if o is not None}
        if buffer.mutates is not None:
            writes.add(buffer.mutates)
        if torch.Tag.nondeterministic_seeded in buffer.target.tags:
            writes.add(GENERATOR)  # random numbers are drawn in program order
        if is_start(buffer):
            writes.add(COLLECTIVES)
        return set(extern_reads(buffer)), writes
    assert group is not None
    return group.read_names(), group.written_names()


class _Scheduler:
    """The units created so far. `writer` maps a buffer to the unit that wrote it last; `readers` maps it to the units
    that have read it since, in program order."""

    def __init__(self, graph: GraphIR) -> None:
        self.units: dict[int, _Unit] = {}
        self.dependencies = Dependencies()
        self.decisions = Decisions(graph.alike)
        self.refusals: list[str] = []  # for buffers whose place was decided, not repeated
        self.writer: dict[str, int] = {}
        self.readers: dict[str, dict[int, None]] = {}
        computed = [b for b in graph.buffers if isinstance(b, ComputedBuffer)]
        self.sizes = {b.name: hint(b.layout.numel) * b.dtype.itemsize for b in computed}

    def place(self, number: int, buffer: ComputedBuffer | ExternKernel) -> None:
        """Adds the next buffer of the program, to an earlier group if it can be fused, else as a unit of its own."""
        node = Node.of(buffer) if isinstance(buffer, ComputedBuffer) else None
        known = self.decisions.known(number, node)
        group = known.group if known is not None else None if node is None else Group.of(node)
        reads, writes = _names(buffer, group)
        direct = self._direct(reads, writes)
        placed = None
        fusions: list[Fusion] = known.fusions if known is not None else []
        if fusions:
            placed = fusions[0].into
            self._fuse(fusions[0], reads, writes, direct)
            for fusion in fusions[1:]:
                self._merge(fusion)
        elif group is not None and known is None:
            placed = self._join(number, group, reads, writes, direct, fusions)
        self.decisions.note(number, Placed(group, fusions) if known is None else known, node)
        if placed is None:
            what = buffer if isinstance(buffer, ExternKernel) else group
            assert what is not None
            self.units[number] = _Unit(number, what, reads, writes)
            self.dependencies.add(number, direct)
            placed = number
        for name in reads:
            self.readers.setdefault(name, {})[placed] = None
        for name in writes:  # later units depend on the readers of the old value through the new writer
            self.writer[name] = placed
            self.readers.pop(name, None)

    def _direct(self, reads: set[str], writes: set[str]) -> set[int]:
        direct = {self.writer[n] for n in reads | writes if n in self.writer}
        for name in writes:
            direct.update(self.readers.get(name, ()))
        return direct

    def _join(
        self, number: int, group: Group, reads: set[str], writes: set[str], direct: set[int], fusions: list[Fusion]
    ) -> int | None:
        """Fuses a new group into the best earlier group that accepts it. Returns that unit's number, or None. What is
        fused is added to `fusions`."""
        candidates = set(direct)
        for name in group.streamed_names():
            candidates.update(itertools.islice(reversed(self.readers.get(name, {})), MAX_CANDIDATES))
        candidates = {n for n in candidates if isinstance(self.units[n].what, Group)}
        ranked = sorted(((self._score(n, number, reads), n) for n in candidates - self._cyclic(candidates, direct)),
                        reverse=True)  # fmt: skip
        refusals = []
        for _, n in ranked:
            unit = self.units[n]
            assert isinstance(unit.what, Group)
            answer = fuse(unit.what, group)
            if isinstance(answer, Fuse):
                fusions.append(Fusion(n, None, answer.group))
                self._fuse(fusions[0], reads, writes, direct)
                self._merge_producers(n, fusions)
                return n
            log.debug("%s not into unit %d: %s", group.members[0].node.name, n, answer.reason)
            other = " ".join(m.node.name for m in unit.what.members)
            refusals.append(f"{group.members[0].node.name} is not in the kernel of {other}: {answer.reason}")
        self.refusals += refusals[: max(0, MAX_REFUSALS - len(self.refusals))]
        return None

    def _fuse(self, fusion: Fusion, reads: set[str], writes: set[str], direct: set[int]) -> None:
        """Carries out the fusion of a new group with an earlier one."""
        unit = self.units[fusion.into]
        unit.what = fusion.group
        unit.reads, unit.writes = unit.reads | reads, unit.writes | writes
        for m in direct - {fusion.into}:
            self.dependencies.insert(m, fusion.into)

    def _merge(self, fusion: Fusion) -> None:
        """Carries out the fusion of a unit with another one that reads its results."""
        assert fusion.of is not None
        source, unit = self.units[fusion.of], self.units[fusion.into]
        unit.what = fusion.group
        unit.reads, unit.writes = unit.reads | source.reads, unit.writes | source.writes
        self._retire(fusion.of, fusion.into)

    def _score(self, n: int, number: int, reads: set[str]) -> tuple[int, int]:
        unit = self.units[n]
        shared = sum(self.sizes.get(b, 0) for b in reads & unit.reads)
        produced = sum(self.sizes.get(b, 0) for b in reads & unit.writes)
        return score.fusion_score(shared, produced, number - n)

    def _cyclic(self, candidates: set[int], direct: set[int]) -> set[int]:
        """The candidates whose fusion with the new node would close a cycle: another unit depends on them, and the new
        node depends on that unit."""
        between = {m for d in direct for m in self.dependencies.before[d]}
        return self.dependencies.depends(between, candidates)

    def _merge_producers(self, n: int, fusions: list[Fusion]) -> None:
        """After unit `n` has grown, fuses into it the groups whose results it reads, where that closes no cycle."""
        again = True
        while again:
            again = False
            for p in sorted({self.writer[b] for b in self.units[n].reads if b in self.writer} - {n}, reverse=True):
                source, unit = self.units[p], self.units[n]
                if not isinstance(source.what, Group) or not isinstance(unit.what, Group) or self._between(p, n):
                    continue
                answer = fuse(source.what, unit.what)
                if isinstance(answer, Fuse):
                    fusions.append(Fusion(n, p, answer.group))
                    self._merge(fusions[-1])
                    again = True
                    break

    def _between(self, p: int, n: int) -> bool:
        """Whether a third unit must run between `p` and `n`, or `p` is ordered after `n`."""
        dependencies = self.dependencies
        return dependencies.position[p] > dependencies.position[n] or bool(
            dependencies.depends(dependencies.before[n] - {p}, {p})
        )

    def _retire(self, p: int, n: int) -> None:
        source = self.units.pop(p)
        self.dependencies.merge(p, n)
        for name in source.writes:
            if self.writer.get(name) == p:
                self.writer[name] = n
        for name in source.reads:
            users = self.readers.get(name, {})
            if p in users:
                del users[p]
                users[n] = None

    def ordered(self) -> list[_Unit]:
        """The units in topological order; among units that are ready, the earliest in program order comes first. In a
        graph on a GPU groups on the CPU come before all others, so that kernels that read their results stay together.
        """
        waiting = {n: len(self.dependencies.before[n]) for n in self.units}
        hosts = {n for n, unit in self.units.items() if isinstance(unit.what, Group) and unit.what.device.type == "cpu"}
        groups = {n for n, unit in self.units.items() if isinstance(unit.what, Group)}
        later = dict.fromkeys(self.units, False) | dict.fromkeys(self.units.keys() - hosts, hosts != groups)
        ready = [(later[n], n) for n, count in waiting.items() if not count]
        heapq.heapify(ready)
        out = []
        while ready:
            _, n = heapq.heappop(ready)
            out.append(self.units[n])
            for m in self.dependencies.after[n]:
                waiting[m] -= 1
                if not waiting[m]:
                    heapq.heappush(ready, (later[m], m))
        if len(out) != len(self.units):
            raise AssertionError("fusion made a dependency cycle")
        return out


def _mark_stored(ordered: Sequence[_Unit], outputs: set[str]) -> None:
    read_by: dict[str, int] = {}
    for unit in ordered:
        for name in unit.reads:
            read_by[name] = read_by.get(name, 0) + 1
    written: set[str] = {name for u in ordered for name in u.writes}
    for unit in ordered:
        if isinstance(unit.what, Group):
            names = {m.node.name for m in unit.what.members}
            unit.what.stored = {
                n for n in unit.writes
                if n in outputs or n not in names or read_by.get(n, 0) > (n in unit.reads)
            } & written


def _mark_by_value(ordered: Sequence[_Unit], graph: GraphIR) -> None:
    outs = [o for b in graph.buffers for o in (b.outputs if isinstance(b, ExternKernel) else (b,)) if o is not None]
    buffers = [b for b in (*graph.inputs, *graph.constants, *outs) if isinstance(b, Buffer)]
    on_cpu = {b.name for b in buffers if b.layout.device.type == "cpu"}
    for unit in ordered:
        if isinstance(unit.what, Group) and unit.what.device.type != "cpu":
            unit.what.by_value = frozenset(on_cpu & unit.what.read_names())


def print_schedule(groups: Sequence[Group | ExternKernel]) -> str:
    """The schedule as text: one line per kernel or ATen call, in execution order."""
    lines = []
    for what in groups:
        if isinstance(what, ExternKernel):
            outs = ", ".join(o.name if o else "_" for o in what.outputs)
            lines.append(f"{outs} = {what.target}({', '.join(extern_reads(what))})")
        else:
            names = " ".join(m.node.name for m in what.members)
            space = f"{what.outer} x {what.inner}" if what.inner else f"{what.outer}"
            lines.append(f"kernel over {space}: {names} -> {', '.join(sorted(what.stored))}")
    return "\n".join(lines)
