"""Chooses the tile of a Triton program: which loop variables of a group are mapped to which axis of the tile.

A pointwise kernel has the axis x, or the axes y and x if accesses are contiguous along different variables. A reduction
kernel has the axis x for rows and the axis r for the reduced elements. Each axis flattens some of the group's
variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ...ir.size import AnySize, hint, same
from ...schedule.index import Affine, Index
from ...schedule.node import Group
from ..cpp.axes import merge, steps
from ..printer import TritonPrinter
from .heuristics import TILED_MIN

Variables = tuple[tuple[str, AnySize], ...]


@dataclass(frozen=True)
class Axis:
    """One axis of the tile: variables and their sizes, outermost first, flattened to one index."""

    letter: str
    variables: Variables

    @cached_property
    def size(self) -> AnySize:
        """The number of points along the axis."""
        return math.prod(s for _, s in self.variables)

    def lines(self, printer: TritonPrinter) -> list[str]:
        """The lines that compute each variable from the index of the axis."""
        out: list[str] = []
        stride: AnySize = 1
        for name, size in reversed(self.variables):
            text = f"{self.letter}index"
            if not same(stride, 1):
                text += f" // {printer.size(stride)}"
            if not same(stride * size, self.size):
                text += f" % {printer.size(size)}"
            out.append(f"{name} = {text}")
            stride *= size
        return out


@dataclass(frozen=True)
class Axes:
    """The axes of a tile in the order of its dimensions. `fixed` are variables with one value per program.

    `contiguous` is the letter along which most memory is contiguous; `mixed`: some is along the other one.
    """

    tile: tuple[Axis, ...]
    fixed: Variables
    renames: dict[str, Affine]
    contiguous: str
    mixed: bool

    def axis(self, letter: str) -> Axis:
        """The axis of a letter."""
        return next(a for a in self.tile if a.letter == letter)

    @cached_property
    def letters(self) -> dict[str, str]:
        """The letter of the axis of each variable, except fixed variables."""
        return {name: a.letter for a in self.tile for name, _ in a.variables}

    @cached_property
    def sizes(self) -> dict[str, AnySize]:
        """The size of each variable."""
        return dict(self.fixed) | {name: size for a in self.tile for name, size in a.variables}


def plan_axes(group: Group) -> Axes:
    """The tile of a group."""
    accesses = list(dict.fromkeys((a.buf, a.index) for m in group.members for a in m.reads() + m.writes()))
    renames: dict[str, Affine] = {}
    indices = [index for m in group.members for index in m.indices()]
    outer = merge(group.outer_vars(), indices, renames)
    inner = merge(group.inner_vars(), indices, renames)
    moved = [index.substitute(renames) for _, index in accesses]
    if group.reduces:
        names = {name for name, _ in inner}
        moved = [index for index in moved if index.names() & names]  # accesses once per row hardly matter
        # Scans and sorts run through the inner variables in the order of the group.
        ordered = tuple(inner) if group.scans or group.sorts else _best_last(inner, moved)
        rows, across = _best_last(outer, moved), ordered
        fixed: Variables = ()
        if group.bounded:  # a program has rows with the same bounds, as numbers
            fixed, rows = rows[:-1], rows[-1:]
        whole = [index for index in moved if index.names() - names]  # full-size accesses, not weights shared by rows
        x, r = _contiguous(rows[-1:], whole), _contiguous(across[-1:], whole)
        return Axes((Axis("x", rows), Axis("r", across)), fixed, renames, "x" if x > r else "r", bool(x and r))
    ordered = _best_last(outer, moved)
    other = _crossing(ordered, moved)
    if other is None:
        return Axes((Axis("x", ordered),), (), renames, "x", False)
    rest = tuple(v for v in ordered[:-1] if v != other)
    return Axes((Axis("y", (other,)), Axis("x", ordered[-1:])), rest, renames, "x", True)


def _best_last(variables: Iterable[tuple[str, AnySize]], indices: list[Index]) -> Variables:
    """The variables, with the one along which most accesses are contiguous moved to the end."""
    order = list(variables)
    if not order:
        return ()
    best = max(order, key=lambda v: (_contiguous([v], indices) - _strided(v[0], indices), order.index(v)))
    return (*(v for v in order if v != best), best)


def _contiguous(variables: Iterable[tuple[str, AnySize]], indices: list[Index]) -> int:
    return sum(
        isinstance(i, Affine) and same(i.coef(name), 1)
        for name, size in variables if not same(size, 1)
        for i in indices
    )  # fmt: skip


def _strided(name: str, indices: list[Index]) -> int:
    return sum(isinstance(i, Affine) and not steps(i, name) for i in indices)


def _crossing(ordered: Variables, indices: list[Index]) -> tuple[str, AnySize] | None:
    """A variable along which an access is contiguous that is strided along the last variable, if both are long enough.
    """
    if not ordered:
        return None
    last, length = ordered[-1]
    for index in indices:
        if isinstance(index, Affine) and not steps(index, last):
            for name, size in ordered[:-1]:
                if same(index.coef(name), 1) and min(hint(size), hint(length)) >= TILED_MIN:
                    return name, size
    return None
