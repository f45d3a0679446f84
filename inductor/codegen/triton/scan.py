"""Writes the Triton code of a scan: running sums, products and extremes along the rows of a tile.

A row that is held in registers is scanned at once. In a loop over blocks of the row, each block is scanned and combined
with the carry, the result of all blocks before it. If rows are few, each is divided into chunks, and each program scans
a chunk, whose carry begins with the total of those before it. Programs pass totals on to each other in one kernel
(`chain.py`); for rows whose length varies, or that other passes read, one kernel finds the totals and the next one
scans. The order of the combinations depends only on sizes, so results are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..values import Val
from .accumulate import ROW, Part, Reducer, limited
from .emit import Emitter, Piece
from .ops import COMPUTE, ELEMENT, Template, prelude

# The function of the prelude that combines two neighbouring runs, and its neutral element.
COMBINE: dict[str, tuple[str, float]] = {
    "sum": ("plus", 0), "prod": ("product", 1), "max": ("nan_max", -math.inf), "min": ("nan_min", math.inf),
    "logsumexp": ("sum_exps", -math.inf), "argmax": ("last_max", -math.inf), "argmin": ("last_min", math.inf),
}  # fmt: skip

_CHUNKS = "tl.arange(0, SPLIT)[None, :]"


@dataclass(frozen=True)
class _Part:
    """One component of what is scanned: its text, its compute type and its neutral element."""

    text: str
    kind: str
    identity: str


class Scanner:
    """The scan `value`, which starts at the end of the row if `value.attrs[1]`."""

    def __init__(self, emitter: Emitter, value: Val) -> None:
        self.emitter, self.value = emitter, value
        self.combine, self.neutral = COMBINE[value.attrs[0]]
        self.reverse: bool = value.attrs[1]

    def emit(self, in_loop: bool, begins_with: Sequence[str] = ()) -> list[Piece]:
        """Writes the scan of the tile, continued from the blocks before it if `in_loop`; `begins_with` is the result
        for what is ahead of all these blocks, if anything is. Returns the running values, and for the scan of a
        position also the running positions."""
        e, parts = self.emitter, self._parts()
        if self.value.attrs[0] == "logsumexp":
            return [self._log_sum(parts, in_loop, begins_with)]
        names = [e.fresh("s") for _ in parts]
        inputs = ", ".join(part.text for part in parts)
        e.used.add(self.combine)
        scanned = f"({inputs})" if len(parts) > 1 else inputs
        order = ", reverse=True" if self.reverse else ""
        e.lines.append(f"{', '.join(names)} = tl.associative_scan({scanned}, 1, {self.combine}{order})")
        if in_loop:
            self._carry(names, parts, begins_with)
        return [Piece(self._narrowed(name, part), part.kind, e.whole()) for name, part in zip(names, parts)]

    def _parts(self) -> list[_Part]:
        e, source = self.emitter, self.value.args[0]
        kind = "i" if source.kind == "m" else source.kind if self.value.position_of else self.value.kind
        kind = "i" if kind == "m" else kind
        text, axes = e.as_kind(source, kind), e.get(source).axes
        parts = [self._part(text, axes, kind, limited(self.neutral, kind))]
        if self.value.position_of is not None:
            at = e.index(self.value.attrs[2], ())
            parts.append(self._part(at.text, at.axes, "l" if e.wide else "i", "0"))
        elif self.value.attrs[0] == "logsumexp":
            parts.append(_Part("", kind, "0.0"))  # one for each element, which `scan_exps` knows
        return parts

    def _part(self, text: str, axes: frozenset[str], kind: str, identity: str) -> _Part:
        e = self.emitter
        # The lanes beyond the end of the row come first, or would count as its greatest element.
        if (self.reverse or self.value.attrs[0] == "logsumexp") and "r" in e.masked:
            text, axes = f"tl.where(rmask, {text}, {identity})", axes | {"r"}
        if axes != e.whole():
            number = f"tl.full({e.shape(e.whole())}, {text}, {COMPUTE[kind]})"
            text = number if not axes else f"tl.broadcast_to({text}, {e.shape(e.whole())})"
        return _Part(text, kind, identity)

    def _log_sum(self, parts: list[_Part], in_loop: bool, begins_with: Sequence[str]) -> Piece:
        """Writes the scan of a sum of exponentials, and its logarithm."""
        e, names = self.emitter, [self.emitter.fresh("s") for _ in parts]
        carries = self._declared(parts, begins_with)
        call = e.fill(prelude("scan_exps", 4), parts[0].text, *carries, str(self.reverse))
        e.lines.append(f"{', '.join(names)} = {call}")
        if in_loop:
            self._take_last(carries, names)
        log_sum = "log_sum_rough" if e.rough and parts[0].kind == "f" else "log_sum"
        return e.emit(parts[0].kind, e.whole(), e.fill(prelude(log_sum, 2), *names))

    def _carry(self, names: list[str], parts: list[_Part], begins_with: Sequence[str]) -> None:
        """Combines the scan of the block with the carry, which becomes the result of the row up to this block."""
        e, carries = self.emitter, self._declared(parts, begins_with)
        e.lines.append(f"{', '.join(names)} = {e.fill(prelude(self.combine, 2 * len(parts)), *carries, *names)}")
        self._take_last(carries, names)

    def _declared(self, parts: list[_Part], begins_with: Sequence[str]) -> list[str]:
        """The names of new variables for the carry, whose first values are set ahead of the loop."""
        e = self.emitter
        carries = [e.fresh("c") for _ in parts]
        nothing = [f"tl.full({e.shape(ROW)}, {part.identity}, {COMPUTE[part.kind]})" for part in parts]
        e.row_lines += [f"{carry} = {first}" for carry, first in zip(carries, begins_with or nothing)]
        return carries

    def _take_last(self, carries: list[str], names: list[str]) -> None:
        """Makes the result of the whole block the carry."""
        e, end = self.emitter, "0" if self.reverse else "RBLOCK - 1"
        for carry, name in zip(carries, names):
            e.lines.append(f"{carry} = {e.fill(prelude('lane', 2), name, end)}")

    def _narrowed(self, name: str, part: _Part) -> str:
        """The text of the result. Integers of fewer than 32 bits wrap around as in their dtype."""
        dtype = self.value.dtype
        if self.value.attrs[0] not in ("sum", "prod") or part.kind != "i" or dtype in ("int32", "bool"):
            return name
        return f"({name}).to({ELEMENT[dtype]}).to(tl.int32)"


def total_kinds(scan: Val) -> tuple[str, ...]:
    """The compute types of the values that a scan gives for a whole chunk."""
    kind = "i" if scan.kind == "m" else scan.kind
    return (kind, kind) if scan.attrs[0] == "logsumexp" else (kind,)


class ChunkTotal(Reducer):
    """What the scan `value` gives for a whole chunk of a row; the totals of all chunks are in scratch memory. Not for
    scans that find positions, in which the order of the elements matters."""

    def _parts(self) -> list[Part]:
        self.function, neutral = COMBINE[self.value.attrs[0]]
        self.counts = self.value.attrs[0] == "logsumexp"
        kind, *more = total_kinds(self.value)
        return [Part(kind, limited(neutral, kind)), *(Part(kind, "0.0") for _ in more)]

    def _step(self, inputs: list[str]) -> str:
        return self._call(self.function, [*self.names, *inputs, *(["1.0"] if self.counts else [])])

    def _fold(self, names: list[str]) -> str:
        if self.function == "plus":
            return f"tl.sum({names[0]}, 1, keep_dims=True)"
        operands = f"({', '.join(names)})" if len(names) > 1 else names[0]
        return self.emitter.fill(Template(f"tl.reduce({operands}, 1, {self.function}, keep_dims=True)", self.function))

    def _load(self, scratch: list[str], chunk: str, *conditions: str) -> None:
        e = self.emitter
        for name, buf, part in zip(self.names, scratch, self.parts):
            mask = e.mask(ROW, *conditions)
            options = f", mask={mask}, other={part.identity}" if mask else ""
            at = f"{e.pointer_to(buf)} + ({chunk} * xnumel + xindex)"
            e.lines.append(f"{name} = tl.load({at}{options}{e.shared_loads})")

    def joined(self, first: Sequence[str], second: Sequence[str]) -> str:
        """The text of the combination of two neighbouring runs, given by the names of their parts."""
        return self._call(self.function, [*first, *second])

    def join_before(self, scratch: list[str]) -> None:
        """Combines the totals of the chunks before this program's."""
        self._load(scratch, _CHUNKS, f"({_CHUNKS} < chunk)")
        self.combine()

    def accumulate(self, scratch: list[str], sums: list[str]) -> None:
        """Stores to `sums` for each chunk the combination of all totals up to its own."""
        e, names = self.emitter, ", ".join(self.names)
        self._load(scratch, _CHUNKS)
        e.used.add(self.function)
        operands = f"({names})" if len(self.names) > 1 else names
        e.lines.append(f"{names} = tl.associative_scan({operands}, 1, {self.function})")
        mask = e.mask(ROW)
        for name, buf in zip(self.names, sums):
            at = f"{e.pointer_to(buf)} + ({_CHUNKS} * xnumel + xindex)"
            e.lines.append(f"tl.store({at}, {name}{', ' + mask if mask else ''})")

    def read_before(self, sums: list[str]) -> None:
        """Loads what `accumulate` has stored for the chunk before this program's."""
        self._load(sums, "(chunk - 1)", "(chunk > 0)")
