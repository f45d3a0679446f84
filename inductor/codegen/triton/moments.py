"""Finds the mean and the sum of squared deviations from it among the reductions of a kernel, and writes the Triton code
that computes both in one pass over a row.

Each lane sums the differences from its own first element, and their squares. As that element is one of the n elements
of the lane, the sum of squares is at most n times the sum of squared deviations, so little is lost where one follows
from the other, whatever the mean is. Then lanes, and programs that share a row, are joined by their counts, means and
squares, as if each were an element.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.size import AnySize, same
from ...schedule.index import Affine
from ..values import Val, Values
from .accumulate import Part, Reducer
from .emit import Emitter, Piece


@dataclass(frozen=True)
class Moments:
    """`squares` is the sum of `deviation` ** 2, which is v - `center`, where `center` is `total` divided by the length
    of the row, and `total` is the sum of v."""

    squares: Val
    center: Val
    total: Val
    deviation: Val


def moments(values: Values, length: AnySize) -> dict[Val, Moments]:
    """The moments in float32 among the reductions of rows of `length` elements, by their `squares`. A sum that is used
    as such is left alone: what follows from the mean is less accurate where elements cancel."""
    found: dict[Val, Moments] = {}
    for squares in values.reductions:
        deviation = _squared(squares.args[0]) if squares.attrs[0] == "sum" else None
        if deviation is None or deviation.op != "sub":
            continue
        v, center = deviation.args
        if center.op != "div" or not _equals(center.args[1], length):
            continue
        total = center.args[0]
        if total.op == "reduction" and total.attrs[0] == "sum" and total.args[0] is v and total.kind == v.kind == "f":
            found[squares] = Moments(squares, center, total, deviation)
    of = {pair.total: pair.center for pair in found.values()}
    used = {a for v in values.table.values() for a in v.args if a in of and v is not of[a]}
    used |= {v for store in values.stores for v in store.operands()}
    return {squares: pair for squares, pair in found.items() if pair.total not in used}


def _squared(value: Val) -> Val | None:
    """The value of which this one is the square, if it is one."""
    if value.op == "square" or value.op == "mul" and value.args[0] is value.args[1]:
        return value.args[0]
    return None


def _equals(count: Val, length: AnySize) -> bool:
    """Whether a value is certain to be the number `length`."""
    if count.op == "constant":
        return bool(type(length) is int and count.attrs[1] == length)
    index = count.attrs[0] if count.op == "index" else None
    return isinstance(index, Affine) and not index.terms and same(index.const, length)


class MomentsReducer(Reducer):
    """Both reductions of a `Moments`. Its state is an element or a number near the mean, the mean of the differences
    from it, and the sum of squared deviations. In a loop over the row, the second part is a sum and the third one is of
    squared differences. The number of elements follows from the position."""

    def __init__(self, emitter: Emitter, pair: Moments, block: int, split: int) -> None:
        """`split` programs share a row and take blocks of `block` elements in turn."""
        super().__init__(emitter, pair.squares)
        self.pair, self.block, self.step = pair, block, block * split
        self.shared = split > 1
        self.stride = "(SPLIT * RBLOCK)" if self.shared else str(self.step)  # in the kernel that takes the blocks

    def _parts(self) -> list[Part]:
        return [Part("f", "0.0")] * 3

    def update(self) -> None:  # noqa: D102
        e, state = self.emitter, self.names
        v = e.as_kind(self.pair.total.args[0], "f")
        if "r" in e.masked:
            v = f"tl.where(rmask, {v}, {state[0]})"
        begin = f"start == {f'chunk * {self.block}' if self.shared else 0}"
        e.lines.append(f"{', '.join(state)} = {self._call('moments_step', [*state, v, begin])}")

    def finish(self) -> None:  # noqa: D102
        e, state = self.emitter, self.names
        lanes = f"{f'chunk * {self.block} + ' if self.shared else ''}tl.arange(0, RBLOCK)[None, :]"
        count, count_all = e.fresh(), "rnumel"
        e.lines.append(f"{count} = ((rnumel + ({self.stride} - 1) - ({lanes})) // {self.stride}).to(tl.float32)")
        e.lines.append(f"{', '.join(state)} = {self._call('moments_close', [*state, count])}")
        if self.shared:
            count_all = f"tl.maximum({self._count('chunk', self.stride)}, 1).to(tl.float32)"
        e.lines.append(f"{', '.join(state)} = {self._call('moments_fold', [*state, count, count_all])}")

    def combine(self) -> None:  # noqa: D102
        counts = f"{self._count('tl.arange(0, SPLIT)[None, :]', str(self.step))}.to(tl.float32)"
        call = self._call("moments_fold", [*self.names, counts, "rnumel"])
        self.emitter.lines.append(f"{', '.join(self.names)} = {call}")

    def _count(self, chunk: str, stride: str) -> str:
        """How many elements of a row a program takes; `stride`: the elements that all programs take in turn."""
        rest = f"tl.minimum(tl.maximum(rnumel % {stride} - {chunk} * {self.block}, 0), {self.block})"
        return f"(rnumel // {stride} * {self.block} + {rest})"

    def results(self) -> None:  # noqa: D102
        e, (first, mean, squares) = self.emitter, self.names
        center = e.fresh()
        e.lines.append(f"{center} = {first} + {mean}")
        e.define(self.pair.center, Piece(center, "f", self.row))
        e.define(self.pair.squares, Piece(squares, "f", self.row))


class HeldMomentsReducer(Reducer):
    """The squares of a `Moments` of a row that is held in registers. Computing them also corrects the mean, whose
    rounding error a normalization would magnify where elements are nearly equal."""

    def __init__(self, emitter: Emitter, pair: Moments) -> None:
        super().__init__(emitter, pair.squares)
        self.pair = pair

    def direct(self) -> None:  # noqa: D102
        e, pair = self.emitter, self.pair
        deviation = e.get(pair.deviation)
        text = f"tl.where(rmask, {deviation.text}, 0.0)" if "r" in e.masked else deviation.text
        operands = [e.get(pair.center).text, text, e.as_kind(pair.center.args[1], "f")]
        center = e.fresh()
        e.lines.append(f"{center}, {self.names[0]} = {self._call('corrected_moments', operands)}")
        e.define(pair.center, Piece(center, "f", self.row))
        e.forget(pair.deviation)
