"""Writes the Triton code of a scan: running sums, products and extremes along the rows of a tile.

A row that is held in registers is scanned at once. In a loop over blocks of the row, each block is scanned and combined
with the carry, the result of all blocks before it. The order of the combinations depends only on sizes, so results are
the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..values import Val
from .accumulate import limited
from .emit import Emitter, Piece
from .ops import COMPUTE, ELEMENT, prelude

# The function of the prelude that combines two neighbouring runs, and its neutral element.
COMBINE: dict[str, tuple[str, float]] = {
    "sum": ("plus", 0), "prod": ("product", 1), "max": ("nan_max", -math.inf), "min": ("nan_min", math.inf),
    "logsumexp": ("log_add_exp", -math.inf), "argmax": ("last_max", -math.inf), "argmin": ("last_min", math.inf),
}  # fmt: skip


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

    def emit(self, in_loop: bool) -> list[Piece]:
        """Writes the scan of the tile, continued from the blocks before it if `in_loop`. Returns the running values,
        and for the scan of a position also the running positions."""
        e, parts = self.emitter, self._parts()
        names = [e.fresh("s") for _ in parts]
        inputs = ", ".join(part.text for part in parts)
        e.used.add(self.combine)
        scanned = f"({inputs})" if len(parts) > 1 else inputs
        order = ", reverse=True" if self.reverse else ""
        e.lines.append(f"{', '.join(names)} = tl.associative_scan({scanned}, 1, {self.combine}{order})")
        if in_loop:
            self._carry(names, parts)
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
        return parts

    def _part(self, text: str, axes: frozenset[str], kind: str, identity: str) -> _Part:
        e = self.emitter
        if self.reverse and "r" in e.masked:  # the lanes beyond the end of the row come first
            text, axes = f"tl.where(rmask, {text}, {identity})", axes | {"r"}
        if axes != e.whole():
            text = f"tl.broadcast_to({text}, {e.shape(e.whole())})"
        return _Part(text, kind, identity)

    def _carry(self, names: list[str], parts: list[_Part]) -> None:
        """Combines the scan of the block with the carry, which becomes the result of the row up to this block."""
        e = self.emitter
        carries = [e.fresh("c") for _ in parts]
        for carry, part in zip(carries, parts):
            e.row_lines.append(f"{carry} = tl.full({e.shape(frozenset('x'))}, {part.identity}, {COMPUTE[part.kind]})")
        e.lines.append(f"{', '.join(names)} = {e.fill(prelude(self.combine, 2 * len(parts)), *carries, *names)}")
        end = "0" if self.reverse else "RBLOCK - 1"
        for carry, name in zip(carries, names):
            e.lines.append(f"{carry} = {e.fill(prelude('lane', 2), name, end)}")

    def _narrowed(self, name: str, part: _Part) -> str:
        """The text of the result. Integers of fewer than 32 bits wrap around as in their dtype."""
        dtype = self.value.dtype
        if self.value.attrs[0] not in ("sum", "prod") or part.kind != "i" or dtype in ("int32", "bool"):
            return name
        return f"({name}).to({ELEMENT[dtype]}).to(tl.int32)"
