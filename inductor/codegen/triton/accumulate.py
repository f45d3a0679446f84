"""Writes the Triton code of one reduction: declares its accumulator, updates it in the loop over a row and computes the
result. `kernel.py` decides whether a row is read in a loop, held in registers or shared by several programs.

The accumulator is a tile with rows along axis 0 (x) and the reduced elements along axis 1 (r). A lane here is one
element of this tile, not a thread: it accumulates part of a row, and the lanes of a row are combined along axis 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import Unsupported
from ...ir.size import AnySize, known, same
from ...schedule.index import Affine, Index
from ..values import Val
from .axes import Axis
from .emit import NONE, Emitter, Piece
from .ops import COMPUTE, AnyTemplate, Template, literal, prelude

IDENTITY = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "any": 0, "all": 1,
            "argmax": -math.inf, "argmin": math.inf}
LIMITS = {"i": (-(2**31), 2**31 - 1), "l": (-(2**63), 2**63 - 1)}
LOWEST = {"f": -3.4028234663852886e38, "d": -1.7976931348623157e308}


def _reduce(function: str) -> Template:
    """A reduction along axis 1, which is kept, by a function of the prelude."""
    return Template(f"tl.reduce({{0}}, 1, {function}, keep_dims=True)", function)


STEP: dict[str, AnyTemplate] = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": prelude("nan_max", 2), "min": prelude("nan_min", 2),
    "any": "tl.maximum({0}, {1})", "all": "tl.minimum({0}, {1})",
}
FOLD: dict[str, AnyTemplate] = {
    "sum": "tl.sum({0}, 1, keep_dims=True)", "prod": _reduce("product"), "max": _reduce("nan_max"),
    "min": _reduce("nan_min"), "any": "tl.max({0}, 1, keep_dims=True)", "all": "tl.min({0}, 1, keep_dims=True)",
}
ROW = frozenset("x")


@dataclass(frozen=True)
class Part:
    """One component of the state of a lane: its compute type and its neutral element as text."""

    kind: str
    identity: str


def online_pairs(reductions: list[Val]) -> dict[Val, Val]:
    """Maps each sum of exp(v - max(v)) to its maximum, so that one pass computes both (online softmax)."""
    pairs: dict[Val, Val] = {}
    for total in reductions:
        if total.attrs[0] != "sum" or total.args[0].op != "exp" or total.args[0].args[0].op != "sub":
            continue
        v, top = total.args[0].args[0].args
        if top.op == "reduction" and top.attrs[0] == "max" and top.args[0] is v and top not in pairs.values():
            if v.kind in LOWEST and v.kind == top.kind == total.kind:
                pairs[total] = top
    return pairs


def ascending(position: Index, axis: Axis) -> bool:
    """Whether positions are certain to increase along an axis."""
    if not isinstance(position, Affine) or position.names() - {name for name, _ in axis.variables}:
        return False
    reach: AnySize = 0
    for name, size in reversed(axis.variables):
        coef = position.coef(name)
        if not same(size, 1) and not known(coef, ">", reach):
            return False
        reach += coef * (size - 1)
    return True


def limited(identity: float, kind: str) -> str:
    """A neutral element as text; infinities of integers are the limits of their compute type."""
    if kind in LIMITS and isinstance(identity, float):
        return repr(LIMITS[kind][identity > 0])
    return literal(identity, kind)


class Reducer:
    """The reduction `value`. With `top`, the maximum `top` and the sum `value` of exp(v - maximum) together."""

    def __init__(self, emitter: Emitter, value: Val, top: Val | None = None) -> None:
        self.emitter, self.value, self.top = emitter, value, top
        self.reduce: str = "online" if top else value.attrs[0]
        self.position_of = value.position_of
        # With bounds, a row need not have the first position.
        forward = self.position_of is not None and not emitter.backward and len(value.args) == 1
        self.ascends = forward and ascending(value.attrs[1], emitter.axes.axis("r"))
        # A row that does not vary along x is reduced once per program.
        self.row = ROW if top or len(value.args) > 1 or emitter.varies(value) else NONE
        self.parts = self._parts()
        self.names = [emitter.fresh("a") for _ in self.parts]

    def _parts(self) -> list[Part]:
        if self.top:
            kind = self.top.kind
            return [Part(kind, literal(LOWEST[kind], kind)), Part(kind, "0.0")]
        if self.reduce not in IDENTITY:
            raise Unsupported(f"reduction {self.reduce}")
        identity = IDENTITY[self.reduce]
        if self.position_of is not None:
            kind, at = self.value.args[0].kind, "l" if self.emitter.wide else "i"
            kind = "i" if kind == "m" else kind
            # A lane without elements holds the row's first position, which is correct if all elements are neutral.
            none = self.value.attrs[1].const if self.ascends else LIMITS[at][1]
            return [Part(kind, limited(identity, kind)), Part(at, self.emitter.printer.size(none))]
        kind = "i" if self.value.kind == "m" or self.reduce in ("any", "all") else self.value.kind
        return [Part(kind, limited(identity, kind))]

    # ---- in a loop

    def declare(self) -> list[str]:
        """The lines before the loop."""
        shape = self.emitter.shape(self.row | {"r"})
        if self.top and self.emitter.group > 1:
            shape = f"[XBLOCK, RBLOCK // {self.emitter.group}]"
        return [f"{n} = tl.full({shape}, {p.identity}, {COMPUTE[p.kind]})" for n, p in zip(self.names, self.parts)]

    def update(self) -> None:
        """Writes the update in the loop."""
        inputs = self._inputs(broadcast=bool(self.top) and self.emitter.group > 1)
        self.emitter.lines.append(f"{', '.join(self.names)} = {self._step(inputs)}")

    def _step(self, inputs: list[str]) -> str:
        if self.top:
            step = "online_groups" if self.emitter.group > 1 else "online_step"
            return self._call(step, self.names + inputs)
        if self.position_of is not None:
            step = "later" if self.ascends else "arg"
            return self._call(f"{step}_{self.position_of}", self.names + inputs)
        return self.emitter.fill(STEP[self.reduce], self.names[0], inputs[0])

    def _call(self, function: str, operands: list[str]) -> str:
        """The text of a call of a function of the prelude."""
        return self.emitter.fill(prelude(function, len(operands)), *operands)

    def _inputs(self, broadcast: bool) -> list[str]:
        """The texts of the elements (and positions), neutral beyond the end of the row. With `broadcast` they have the
        shape of the whole tile."""
        e = self.emitter
        source = self.top.args[0] if self.top else self.value.args[0]
        texts = [(e.as_kind(source, self.parts[0].kind), self.parts[0].identity, e.get(source).axes)]
        if self.top:
            texts[0] = (texts[0][0], 'float("-inf")', texts[0][2])
        if self.position_of is not None:
            at = e.index(self.value.attrs[1], ())
            texts.append((at.text, self.parts[1].identity, at.axes))
        out = []
        for text, identity, axes in texts:
            if "r" in e.masked:
                text, axes = f"tl.where({e.taken}, {text}, {identity})", axes | {"r"}
            if broadcast and axes != self.row | {"r"}:
                text = f"tl.broadcast_to({text}, {e.shape(self.row | {'r'})})"
            out.append(text)
        return out

    def finish(self) -> None:
        """Writes what follows the loop."""
        self.combine()

    def combine(self) -> None:
        """Writes the combination of the lanes."""
        self.emitter.lines.append(f"{', '.join(self.names)} = {self._fold(self.names)}")

    def _fold(self, names: list[str]) -> str:
        if self.top:
            return self._call("online_fold", names)
        if self.position_of is not None:
            return self._call(f"first_{self.position_of}", names)
        return self.emitter.fill(FOLD[self.reduce], names[0])

    # ---- the whole row at once

    def direct(self) -> None:
        """Writes the reduction of a row that is held in registers."""
        texts = self._inputs(broadcast=True)
        if len(texts) > 1:
            self.emitter.lines += [f"{name} = {text}" for name, text in zip(self.names, texts)]
            texts = self.names
        self.emitter.lines.append(f"{', '.join(self.names)} = {self._fold(texts)}")

    def nothing(self) -> None:
        """Writes the result for a row without elements."""
        shape = self.emitter.shape(self.row)
        for name, part in zip(self.names, self.parts):
            self.emitter.lines.append(f"{name} = tl.full({shape}, {part.identity}, {COMPUTE[part.kind]})")

    # ---- shared rows

    def write(self, scratch: list[str]) -> None:
        """Stores this program's partial result of the row to scratch memory."""
        for name, buf in zip(self.names, scratch):
            mask = self.emitter.mask(ROW)
            at = f"{self.emitter.pointer_to(buf)} + (chunk * xnumel + xindex)"
            self.emitter.lines.append(f"tl.store({at}, {name}{', ' + mask if mask else ''})")

    def read(self, scratch: list[str]) -> None:
        """Loads the partial results of all programs and combines them."""
        e = self.emitter
        for name, buf, part in zip(self.names, scratch, self.parts):
            mask = e.mask(ROW)
            at = f"{e.pointer_to(buf)} + (tl.arange(0, SPLIT)[None, :] * xnumel + xindex)"
            options = f", {mask}, {part.identity}" if mask else ""
            e.lines.append(f"{name} = tl.load({at}{options}{e.shared_loads})")
        self.combine()

    def write_whole(self, scratch: list[str]) -> None:
        """Stores the combined result of the row to scratch memory."""
        mask = self.emitter.mask(ROW)
        for name, buf in zip(self.names, scratch):
            at = f"{self.emitter.pointer_to(buf)} + xindex"
            self.emitter.lines.append(f"tl.store({at}, {name}{', ' + mask if mask else ''})")

    def read_whole(self, scratch: list[str]) -> None:
        """Loads the combined result of the row."""
        mask = self.emitter.mask(ROW)
        for name, buf in zip(self.names, scratch):
            at = f"{self.emitter.pointer_to(buf)} + xindex"
            self.emitter.lines.append(f"{name} = tl.load({at}{', ' + mask if mask else ''})")

    def results(self) -> None:
        """Registers the results with the emitter."""
        e = self.emitter
        if self.top:
            a, b = self.names
            e.lines.append(f"{a}c, {b}c = {self._call('online_close', [a, b])}")
            e.define(self.top, Piece(f"{a}c", self.parts[0].kind, ROW))
            e.define(self.value, Piece(f"{b}c", self.parts[1].kind, ROW))
        else:
            e.define(self.value, Piece(self.names[-1], self.parts[-1].kind, self.row))
