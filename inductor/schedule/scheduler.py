"""From buffers in program order to groups in execution order."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Sequence

import torch

from ..ir.buffer import ComputedBuffer, ExternKernel, View
from ..ir.nodes import GraphIR, Strided
from ..ir.size import hint
from . import score
from .fuse import Fuse, fuse
from .node import Group, Node

GENERATOR = "%generator"  # the state that random operators read and write, as if it were a buffer

log = logging.getLogger("inductor.schedule")


class _Unit:
    """A group or an extern kernel with what it must follow; `before` is a bit set of unit numbers, transitive."""

    def __init__(self, number: int, what: Group | ExternKernel, reads: set[str], writes: set[str]) -> None:
        self.number, self.what, self.reads, self.writes = number, what, reads, writes
        self.before = 0


def schedule(graph: GraphIR) -> list[Group | ExternKernel]:
    """Groups and extern kernels of a graph IR (`buffers` in program order, `outputs`), in an order that respects
    every dependency. Each group's `stored` names the buffers that must reach memory."""
    units: dict[int, _Unit] = {}
    writer: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    sizes = {b.name: hint(b.layout.numel) * b.dtype.itemsize for b in graph.buffers if isinstance(b, ComputedBuffer)}
    for number, buffer in enumerate(graph.buffers):
        group = Group.of(Node.of(buffer)) if isinstance(buffer, ComputedBuffer) else None
        reads, writes = _names(buffer, group)
        direct = _direct(reads, writes, writer, readers)
        placed = _join(number, group, reads, writes, direct, units, writer, readers, sizes) if group else None
        if placed is None:
            unit = _Unit(number, group or buffer, reads, writes)
            unit.before = _closure(direct, units)
            units[number] = unit
            placed = number
        for name in reads:
            readers.setdefault(name, set()).add(placed)
        for name in writes:
            writer[name] = placed
    ordered = _order(units)
    _mark_stored(ordered, output_names(graph))
    return [u.what for u in ordered]


def output_names(graph: GraphIR) -> set[str]:
    """Names of the buffers that the graph returns, or views of which it returns."""
    return {o.buffer.name for o in graph.outputs if isinstance(o, Strided)}


def extern_reads(kernel: ExternKernel) -> list[str]:
    """Names of the buffers that an extern kernel reads, each once."""
    return list(dict.fromkeys((o.buffer if isinstance(o, View) else o).name for o in kernel.operands()))


def _names(buffer: ComputedBuffer | ExternKernel, group: Group | None) -> tuple[set[str], set[str]]:
    if isinstance(buffer, ExternKernel):
        writes = {o.name for o in buffer.outputs if o is not None}
        if torch.Tag.nondeterministic_seeded in buffer.target.tags:
            writes.add(GENERATOR)  # random numbers are drawn in program order
        return set(extern_reads(buffer)), writes
    assert group is not None
    return group.read_names(), group.written_names()


def _direct(reads: set[str], writes: set[str], writer: dict[str, int], readers: dict[str, set[int]]) -> set[int]:
    direct = {writer[n] for n in reads | writes if n in writer}
    for name in writes:
        direct |= readers.get(name, set())
    return direct


def _closure(direct: Iterable[int], units: dict[int, _Unit]) -> int:
    mask = 0
    for n in direct:
        mask |= 1 << n | units[n].before
    return mask


def _join(number: int, group: Group, reads: set[str], writes: set[str], direct: set[int], units: dict[int, _Unit],
          writer: dict[str, int], readers: dict[str, set[int]], sizes: dict[str, int]) -> int | None:
    """Fuse a new group into the best earlier one; its unit number, or None."""
    candidates = set(direct)
    for name in reads:
        candidates |= readers.get(name, set())
    ranked = []
    for n in candidates:
        unit = units[n]
        if isinstance(unit.what, Group) and not _cycle(n, direct, units):
            shared = sum(sizes.get(b, 0) for b in reads & unit.reads)
            produced = sum(sizes.get(b, 0) for b in reads & unit.writes)
            ranked.append((score.fusion_score(shared, produced, number - n), n, unit.what))
    for _, n, earlier in sorted(ranked, key=lambda row: row[:2], reverse=True):
        answer = fuse(earlier, group)
        if isinstance(answer, Fuse):
            _absorb(n, answer.group, reads, writes, _closure(direct - {n}, units), units)
            _merge_producers(n, units, writer, readers)
            return n
        log.debug("%s not into unit %d: %s", group.members[0].node.name, n, answer.reason)
    return None


