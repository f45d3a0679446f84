"""Finds the mean and the sum of squared deviations from it among the reductions of a kernel, and writes the Triton code
that computes both in one pass over a row.

Each lane sums the differences from its own first element, and their squares. As that element is one of the n elements
of the lane, the sum of squares is at most n times the sum of squared deviations, so little is lost where one follows
from the other, whatever the mean is. Lanes, and programs that share a row, are joined pairwise by their counts (Chan,
Golub and LeVeque, 1979).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.size import AnySize, same
from ...schedule.index import Affine
from ..values import Val
from .accumulate import ROW, Part, Reducer
from .emit import Emitter, Piece


@dataclass(frozen=True)
class Moments:
    """`squares` is the sum of (v - center) ** 2, where `center` is `total` divided by the length of the row, and `total`
    is the sum of v."""

    squares: Val
    center: Val
    total: Val


def moments(reductions: Iterable[Val], length: AnySize) -> dict[Val, Moments]:
    """The moments in float32 among the reductions of rows of `length` elements, by their `squares`."""
    found: dict[Val, Moments] = {}
    for squares in reductions:
        deviation = _squared(squares.args[0]) if squares.attrs[0] == "sum" else None
        if deviation is None or deviation.op != "sub":
            continue
        v, center = deviation.args
        if center.op != "div" or not _equals(center.args[1], length):
            continue
        total = center.args[0]
        if total.op == "reduction" and total.attrs[0] == "sum" and total.args[0] is v and total.kind == v.kind == "f":
            found[squares] = Moments(squares, center, total)
    return found


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
    """Both reductions of a `Moments`. Its state is the first element, the mean of the differences from it, the sum of
    squared deviations and the number of elements. In a loop over the row, the second part is a sum, the third one is
    of squared differences, and the last one follows from the position."""

    def __init__(self, emitter: Emitter, pair: Moments, shared: bool) -> None:
        """`shared`: several programs share a row."""
        super().__init__(emitter, pair.squares)
        self.pair = pair
        self.begin, self.step = ("chunk * RBLOCK", "SPLIT * RBLOCK") if shared else ("0", "RBLOCK")

    def _parts(self) -> list[Part]:
        return [Part("f", "0.0")] * 4

    def declare(self) -> list[str]:  # noqa: D102
        return super().declare()[:3]

    def update(self) -> None:  # noqa: D102
        e, state = self.emitter, self.names[:3]
        v = e.as_kind(self.pair.total.args[0], "f")
        if "r" in e.masked:
            v = f"tl.where(rmask, {v}, {state[0]})"
        e.lines.append(f"{', '.join(state)} = {self._call('moments_step', [*state, v, f'start == {self.begin}'])}")

    def finish(self) -> None:  # noqa: D102
        e, count = self.emitter, self.names[3]
        lanes = f"({self.begin} + tl.arange(0, RBLOCK)[None, :])"
        e.lines.append(f"{count} = ((rnumel + {self.step} - 1 - {lanes}) // ({self.step})).to(tl.float32)")
        e.lines.append(f"{count} = tl.broadcast_to({count}, {e.shape(e.whole())})")
        e.lines.append(f"{', '.join(self.names)} = {self._call('moments_close', self.names)}")
        self.combine()

    def _fold(self, names: list[str]) -> str:
        return self._call("moments_fold", names)

    def results(self) -> None:  # noqa: D102
        e, (first, mean, squares, count) = self.emitter, self.names
        center = e.fresh()
        e.lines.append(f"{center} = {first} + {mean}")
        e.define(self.pair.center, Piece(center, "f", ROW))
        e.define(self.pair.squares, Piece(squares, "f", ROW))
        e.define(self.pair.total, Piece(f"({center} * {count})", "f", ROW))
