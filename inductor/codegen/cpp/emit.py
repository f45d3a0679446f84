"""Writes the C++ statements of a kernel that load, compute and store values; `kernel.py` writes the loops around them.

A row is everything that is computed for one point of the outer loops. A value is defined at its first use: once per row
if it does not vary along the inner loops, otherwise in the body of the inner loop that uses it. Its C variable is a
SIMD vector if it is defined inside the vectorized loop, otherwise a scalar.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...errors import Unsupported
from ...ir.size import AnySize, same
from ...schedule.index import Affine, FloorDiv, Index, add, simplified, variable
from ..emitter import KernelWriter
from ..printer import CppPrinter
from ..values import DEEP, DIVISIONS, STATUS, Store, Val, deep_operands
from .axes import Axes
from .ops import (
    ARITHMETIC,
    COMPARISON,
    LOGIC,
    MEMORY,
    PREDICATE,
    RANK,
    ROUND,
    SCALAR,
    VECTOR,
    WRAP,
    convert,
    literal,
)
from .tables import Table

Pairs = tuple[tuple[str, Val], ...]  # the indirect symbols of an index and their values
PREFETCH_BYTES = 4096  # beyond the page that is read: up to its end, processors load ahead by themselves
_SHUFFLED = (2, 3, -1)  # distances of elements that `ld_step` of tiles.h loads by whole vectors
_REPEATS = (2, 4)  # how often `ld_repeat` repeats each element; divides the number of lanes
_CARRY = {"f": "double", "d": "double", "l": "int64_t"}  # the C type of running sums, by compute type
_NO_OPERANDS = ("load", "masked_load", "wrap", "index", "constant", "reduction")  # may not read all operands


@dataclass
class Tile:
    """A square of points, along the vector variable and the variable `across`, that begins at the value of `origin`.
    What is contiguous along `across` is loaded before the loops over the square, and stored after them, a vector for
    each value of `across`; `at` is the C text of the position of that value in the square. `rows` and `columns` are
    C texts of how many values of the vector variable and of `across` it has, None for W."""

    across: str
    origin: str
    at: str
    rows: str | None = None
    columns: str | None = None
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    loaded: dict[Any, str] = field(default_factory=dict)

    def limits(self) -> str:
        """The last arguments of the functions that load and store a tile."""
        return f", {self.rows}, {self.columns}" if self.rows else ""


def _times(vector: str, factor: str) -> str:
    return vector if factor == "1" else f"{vector} * (int64_t){factor}"


class Emitter(KernelWriter):
    """Writes the statements of one kernel."""

    def __init__(self, axes: Axes, dtypes: Mapping[str, str]) -> None:
        super().__init__(dtypes)
        self.printer = CppPrinter()
        self.axes = axes
        self.tail: str | None = None  # C text: how many lanes are valid, None for all
        self._row_lines: list[str] = []
        self._row: dict[Val, str] = {}
        self._loop: dict[Val, str] | None = None
        self._segment: tuple[int, int] | None = None  # bounds of the vector variable in the loop being written
        self._tile: Tile | None = None  # in the loops over a tile
        self._reads_ahead = False  # in the first pass over rows that are read once
        # In the code for several rows at once (a block of columns, whose vectors are rows): the head of the loop over
        # them, their number, and the C text of the number of a row. A value of a row is then an array.
        self._block: str | None = None
        self._block_size, self._block_slot = "", "u"
        self._carries: dict[Val, str] = {}  # the variable with the running sum of each scan before the current vector
        self._spilled: dict[Val, str] = {}  # the array in which each of these values is kept for later phases
        self._spill_ready: set[Val] = set()
        self._tables: dict[Val, Table] = {}  # of values that are computed before all loops

    # ---- scopes

    def new_row(self, tail: str | None = None) -> None:
        """Begins the scope of a row, of which `tail` lanes are valid."""
        self._row, self._loop, self.tail = {}, None, tail
        self._row_lines = self.lines = []

    @contextmanager
    def loop_scope(self, tail: str | None) -> Iterator[list[str]]:
        """The scope of the body of a loop. Yields the list that collects its lines."""
        before = self.tail
        self._loop, self.lines, self.tail = {}, [], tail
        yield self.lines
        self._loop, self.lines, self.tail = None, self._row_lines, before

    # ---- values

    def is_vector(self, value: Val) -> bool:
        """Whether the C variable of a value is a vector."""
        return self.axes.vector_outer or (value.loop and self.axes.vector is not None)

    def get(self, value: Val, vector: bool) -> str:
        """The C name of a value, defined if necessary. A scalar is broadcast if `vector` is true."""
        if value.depth > DEEP and not self._is_known(value):
            for operand in deep_operands(value, self._is_known, self._operands):
                self.get(operand, vector=False)
        if value.loop:
            if self._loop is None:
                raise Unsupported("a value of the inner loop used outside it")
            if value not in self._loop:
                self._loop[value] = self._define(value)
            name = self._loop[value]
        else:
            if value not in self._row:
                state = self.lines, self._loop, self.tail
                self.lines = self._row_lines
                self._row[value] = self._define(value)
                self.lines, self._loop, self.tail = state
            name = self._row[value]
        return f"bcast({name})" if vector and not self.is_vector(value) else name

    def _is_known(self, value: Val) -> bool:
        """Whether a value already has a C name, or cannot be defined in the current scope."""
        if value.loop:
            return self._loop is None or value in self._loop
        return value in self._row

    def _operands(self, value: Val) -> Sequence[Val]:
        """The operands that `_define` always reads."""
        if value.op in _NO_OPERANDS or value in self._tables or value in self._spilled and value in self._spill_ready:
            return ()
        truth = self._truth(value.args[0]) if value.op == "where" else None
        return value.args if truth is None else (value.args[1 if truth else 2],)

    def emit(self, kind: str, vector: bool, text: str) -> str:
        """Defines a new C variable in the current scope and returns its name."""
        name = self.fresh()
        if self._block and self.lines is self._row_lines:
            element = f"{name}[{self._block_slot}]"
            kinds = VECTOR if vector else SCALAR
            self.lines.append(f"{kinds[kind]} {name}[{self._block_size}]; {self._block} {element} = {text}; }}")
            return element
        self.lines.append(f"const {(VECTOR if vector else SCALAR)[kind]} {name} = {text};")
        return name

    def _define(self, value: Val) -> str:
        vector = self.is_vector(value)
        if value in self._tables:
            return self.emit(value.kind, True, f"ld({self._tables[value].place()})")
        scratch = self._spilled.get(value)
        var = self.axes.inner[-1][0] if self.axes.inner else ""
        if scratch and value in self._spill_ready:
            return self.emit(value.kind, True, f"ld({scratch} + {var})")
        name = self._compute(value, vector)
        if scratch:
            self.lines.append(f"st({scratch} + {var}, {name});")
        return name

    def _compute(self, value: Val, vector: bool) -> str:
        if value.op in ("load", "masked_load"):
            return self._load(value, vector)
        if value.op == "wrap":
            return self._wrap(value, vector)
        if value.op == "index":
            return self._index_value(value, vector)
        if value.op == "scan":
            text = f"running_sum({self.as_kind(value.args[0], value.kind, True)}, {self._carries[value]})"
            return self.emit(value.kind, True, text)
        if value.op == "constant":
            text = literal(value.attrs[1], value.kind)
            if self._block:
                return f"bcast({text})" if vector else text
            return self.emit(value.kind, vector, f"bcast({text})" if vector else text)
        if value.op == "to_dtype":
            return self._to_dtype(value, vector)
        if value.op == "as_stored":
            return self.emit("f", vector, f"{ROUND[value.attrs[0]]}({self.as_kind(value.args[0], 'f', vector)})")
        if value.op == "where":
            c, a, b = value.args
            truth = self._truth(c)
            if truth is not None:
                return self.emit(value.kind, vector, self.as_kind(a if truth else b, value.kind, vector))
            text = (f"sel({convert(self.get(c, vector), c.kind, 'm')}, {self.as_kind(a, value.kind, vector)}, "
                    f"{self.as_kind(b, value.kind, vector)})")
            return self.emit(value.kind, vector, text)
        if value.op in COMPARISON:
            kind = max((a.kind for a in value.args), key=RANK.index)
            operands = ", ".join(self.as_kind(x, kind, vector) for x in value.args)
            return self.emit("m", vector, f"{COMPARISON[value.op]}({operands})")
        if value.op in PREDICATE:
            return self.emit("m", vector, PREDICATE[value.op].format(self.get(value.args[0], vector)))
        if value.op in LOGIC:
            args = [self.as_kind(a, "m", vector) for a in value.args]
            return self.emit("m", vector, LOGIC[value.op].format(*args))
        return self._arithmetic(value, vector)

    def as_kind(self, value: Val, kind: str, vector: bool) -> str:
        """The C text of a value converted to a compute type."""
        return convert(self.get(value, vector), value.kind, kind)

    def _arithmetic(self, value: Val, vector: bool) -> str:
        if value.op not in ARITHMETIC:
            raise Unsupported(f"op {value.op}")
        args = [self.as_kind(a, value.kind, vector) for a in value.args]
        if value.kind in "il" and value.op in DIVISIONS:
            self._check_divisor(value.args[1], args[1], vector)
        if value.kind in "il" and value.op in ("floor", "ceil", "trunc", "round"):
            return args[0]
        text = ARITHMETIC[value.op].format(*args)
        if value.dtype in WRAP:
            text = f"{WRAP[value.dtype]}({text})"
        return self.emit(value.kind, vector, text)

    def _check_divisor(self, divisor: Val, text: str, vector: bool) -> None:
        """Emits a check that sets the status word if the divisor is zero, unless it is a nonzero constant."""
        if divisor.op != "constant" or not divisor.attrs[1]:
            mask = f"first({self.tail})" if vector and self.tail else "bcast(true)" if vector else "true"
            self.lines.append(f"check_divisor({text}, {mask}, {self.pointer_to(STATUS)});")

    def _to_dtype(self, value: Val, vector: bool) -> str:
        choice = value.args[0]
        if choice.op == "where" and choice.kind in "il" and all(_is_small(a) for a in choice.args[1:]):
            a, b = (literal(each.attrs[1], value.kind) for each in choice.args[1:])
            c = self.as_kind(choice.args[0], "m", vector)
            return self.emit(value.kind, vector, f"sel({c}, bcast({a}), bcast({b}))" if vector else f"{c} ? {a} : {b}")
        text = self.as_kind(value.args[0], value.kind, vector)
        if value.dtype in WRAP:
            text = f"{WRAP[value.dtype]}({text})"
        return self.emit(value.kind, vector, text)

    def _truth(self, value: Val) -> bool | None:
        """The value of a condition throughout the current segment, or None if it is not fixed."""
        if value.op in ("logical_and", "bitwise_and"):
            known = [self._truth(a) for a in value.args]
            return False if False in known else True if all(known) else None
        if value.op == "logical_not":
            inner = self._truth(value.args[0])
            return None if inner is None else not inner
        if self._segment is None or value.op not in ("lt", "le", "gt", "ge"):
            return None
        left, right = value.args
        if left.op != "index" or right.op != "constant" or not isinstance(left.attrs[0], Affine):
            return None
        index = left.attrs[0]
        if index.names() != {self.axes.vector}:
            return None
        ends = [index.coef(self.axes.vector or "") * v + index.const for v in (self._segment[0], self._segment[1] - 1)]
        results = {getattr(operator, value.op)(end, right.attrs[1]) for end in ends}
        return results.pop() if len(results) == 1 else None

    def declare_carries(self, scans: Iterable[Val]) -> list[str]:
        """Declarations of the running sums of these scans at the begin of a row."""
        lines = []
        for value in sorted(scans, key=lambda scan: scan.id):
            if value.attrs != ("sum", False) or value.kind not in _CARRY or self.axes.vector_outer:
                raise Unsupported("this scan on the CPU")
            name = self._carries[value] = self.fresh("c")
            lines.append(f"{_CARRY[value.kind]} {name} = 0;")
        return lines

    # ---- memory

    def step(self, index: Index) -> AnySize | None:
        """The stride of an index along the vector variable, or None if it is not constant."""
        return index.coef(self.axes.vector or "")

    def _lanes(self) -> str:
        return self.tail or "W"

    def _lane_text(self, index: Index) -> str:
        var = self.axes.vector or ""
        return self.printer.index(index.substitute({var: add(variable(var), variable("k"))}))

    def _symbols(self, pairs: Pairs, vector: bool) -> str:
        """Declarations of the indirect symbols of an index for lane k."""
        return "".join(f"const int64_t {n} = lane({self.get(v, vector)}, k); " for n, v in pairs)

    def _settled(self, index: Index, pairs: Pairs, vector: bool) -> tuple[Index, Pairs]:
        """The index with its scalar indirect symbols replaced by C variables, and the remaining symbols."""
        scalars = {n: v for n, v in pairs if not (vector and self.is_vector(v))}
        env = {n: variable(self.get(v, False)) for n, v in scalars.items()}
        return index.substitute(env), tuple((n, v) for n, v in pairs if n not in scalars)

    def _load(self, value: Val, vector: bool) -> str:
        buf, index, names = value.attrs
        masked = value.op == "masked_load"
        truth = self._truth(value.args[0]) if masked else True
        if truth is False:
            zero = literal(0, value.kind)
            return self.emit(value.kind, vector, f"bcast({zero})" if vector else zero)
        first = int(masked)
        masked = masked and truth is None
        condition = self._undecided(value.args[0]) if masked else None
        if condition is not None and vector and not self.is_vector(condition):  # in all lanes alike
            return self._load_if(value, condition)
        mask = None if condition is None else self.get(condition, vector)
        p = self.pointer_to(buf)
        index, pairs = self._settled(index, tuple(zip(names, value.args[first:])), vector)
        at = self.printer.index(index)
        if not vector:
            text = f"ld1({p} + {at})"
            zero = f"({SCALAR[value.kind]})0"
            return self.emit(value.kind, False, f"{mask} ? {text} : {zero}" if masked else text)
        step = self.step(index)
        if not pairs and step is not None and same(step, 1):
            if masked:
                mask = f"{mask} & first({self.tail})" if self.tail else mask
                return self.emit(value.kind, True, f"ld_masked<{VECTOR[value.kind]}>({p} + {at}, {mask})")
            rest = f", {self.tail}" if self.tail else ""
            if self._reads_ahead and not self.axes.variables() - index.names():
                self.lines.append(f"__builtin_prefetch({p} + {at} + {PREFETCH_BYTES} / sizeof *{p});")
            return self.emit(value.kind, True, f"ld({p} + {at}{rest})")
        if not pairs and step is not None and same(step, 0) and not masked:
            return self.emit(value.kind, True, f"bcast(ld1({p} + {at}))")
        if not pairs and not masked:
            apart = self._load_tile(value.kind, p, index) or self._load_apart(value.kind, p, index, step)
            if apart is not None:
                return apart
        if pairs and isinstance(index, Affine) and mask is None:
            return self._gather_affine(value.kind, index, pairs, p)
        return self._gather(value.kind, pairs, f"ld1({p} + {self._lane_text(index)})", mask)

    def _undecided(self, condition: Val) -> Val:
        """The part of a condition that is not known to be true throughout the current segment."""
        while condition.op in ("logical_and", "bitwise_and"):
            rest = [each for each in condition.args if not self._truth(each)]
            if len(rest) != 1:
                break
            condition = rest[0]
        return condition

    def _load_if(self, value: Val, condition: Val) -> str:
        """A vector that is loaded if a scalar condition is true, and zero otherwise."""
        buf, index, names = value.attrs
        index, pairs = self._settled(index, tuple(zip(names, value.args[1:])), True)
        p, step, kind = self.pointer_to(buf), self.step(index), value.kind
        at, rest = self.printer.index(index), f", {self.tail}" if self.tail else ""
        if pairs or step is None:
            lane = f"[&](int k) {{ {self._symbols(pairs, True)}return ld1({p} + {self._lane_text(index)}); }}"
            text = f"each_of<{VECTOR[kind]}>({self._lanes()}, {lane})"
        elif same(step, 1):
            text = f"ld({p} + {at}{rest})"
        elif same(step, 0):
            text = f"bcast(ld1({p} + {at}))"
        elif type(step) is int and step in _SHUFFLED:
            text = f"ld_step<{VECTOR[kind]}, {step}>({p} + {at}{rest})"
        else:
            text = f"ld_apart<{VECTOR[kind]}>({p} + {at}, (int64_t){self.printer.size(step)}{rest})"
        return self.emit(kind, True, f"{self.get(condition, False)} ? {text} : {VECTOR[kind]}{{}}")

    def _load_tile(self, kind: str, pointer: str, index: Index) -> str | None:
        """A load from a tile, if one is contiguous across the vectors."""
        tile = self._tile
        if tile is None or not isinstance(index, Affine) or not same(index.coef(tile.across), 1):
            return None
        key = pointer, index
        if key not in tile.loaded:
            name = tile.loaded[key] = self.fresh("x")
            start, stride = self._tile_place(tile, index)
            load = f"ld_tile({name}, {pointer} + {start}, {stride}{tile.limits()});"
            tile.before += [f"{VECTOR[kind]} {name}[W];", load]
        return f"{tile.loaded[key]}[{tile.at}]"

    def _tile_place(self, tile: Tile, index: Affine) -> tuple[str, str]:
        """The place of the first element of a tile, and the distance of its rows in memory."""
        start = index.substitute({tile.across: variable(tile.origin)})
        return self.printer.index(start), self.printer.size(index.coef(self.axes.vector or ""))

    def _load_apart(self, kind: str, pointer: str, index: Index, step: AnySize | None) -> str | None:
        """A load of elements that are a fixed number apart, or each of which several lanes read."""
        rest = f", {self.tail}" if self.tail else ""
        if step is not None:
            at = self.printer.index(index)
            if type(step) is int and step in _SHUFFLED:
                return self.emit(kind, True, f"ld_step<{VECTOR[kind]}, {step}>({pointer} + {at}{rest})")
            distance = f"(int64_t){self.printer.size(step)}"
            return self.emit(kind, True, f"ld_apart<{VECTOR[kind]}>({pointer} + {at}, {distance}{rest})")
        times = repeats(index, self.axes.vector or "")
        if times in _REPEATS and (self._segment is None or self._segment[0] % times == 0):
            text = f"ld_repeat<{VECTOR[kind]}, {times}>({pointer} + {self.printer.index(index)}{rest})"
            return self.emit(kind, True, text)
        return None

    def _gather_affine(self, kind: str, index: Affine, pairs: Pairs, pointer: str) -> str:
        """A load of elements whose places are a sum over indices that vary by lane, and the place in the vector."""
        rest = f", {self.tail}" if self.tail else ""
        ((name, value), *more) = pairs
        if value in self._tables and not more and index.coef(name) == 1 and same(self.step(index) or 0, 0):
            start = self.printer.index(index.substitute({name: Affine()}))
            text = f"gather<{VECTOR[kind]}>({pointer} + {start}, {self._tables[value].place()}{rest})"
            return self.emit(kind, True, text)
        start, places = self._places(index, pairs)
        return self.emit(kind, True, f"gather<{VECTOR[kind]}>({pointer} + {start}, {places}{rest})")

    def _places(self, index: Affine, pairs: Pairs) -> tuple[str, str]:
        """The part of an index that is equal in all lanes, and the rest of it as a vector of int64."""
        varying = dict(pairs)
        step = index.coef(self.axes.vector or "")
        places = [] if same(step, 0) else [_times("iota_l()", self.printer.size(step))]
        for name, value in varying.items():
            places.append(_times(self.as_kind(value, "l", True), self.printer.size(index.coef(name))))
        return self.printer.index(index.substitute({name: Affine() for name in varying})), " + ".join(places)

    def _gather(self, kind: str, pairs: Pairs, text: str, mask: str | None = None) -> str:
        setup = self._symbols(pairs, True)
        if mask is None and self.tail is None:
            lane = f"[&](int k) __attribute__((always_inline)) {{ {setup}return {text}; }}"
            return self.emit(kind, True, f"each({lane}, {VECTOR[kind]}{{}})")
        name = self.fresh()
        self.lines.append(f"{VECTOR[kind]} {name} = {{}};")
        guard = f"if (lane({mask}, k)) " if mask else ""
        self.lines.append(f"for (int k = 0; k < {self._lanes()}; ++k) {guard}{{ {setup}setlane({name}, k, {text}); }}")
        return name

    def _wrap(self, value: Val, vector: bool) -> str:
        """An index with negative values counted from the end. One out of bounds sets the status word and becomes 0."""
        position, wraps = value.args[0], "wrap_index"
        if len(value.attrs) > 1:  # certain to be within bounds
            return self.as_kind(position, "l", vector)
        if (counted := _from_start(position, value.attrs[0])) is not None:
            position, wraps = counted, "check_index"
        text = self.as_kind(position, "l", vector)
        size = self.printer.size(value.attrs[0])
        masks = [self.get(m, vector) for m in value.args[1:]]
        if vector and self.tail:
            masks.append(f"first({self.tail})")
        mask = " & ".join(masks) or "bcast(true)" if vector else " & ".join(masks) or "true"
        return self.emit("l", vector, f"{wraps}({text}, (int64_t){size}, {mask}, {self.pointer_to(STATUS)})")

    def _index_value(self, value: Val, vector: bool) -> str:
        index, names = value.attrs
        index, pairs = self._settled(index, tuple(zip(names, value.args)), vector)
        if not vector:
            return self.emit(value.kind, False, f"({SCALAR[value.kind]})({self.printer.index(index)})")
        step = self.step(index)
        if pairs and isinstance(index, Affine):
            start, places = self._places(index, pairs)
            return self.emit(value.kind, True, convert(f"(bcast((int64_t)({start})) + {places})", "l", value.kind))
        if pairs or step is None:
            return self._gather(value.kind, pairs, f"({SCALAR[value.kind]})({self._lane_text(index)})")
        base = f"bcast((int64_t)({self.printer.index(index)}))"
        text = base if same(step, 0) else f"({base} + iota_l() * {self.printer.size(step)})"
        return self.emit(value.kind, True, convert(text, "l", value.kind))

    def prepare(self, store: Store) -> None:
        """Defines the value and the index of a store before it is written."""
        vector = self.axes.vector_outer or (store.loop and self.axes.vector is not None)
        for value in (store.value, *(v for _, v in store.symbols)):
            self.get(value, vector)

    def store(self, store: Store) -> None:
        """Writes a store."""
        p, step = self.pointer_to(store.buf), self.step(store.index)
        kind = {"float": "f", "bf16": "f", "f16": "f", "double": "d", "bool": "m", "int64_t": "l"}.get(
            MEMORY[self.dtypes[store.buf]], "i")
        vector = self.axes.vector_outer or (store.loop and self.axes.vector is not None)
        text = self.as_kind(store.value, kind, vector)
        if not vector:
            self._scatter(store, p, text, False)
        elif store.mode == "assign" and step is not None and same(step, 1) and not store.symbols:
            rest = f", {self.tail}" if self.tail else ""
            self.lines.append(f"st({p} + {self.printer.index(store.index)}, {text}{rest});")
        elif self.puts_row(store):
            self._put_row(store, p, text)
        elif self._is_tiled(store):
            self._store_tile(store, kind, p, text)
        else:
            self._scatter(store, p, text, True)

    def puts_row(self, store: Store) -> bool:
        """Whether a store adds to adjacent elements, or replaces those at a position that is loaded."""
        step = self.step(store.index)
        one_place = not any(self.is_vector(value) for _, value in store.symbols)
        put = store.mode == "add" or store.mode == "assign" and bool(store.symbols)
        return put and step is not None and same(step, 1) and one_place

    def _put_row(self, store: Store, pointer: str, text: str) -> None:
        """Adds a vector to adjacent elements, or stores it there."""
        at, _ = self._settled(store.index, store.symbols, True)
        place, rest = f"{pointer} + {self.printer.index(at)}", f", {self.tail}" if self.tail else ""
        before = f"ld({place}{rest}) + " if store.mode == "add" else ""
        self.lines.append(f"st({place}, {before}{text}{rest});")

    def _is_tiled(self, store: Store) -> bool:
        tile, index = self._tile, store.index
        if tile is None or store.mode != "assign" or store.symbols or not isinstance(index, Affine):
            return False
        return same(index.coef(tile.across), 1) and not same(index.coef(self.axes.vector or ""), 0)

    def _store_tile(self, store: Store, kind: str, pointer: str, text: str) -> None:
        tile, index = self._tile, store.index
        assert tile is not None and isinstance(index, Affine)
        name = self.fresh("x")
        start, stride = self._tile_place(tile, index)
        tile.before.append(f"{VECTOR[kind]} {name}[W];")
        self.lines.append(f"{name}[{tile.at}] = {text};")
        tile.after.append(f"st_tile({name}, {pointer} + {start}, {stride}{tile.limits()});")

    def _scatter(self, store: Store, p: str, text: str, vector: bool) -> None:
        at, pairs = self._settled(store.index, store.symbols, vector)
        index = self._lane_text(at) if vector else self.printer.index(at)
        places = self._loaded_places(store, pairs) if vector else None
        setup = self._symbols(pairs, vector) if places is None else places
        value = f"lane({text}, k)"
        if store.mode not in ("assign", "add"):
            raise Unsupported(f"stores of mode {store.mode} on the CPU")
        if store.mode == "add":
            value = f"ld1({p} + {index}) + {value}"
        count = self._lanes() if vector else "1"
        self.lines.append(f"for (int k = 0; k < {count}; ++k) {{ {setup}st1({p} + {index}, {value}); }}")

    def _loaded_places(self, store: Store, pairs: Pairs) -> str | None:
        """The declarations of `_symbols` by loads of single indices, which takes less time than to extract them from a
        vector. None if the indices are not loaded as they are."""
        found = []
        for name, value in pairs:
            if value.op != "wrap" or len(value.args) > 1 or len(value.attrs) > 1:
                return None
            counted = _from_start(value.args[0], value.attrs[0])
            index = value.args[0] if counted is None else counted
            if index.op != "load" or index.attrs[0] == store.buf or index.attrs[2]:
                return None
            place = f"(int64_t)ld1({self.pointer_to(index.attrs[0])} + {self._lane_text(index.attrs[1])})"
            check, size = "wrap_index" if counted is None else "check_index", self.printer.size(value.attrs[0])
            text = f"{check}({place}, (int64_t){size}, true, {self.pointer_to(STATUS)})"
            found.append(f"const int64_t {name} = {text}; ")
        return "".join(found)


def repeats(index: Index, var: str) -> int | None:
    """How many adjacent values of `var` have the same index, if it is the number of such values before that and a part
    that does not depend on `var`."""
    if isinstance(index, Affine):
        return None
    found = [(operand, coef) for operand, coef in index.terms if var in _names(operand)]
    if len(found) != 1:
        return None
    ((division, coef),) = found
    if not isinstance(division, FloorDiv) or not same(coef, 1) or type(division.divisor) is not int:
        return None
    return division.divisor if simplified(division.base, {}) == variable(var) else None


def _names(operand: Any) -> frozenset[str]:
    return frozenset([operand]) if isinstance(operand, str) else operand.names()


def _from_start(position: Val, size: AnySize) -> Val | None:
    """x, if `position` is x with negative values replaced by `size`: an index that does not count from the end."""
    if position.op != "where" or position.args[0].op != "lt":
        return None
    (x, zero), instead, other = position.args[0].args, *position.args[1:]
    if x is not other or zero.op != "constant" or instead.op != "constant" or type(size) is not int:
        return None
    return x if zero.attrs[1] == 0 and instead.attrs[1] == size else None


def _is_small(value: Val) -> bool:
    """Whether a value is a constant that every compute type represents: 0 or 1."""
    return value.op == "constant" and value.attrs[1] in (0, 1)