def _cycle(n: int, direct: Iterable[int], units: dict[int, _Unit]) -> bool:
    return any(d != n and units[d].before >> n & 1 for d in direct)


def _absorb(n: int, group: Group, reads: set[str], writes: set[str], before: int, units: dict[int, _Unit]) -> None:
    unit = units[n]
    unit.what = group
    unit.reads, unit.writes = unit.reads | reads, unit.writes | writes
    unit.before = (unit.before | before) & ~(1 << n)
    for other in units.values():
        if other.before >> n & 1:
            other.before |= unit.before


def _merge_producers(n: int, units: dict[int, _Unit], writer: dict[str, int], readers: dict[str, set[int]]) -> None:
    """After unit `n` grew, fuse into it the groups it reads from where that closes no cycle."""
    again = True
    while again:
        again = False
        for p in sorted({writer[b] for b in units[n].reads if b in writer} - {n}, reverse=True):
            source, unit = units[p], units[n]
            if not isinstance(source.what, Group) or not isinstance(unit.what, Group) or _between(p, n, units):
                continue
            answer = fuse(source.what, unit.what)
            if not isinstance(answer, Fuse):
                continue
            _absorb(n, answer.group, source.reads, source.writes, source.before, units)
            _retire(p, n, units, writer, readers)
            again = True
            break


def _between(p: int, n: int, units: dict[int, _Unit]) -> bool:
    """Whether some third unit comes after `p` and before `n`, or `p` after `n`."""
    if units[p].before >> n & 1:
        return True
    return any(k not in (p, n) and units[n].before >> k & 1 and u.before >> p & 1 for k, u in units.items())


def _retire(p: int, n: int, units: dict[int, _Unit], writer: dict[str, int], readers: dict[str, set[int]]) -> None:
    del units[p]
    for unit in units.values():
        if unit.before >> p & 1:
            unit.before &= ~(1 << p)
            if unit.number != n:
                unit.before |= 1 << n | units[n].before
    for name, number in writer.items():
        if number == p:
            writer[name] = n
    for users in readers.values():
        if p in users:
            users.discard(p)
            users.add(n)


def _order(units: dict[int, _Unit]) -> list[_Unit]:
    """Topological, earliest program order first among the ready."""
    followers: dict[int, list[int]] = {n: [] for n in units}
    waiting: dict[int, int] = {}
    for n, unit in units.items():
        mine = [m for m in units if unit.before >> m & 1]
        waiting[n] = len(mine)
        for m in mine:
            followers[m].append(n)
    ready = [n for n, count in waiting.items() if not count]
    heapq.heapify(ready)
    out = []
    while ready:
        n = heapq.heappop(ready)
        out.append(units[n])
        for m in followers[n]:
            waiting[m] -= 1
            if not waiting[m]:
                heapq.heappush(ready, m)
    if len(out) != len(units):
        raise AssertionError("fusion made a dependency cycle")
    return out


def _mark_stored(ordered: Sequence[_Unit], outputs: set[str]) -> None:
    read_by: dict[str, int] = {}
    for unit in ordered:
        for name in unit.reads:
            read_by[name] = read_by.get(name, 0) + 1
    made: set[str] = {name for u in ordered for name in u.writes}
    for unit in ordered:
        if isinstance(unit.what, Group):
            names = {m.node.name for m in unit.what.members}
            unit.what.stored = {
                n for n in unit.writes
                if n in outputs or n not in names or read_by.get(n, 0) > (n in unit.reads)
            } & made


def print_schedule(groups: Sequence[Group | ExternKernel]) -> str:
    """One line a kernel or extern call, in execution order."""
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
