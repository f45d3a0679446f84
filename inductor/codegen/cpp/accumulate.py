"""C++ code for one reduction: declares its accumulators, updates them in the loop, and computes the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import Unsupported
from ...ir.size import same
from ..values import Val
from .emit import Emitter
from .ops import SCALAR, VECTOR, literal

IDENTITY = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True,
            "argmax": -math.inf, "argmin": math.inf}
COMBINE = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "max_({0}, {1})", "min": "min_({0}, {1})",
           "any": "{0} | {1}", "all": "{0} & {1}"}
LIMITS = {"i": (-(2**31), 2**31 - 1), "l": (-(2**63), 2**63 - 1), "m": (0, 1)}


class Accumulator:
    """The accumulators of the reduction `value`: `name` is an array of vectors, `result` the C name of the result."""

    def __init__(self, emitter: Emitter, value: Val) -> None:
        self.emitter, self.value = emitter, value
        self.reduce: str = value.attrs[0]
        self.arg = value.args[0]
        self.position_of = value.position_of
        self.is_arg = self.position_of is not None
        self.kind = self.arg.kind if self.is_arg else value.kind
        if self.reduce not in IDENTITY:
            raise Unsupported(f"reduction {self.reduce}")
        # A lane sees positions in increasing order, so of equal elements it already holds the first.
        self.in_order = self.is_arg and len(emitter.axes.inner) == 1 and emitter.axes.inner[0][1] < 2**31 - 64
        self.name = emitter.fresh("a")
        self.result = f"{self.name}r"

    def identity(self) -> str:
        """The neutral element as a literal."""
        value = IDENTITY[self.reduce]
        if self.kind in LIMITS and isinstance(value, float):
            value = LIMITS[self.kind][value > 0]
        return literal(value, self.kind)

    def declare(self, unroll: int | str, lo: str = "0") -> list[str]:
        """The lines before the loops. `lo` is the first value of the vector variable."""
        n, vec = self.name, VECTOR[self.kind]
        lines = [f"{vec} {n}[{unroll}]; for (int u = 0; u < {unroll}; ++u) {n}[u] = bcast({self.identity()});"]
        if self.in_order:
            # Starts with the first position of each lane, which is correct even if all elements equal the identity.
            start = "iota_i()" if not self.emitter.axes.vector_outer else "vi{}"
            step = f" + (int32_t)({lo} + u * W)" if not self.emitter.axes.vector_outer else ""
            lines.append(f"vi {n}i[{unroll}]; for (int u = 0; u < {unroll}; ++u) {n}i[u] = {start}{step};")
        elif self.is_arg:
            lines.append(f"vl {n}i[{unroll}]; for (int u = 0; u < {unroll}; ++u) {n}i[u] = bcast((int64_t)INT64_MAX);")
        return lines

    def update(self, slot: str) -> None:
        """Writes the lines in the loop, for the accumulator with index `slot`."""
        e, acc = self.emitter, f"{self.name}[{slot}]"
        x = e.as_kind(self.arg, self.kind, True)
        mask = f"first({e.tail})" if e.tail and not e.axes.vector_outer else None
        if self.is_arg:
            self._update_arg(x, acc, f"{self.name}i[{slot}]", mask)
            return
        new = COMBINE[self.reduce].format(acc, x)
        e.lines.append(f"{acc} = {f'sel({mask}, {new}, {acc})' if mask else new};")

    def _update_arg(self, x: str, acc: str, at: str, mask: str | None) -> None:
        e, position = self.emitter, self.value.attrs[1]
        step = e.step(position)
        step = 0 if step is None else step
        text = e.printer.index(position)
        if self.in_order:
            here = f"(vi{{}} + (int32_t)({text}){'' if same(step, 0) else ' + iota_i()'})"
            win = f"beats_{self.position_of}({x}, {acc})"
            cond = f"{win} & {mask}" if mask else win
            e.lines.append(f"{{ const vm w = {cond}; {acc} = sel(w, {x}, {acc}); {at} = sel(w, {here}, {at}); }}")
            return
        here = e.emit("l", True, f"bcast((int64_t)({text})) + iota_l() * {e.printer.size(step)}")
        # The first element always replaces the initial state, even if it equals the identity.
        win = e.emit("m", True, f"beats_{self.position_of}({x}, {acc}) | (eq({at}, bcast((int64_t)INT64_MAX)) | "
                                f"(not_(beats_{self.position_of}({acc}, {x})) & lt({here}, {at})))")
        cond = f"{win} & {mask}" if mask else win
        e.lines.append(f"{{ const vm w = {cond}; {acc} = sel(w, {x}, {acc}); {at} = sel(w, {here}, {at}); }}")

    def finish(
        self, unroll: int, horizontal: bool, part: bool = False, slot: str = "0", several: bool = False
    ) -> list[str]:
        """The lines after the loops, which compute the result, or with `part` the partial result of part c. With
        `several`, a part has several chunks, and the chunk for which `begins` is true is its first."""
        n = self.name
        if self.is_arg:
            return self._finish_arg(unroll, horizontal, part, slot, several)
        total = self._total([slot, *map(str, range(1, unroll))])
        if not horizontal:
            return [f"const {VECTOR[self.kind]} {self.result} = {total};"]
        fold = "h" + self.reduce
        if part and several:
            joined = COMBINE[self.reduce].format(f"{n}p[c]", f"({self.wide}){n}q")
            return [f"const {SCALAR[self.kind]} {n}q = {fold}({total});",
                    f"if (begins) {n}p[c] = {n}q; else {n}p[c] = {joined};"]
        if part:
            return [f"{n}p[c] = {fold}({total});"]
        return [f"const {SCALAR[self.kind]} {self.result} = {fold}({total});"]

    def _total(self, slots: Sequence[str]) -> str:
        """The accumulators with these indices together."""
        total = f"{self.name}[{slots[0]}]"
        for slot in slots[1:]:
            total = "(" + COMBINE[self.reduce].format(total, f"{self.name}[{slot}]") + ")"
        return total

    def finish_rows(self, loop: str, row: str, unroll: int, count: str) -> str:
        """The line after the loops that computes an array of `count` results, one for each `row` of `loop`, which have
        `unroll` accumulators each."""
        total = self._total([f"{row} * {unroll} + {u}" for u in range(unroll)])
        kind = SCALAR[self.kind]
        return f"{kind} {self.result}[{count}]; {loop} {self.result}[{row}] = h{self.reduce}({total}); }}"

    def in_slot(self, slot: str) -> str:
        """The result of the accumulator with index `slot`, if that holds all of a row."""
        return f"to_l({self.name}i[{slot}])" if self.is_arg else f"{self.name}[{slot}]"

    def _finish_arg(self, unroll: int, horizontal: bool, part: bool, slot: str, several: bool) -> list[str]:
        n, beats = self.name, f"beats_{self.position_of}"
        lines = []
        for u in range(1, unroll):
            lines.append(f"{{ const vm w = {beats}({n}[{u}], {n}[0]) | (not_({beats}({n}[0], {n}[{u}])) & "
                         f"lt({n}i[{u}], {n}i[0])); {n}[0] = sel(w, {n}[{u}], {n}[0]); "
                         f"{n}i[0] = sel(w, {n}i[{u}], {n}i[0]); }}")
        if not horizontal:
            return [*lines, f"const vl {self.result} = to_l({n}i[{slot}]);"]
        if part and several:
            return [*lines, f"{SCALAR[self.kind]} {n}w; const int64_t {n}q = h{self.reduce}({n}[0], {n}i[0], {n}w);",
                    f"if (begins || {beats}({n}w, {n}v[c])) {{ {n}p[c] = {n}q; {n}v[c] = {n}w; }}"]
        if part:
            return [*lines, f"{n}p[c] = h{self.reduce}({n}[0], {n}i[0], {n}v[c]);"]
        return [*lines, f"{SCALAR[self.kind]} {n}v; const int64_t {self.result} = "
                        f"h{self.reduce}({n}[0], {n}i[0], {n}v);"]

    @property
    def wide(self) -> str:
        """The C type in which partial results are combined: sums of floats in double."""
        return "double" if self.kind == "f" and self.reduce == "sum" else SCALAR[self.kind]

    def declare_parts(self, count: str, several: bool) -> list[str]:
        """Declares the array of partial results, each of which covers one chunk or several."""
        n = self.name
        if self.is_arg:
            return [f"int64_t {n}p[{count}]; {SCALAR[self.kind]} {n}v[{count}];"]
        return [f"{self.wide if several else SCALAR[self.kind]} {n}p[{count}];"]

    def join_parts(self, count: str) -> list[str]:
        """Combines the partial results in order."""
        n, r = self.name, self.result
        if self.is_arg:
            return [f"int64_t {r} = {n}p[0]; {{ {SCALAR[self.kind]} v = {n}v[0]; for (int c = 1; c < {count}; ++c) "
                    f"if (beats_{self.position_of}({n}v[c], v)) {{ v = {n}v[c]; {r} = {n}p[c]; }} }}"]
        step = COMBINE[self.reduce].format(f"{r}w", f"{n}p[c]")
        return [f"{self.wide} {r}w = {n}p[0]; for (int c = 1; c < {count}; ++c) {r}w = {step};",
                f"const {SCALAR[self.kind]} {r} = ({SCALAR[self.kind]}){r}w;"]
