"""Scans of rows that programs share, in one kernel: a program finds the total of its chunk of a row, waits for the
totals of the chunks ahead, and scans the chunk.

Programs take the chunks in the order in which they start, by a ticket. One that waits therefore waits for programs that
run already, on any GPU and beside any other kernel. A chunk is read twice; the second time it is still in the cache.

Totals pass through memory as words that hold 32 bits of a value and a mark. A program combines the totals of its group
of chunks and those of all groups ahead, which the last program of each group publishes. What is combined, and in which
order, depends only on sizes: results are the same in every run.

The memory is 0 at first. It has two halves, which launches use in turn: each clears the half for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .accumulate import ROW
from .emit import Emitter
from .heuristics import ceil_div, power
from .scan import ChunkTotal

HEAD = 16  # words ahead of the halves: the number of tickets that were taken, and nothing
_WORDS = {"f": 1, "i": 1, "d": 2, "l": 2}  # of a value, by compute type
_TYPES = {"f": "tl.float32", "i": "tl.int32", "d": "tl.float64", "l": "tl.int64"}


@dataclass(frozen=True)
class Chain:
    """The memory, `name`, for scans of `rows` rows in `chunks` chunks each, which have a program each."""

    name: str
    rows: int
    chunks: int
    kinds: tuple[str, ...]  # the compute types of all values that are passed on for a chunk

    @property
    def group(self) -> int:
        """The number of chunks in a group: a power of 2, so that there are about as many groups."""
        return power(int(self.chunks**0.5))

    @property
    def groups(self) -> int:
        """The number of groups."""
        return ceil_div(self.chunks, self.group)

    @property
    def plane(self) -> int:
        """The words of one kind: one for each row of a chunk and of a group."""
        return (self.chunks + self.groups) * self.rows

    @property
    def words(self) -> int:
        """The size of the memory in 64-bit words."""
        return HEAD + 2 * self._half

    @property
    def _half(self) -> int:
        return sum(_WORDS[kind] for kind in self.kinds) * self.plane

    def begin(self, e: Emitter) -> None:
        """Writes the lines that set `pid`, the number of this program's chunk among those of all rows."""
        e.used.add("take_ticket")
        memory = e.pointer_to(self.name)
        e.lines += [
            f"pid, turn = take_ticket({memory}, {self.rows * self.chunks})",
            f"here = {memory} + ({HEAD} + turn * {self._half})",
            f"there = {memory} + ({HEAD} + (1 - turn) * {self._half})",
        ]
        if not e.wide:
            e.lines.append("pid = pid.to(tl.int32)")

    def publish(self, total: ChunkTotal, first: int) -> None:
        """Writes the stores of a chunk's total, whose values are the ones from number `first` on."""
        self._publish(total.emitter, total.names, first, "chunk", "")

    def join_ahead(self, own: ChunkTotal, total: ChunkTotal, first: int) -> None:
        """Writes the combination of all totals ahead, as `total`; the chunk's is `own`."""
        e = total.emitter
        last = f"(chunk % {self.group} == {self.group - 1})"
        lane = f"(chunk // {self.group} * {self.group} + tl.arange(0, {self.group})[None, :])"
        self._receive(total, first, lane, f"({lane} < chunk)")
        if self.groups == 1:
            return
        names = [e.fresh("a") for _ in total.names]
        e.lines.append(f"{', '.join(names)} = {total.joined(total.names, own.names)}")
        self._publish(e, names, first, f"({self.chunks} + chunk // {self.group})", last)
        ahead = ChunkTotal(e, total.value)
        lane = f"tl.arange(0, {power(self.groups)})[None, :]"
        self._receive(ahead, first, f"({self.chunks} + {lane})", f"({lane} < chunk // {self.group})")
        e.lines.append(f"{', '.join(total.names)} = {total.joined(ahead.names, total.names)}")

    def _at(self, first: int, k: int, level: str) -> str:
        before = sum(_WORDS[kind] for kind in self.kinds[: first + k])
        return f"({before * self.plane} + {level} * xnumel + xindex)"

    def _publish(self, e: Emitter, names: Sequence[str], first: int, level: str, only: str) -> None:
        e.used.add("publish")
        mask = e.mask(ROW, *([only] if only else [])) or "(xindex >= 0)"
        for k, name in enumerate(names):
            at = self._at(first, k, level)
            e.lines.append(f"publish(here + {at}, there + {at}, {self.plane}, {name}, {mask})")

    def _receive(self, total: ChunkTotal, first: int, level: str, only: str) -> None:
        """Waits for the totals of several chunks or groups, and combines them as `total`."""
        e = total.emitter
        e.used.add("receive")
        mask = e.mask(ROW, only)
        for k, (name, part) in enumerate(zip(total.names, total.parts)):
            at = self._at(first, k, level)
            e.lines += [
                f"{name} = receive(here + {at}, {self.plane}, {mask}, {_TYPES[part.kind]})",
                f"{name} = tl.where({mask}, {name}, {part.identity})",
            ]
        total.combine()
