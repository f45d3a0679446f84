"""Writes the C++ statements of a kernel that load, compute and store values; `kernel.py` writes the loops around them.

A row is everything that is computed for one point of the outer loops. A value is defined at its first use: once per row
if it does not vary along the inner loops, otherwise in the body of the inner loop that uses it. Its C variable is a
SIMD vector if it is defined inside the vectorized loop, otherwise a scalar.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...errors import Unsupported
from ...ir.size import AnySize, same
from ...schedule.index import Affine, Index, add, variable
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

Pairs = tuple[tuple[str, Val], ...]  # the indirect symbols of an index and their values
_NO_OPERANDS = ("load", "masked_load", "wrap", "index", "constant", "reduction")  # may not read all operands


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
        self._spilled: dict[Val, str] = {}  # the array in which each of these values is kept for later phases
        self._spill_ready: set[Val] = set()

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
        if value.op in _NO_OPERANDS or (value in self._spilled and value in self._spill_ready):
            return ()
        truth = self._truth(value.args[0]) if value.op == "where" else None
        return value.args if truth is None else (value.args[1 if truth else 2],)

    def emit(self, kind: str, vector: bool, text: str) -> str:
        """Defines a new C variable in the current scope and returns its name."""
        name = self.fresh()
        self.lines.append(f"const {(VECTOR if vector else SCALAR)[kind]} {name} = {text};")
        return name

    def _define(self, value: Val) -> str:
        vector = self.is_vector(value)
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
        if value.op == "constant":
            text = literal(value.attrs[1], value.kind)
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
        text = self.as_kind(value.args[0], value.kind, vector)
        if value.dtype in WRAP:
            text = f"{WRAP[value.dtype]}({text})"
        return self.emit(value.kind, vector, text)

    def _truth(self, value: Val) -> bool | None:
        """The value of a condition throughout the current segment, or None if it is not fixed."""
        if value.op in ("logical_and", "bitwise_and"):
            known = [self._truth(a) for a in value.args]
            return False if False in known else True if all(known) else None
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

    # ---- memory

    def step(self, index: Index) -> AnySize | None:
        """The stride of an index along the vector variable, or None if it is not constant."""
        var = self.axes.vector or ""
        if isinstance(index, Affine):
            return index.coef(var)
        return None if var in index.names() else 0

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
        mask = self.get(value.args[0], vector) if masked else None
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
            return self.emit(value.kind, True, f"ld({p} + {at}{rest})")
        if not pairs and step is not None and same(step, 0) and not masked:
            return self.emit(value.kind, True, f"bcast(ld1({p} + {at}))")
        if pairs and isinstance(index, Affine) and mask is None:
            return self._gather_affine(value.kind, index, pairs, p)
        return self._gather(value.kind, pairs, f"ld1({p} + {self._lane_text(index)})", mask)

    def _gather_affine(self, kind: str, index: Affine, pairs: Pairs, pointer: str) -> str:
        """A load of elements whose places are a sum over indices that vary by lane, and the place in the vector."""
        varying = dict(pairs)
        step = index.coef(self.axes.vector or "")
        places = [] if same(step, 0) else [_times("iota_l()", self.printer.size(step))]
        for name, value in varying.items():
            places.append(_times(self.as_kind(value, "l", True), self.printer.size(index.coef(name))))
        start = self.printer.index(index.substitute({name: Affine() for name in varying}))
        rest = f", {self.tail}" if self.tail else ""
        return self.emit(kind, True, f"gather<{VECTOR[kind]}>({pointer} + {start}, {' + '.join(places)}{rest})")

    def _gather(self, kind: str, pairs: Pairs, text: str, mask: str | None = None) -> str:
        setup = self._symbols(pairs, True)
        name = self.fresh()
        self.lines.append(f"{VECTOR[kind]} {name} = {{}};")
        guard = f"if (lane({mask}, k)) " if mask else ""
        self.lines.append(f"for (int k = 0; k < {self._lanes()}; ++k) {guard}{{ {setup}setlane({name}, k, {text}); }}")
        return name

    def _wrap(self, value: Val, vector: bool) -> str:
        """An index with negative values counted from the end. One out of bounds sets the status word and becomes 0."""
        text = self.as_kind(value.args[0], "l", vector)
        if len(value.attrs) > 1:  # certain to be within bounds
            return text
        size = self.printer.size(value.attrs[0])
        masks = [self.get(m, vector) for m in value.args[1:]]
        if vector and self.tail:
            masks.append(f"first({self.tail})")
        mask = " & ".join(masks) or "bcast(true)" if vector else " & ".join(masks) or "true"
        return self.emit("l", vector, f"wrap_index({text}, (int64_t){size}, {mask}, {self.pointer_to(STATUS)})")

    def _index_value(self, value: Val, vector: bool) -> str:
        index, names = value.attrs
        index, pairs = self._settled(index, tuple(zip(names, value.args)), vector)
        if not vector:
            return self.emit(value.kind, False, f"({SCALAR[value.kind]})({self.printer.index(index)})")
        step = self.step(index)
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
        else:
            self._scatter(store, p, text, True)

    def _scatter(self, store: Store, p: str, text: str, vector: bool) -> None:
        at, pairs = self._settled(store.index, store.symbols, vector)
        index = self._lane_text(at) if vector else self.printer.index(at)
        setup = self._symbols(pairs, vector)
        value = f"lane({text}, k)"
        if store.mode not in ("assign", "add"):
            raise Unsupported(f"stores of mode {store.mode} on the CPU")
        if store.mode == "add":
            value = f"ld1({p} + {index}) + {value}"
        count = self._lanes() if vector else "1"
        self.lines.append(f"for (int k = 0; k < {count}; ++k) {{ {setup}st1({p} + {index}, {value}); }}")
