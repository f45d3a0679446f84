"""Writes the lines of a Triton kernel that compute its values. A value is defined at its first use, at row level or
inside a loop.

The text of a value denotes a tensor of the tile's rank with extent 1 along the axes on which it does not vary, or a
scalar if it varies on none. Arithmetic therefore broadcasts implicitly, and only pointers must be widened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import Unsupported
from ...ir.size import Size
from ...schedule.index import Affine, Index, variable
from ..emitter import HostNumber, KernelWriter
from ..printer import TritonPrinter
from ..values import DEEP, STATUS, Store, Val, Values, deep_operands, kind_of
from .axes import Axes
from .ops import (
    ARITHMETIC,
    COMPARISON,
    COMPUTE,
    ELEMENT,
    LOGIC,
    NATIVE,
    NUMBER,
    PREDICATE,
    RANK,
    ROUGH,
    AnyTemplate,
    Template,
    arithmetic,
    conversion,
    literal,
    prelude,
)
from .span import fits_int32, span

Pairs = tuple[tuple[str, Val], ...]  # the indirect symbols of an index and their values
NONE: frozenset[str] = frozenset()


def _operands(value: Val) -> Sequence[Val]:
    """The operands that computing a value always reads."""
    apart = value.op in ("load", "masked_load", "wrap", "index", "constant", "reduction")
    return () if apart else value.args


def _sums_exp(value: Val) -> bool:
    return value.op == "reduction" and value.attrs[0] == "sum" and value.args[0].op == "exp"


def _has_exact_inverse(value: Val) -> bool:
    """Whether a value is a floating-point constant by which dividing is the same as multiplying by its inverse."""
    if value.op != "constant" or value.kind not in "fd":
        return False
    fraction, exponent = math.frexp(value.attrs[1])
    return abs(fraction) == 0.5 and abs(exponent) < 100


@dataclass(frozen=True)
class Piece:
    """The text of a value, the compute type that the text has, and the axes on which it varies."""

    text: str
    kind: str
    axes: frozenset[str]


class Emitter(KernelWriter):
    """Writes the lines of one kernel. `masked` are the axes with lanes beyond the end; `rough` is as in
    `ops.arithmetic`."""

    def __init__(self, values: Values, axes: Axes, dtypes: Mapping[str, str], rough: bool) -> None:
        super().__init__(dtypes)
        self.printer = TritonPrinter()
        self.values, self.axes, self.rough = values, axes, rough
        self.used: set[str] = set()  # functions of the prelude, or `libdevice`
        self.masked: set[str] = set()
        self.row_lines = self.lines
        self._row: dict[Val, Piece] = {}
        self._loop: dict[Val, Piece] | None = None  # None outside loops over the row

    # ---- scopes

    @contextmanager
    def loop(self) -> Iterator[list[str]]:
        """The scope of a loop over blocks of the row. Yields the list that collects the lines of its body."""
        self._loop, self.lines = {}, []
        yield self.lines
        self._loop, self.lines = None, self.row_lines

    def emit(self, kind: str, axes: frozenset[str], text: str) -> Piece:
        """Assigns `text` to a new variable in the current scope and returns it."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return Piece(name, kind, axes)

    def define(self, value: Val, piece: Piece) -> None:
        """Registers the piece of a value that is computed in its own way, such as the result of a reduction."""
        scope = self._loop if self._loop is not None and self.in_loop(value) else self._row
        scope[value] = piece

    def in_loop(self, value: Val) -> bool:
        """Whether a value is computed in each step of a loop, rather than before it."""
        return value.loop

    def forget(self, value: Val) -> None:
        """Lets the next use of a value compute it again."""
        self._row.pop(value, None)

    def get(self, value: Val) -> Piece:
        """The piece of a value; emits its computation if it is new in this scope."""
        if value.depth > DEEP and not self._is_known(value):
            for operand in deep_operands(value, self._is_known, _operands):
                self.get(operand)
        if self._loop is not None and self.in_loop(value):
            if value not in self._loop:
                self._loop[value] = self._compute(value)
            return self._loop[value]
        if value not in self._row:
            state = self.lines, self._loop
            self.lines, self._loop = self.row_lines, None
            self._row[value] = self._compute(value)
            self.lines, self._loop = state
        return self._row[value]

    def _is_known(self, value: Val) -> bool:
        return value in (self._loop if self._loop is not None and self.in_loop(value) else self._row)

    # ---- shapes

    def shape(self, axes: frozenset[str]) -> str:
        """The shape, as text, of a tensor that varies on these axes."""
        return "[" + ", ".join(f"{a.letter.upper()}BLOCK" if a.letter in axes else "1" for a in self.axes.tile) + "]"

    def whole(self) -> frozenset[str]:
        """Every axis of the tile."""
        return frozenset(a.letter for a in self.axes.tile)

    def mask(self, axes: frozenset[str], *more: str) -> str:
        """The mask of lanes that exist and for which all of `more` hold; empty if that is every lane."""
        return " & ".join([f"{a.letter}mask" for a in self.axes.tile if a.letter in axes & self.masked] + list(more))

    def index(self, index: Index, pairs: Pairs) -> Piece:
        """The text of an index and the axes on which it varies."""
        pieces = {name: self.get(value) for name, value in pairs}
        axes = NONE.union(*(p.axes for p in pieces.values()))
        axes |= {self.axes.letters[n] for n in index.names() if n in self.axes.letters}
        named = index.substitute({n: variable(p.text) for n, p in pieces.items()})
        return Piece(self.printer.index(named), "i", axes)

    def pointer(self, buf: str, at: Piece, axes: frozenset[str]) -> str:
        """The text of a pointer to an element of a buffer, broadcast to at least these axes."""
        text = f"{self.pointer_to(buf)} + ({at.text})"
        if axes <= at.axes:
            return text
        return f"{text} + tl.zeros({self.shape(axes | at.axes)}, tl.int32)"

    # ---- values

    def fill(self, template: AnyTemplate, *operands: str) -> str:
        """The text of a template with these operands."""
        if isinstance(template, Template):
            self.used.add(template.uses)
            template = template.text
        return template.format(*operands)

    def converted(self, piece: Piece, kind: str) -> str:
        """The text of a piece converted to a compute type."""
        return self.fill(conversion(piece.kind, kind), piece.text)

    def as_kind(self, value: Val, kind: str) -> str:
        """The text of a value converted to a compute type."""
        return self.converted(self.get(value), kind)

    def _compute(self, value: Val) -> Piece:
        match value.op:
            case "load" | "masked_load":
                return self._load(value)
            case "wrap":
                return self._wrap(value)
            case "index":
                return self._index_value(value)
            case "constant":
                return self.emit(value.kind, NONE, f"tl.full([], {literal(value.attrs[1], value.kind)}, "
                                                   f"{COMPUTE[value.kind]})")  # fmt: skip
            case "to_dtype":
                return self._to_dtype(value)
            case "bitcast":
                return self._bitcast(value)
            case "as_stored":
                text = self.as_kind(value.args[0], "f")
                return self.emit("f", self._axes(value), f"({text}).to({ELEMENT[value.attrs[0]]}).to(tl.float32)")
            case "where":
                return self._where(value)
            case "reduction":
                return self.reduced(value)
            case "scan":
                return self.scanned(value)
            case "sort":
                return self.ordered(value)
        if value.op in COMPARISON:
            return self._comparison(value)
        axes = self._axes(value)
        if value.op in PREDICATE:
            return self.emit("m", axes, PREDICATE[value.op].format(self.get(value.args[0]).text))
        if value.op in LOGIC:
            return self.emit("m", axes, LOGIC[value.op].format(*(self.as_kind(a, "m") for a in value.args)))
        if value.op not in ARITHMETIC:
            raise Unsupported(f"op {value.op}")
        # What is computed once per row costs little, and all elements share its error.
        rough = self.rough and (value.loop or not self.values.inner)
        template = arithmetic(value.op, value.kind, rough)
        if template == ROUGH["div"] and _sums_exp(value.args[1]):
            template = "{0} * (1.0 / {1})"  # one division per row; the sum is too large for its reciprocal to be inf
        elif value.op == "div" and _has_exact_inverse(value.args[1]):
            template = f"{{0}} * {1 / value.args[1].attrs[1]!r}"
        if value.op == "random_bits" and self.in_pairs(value.args[2]):
            template = prelude("random_pairs", 3)
        return self._wrapped(value, template, axes)

    def in_pairs(self, counter: Val) -> bool:
        """Whether neighbours along the last axis, two by two, certainly have the counters 2 * n and 2 * n + 1."""
        return False

    def varies(self, value: Val) -> bool:
        """Whether a value may vary from row to row."""
        return True

    def reduced(self, value: Val) -> Piece:
        """The result of a reduction that this kernel does not compute itself. Unsupported unless overridden."""
        raise Unsupported("a reduction used before it is complete")

    def scanned(self, value: Val) -> Piece:
        """The results of a scan. Unsupported unless overridden."""
        raise Unsupported("a scan in a kernel that does not run through rows in order")

    def ordered(self, value: Val) -> Piece:
        """The results of a sort. Unsupported unless overridden."""
        raise Unsupported("a sort in a kernel that does not hold rows")

    def _axes(self, value: Val) -> frozenset[str]:
        return NONE.union(*(self.get(a).axes for a in value.args if a.op != "constant"))

    def _wrapped(self, value: Val, template: AnyTemplate, axes: frozenset[str]) -> Piece:
        """Emits an arithmetic op. Results of integer dtypes narrower than int32 wrap around as in their dtype."""
        inline = template.takes_numbers if isinstance(template, Template) else True
        text = self.fill(template, *self._operands(value.args, value.kind, inline))
        if value.kind == "i" and value.dtype != "int32":
            text = f"({text}).to({ELEMENT[value.dtype]}).to(tl.int32)"
        return self.emit(value.kind, axes, text)

    def _operands(self, args: tuple[Val, ...], kind: str, inline: bool = True) -> list[str]:
        """The texts of operands in one compute type. Constants become literals if another operand fixes the type."""
        typed = any(a.op != "constant" for a in args)
        return [
            literal(a.attrs[1], kind)
            if a.op == "constant" and inline and typed and kind in "fil"
            else self.as_kind(a, kind)
            for a in args
        ]

    def _comparison(self, value: Val) -> Piece:
        axes, args = self._axes(value), value.args
        kinds = [self._constant_kind(a) if a.op == "constant" else self.get(a).kind for a in args]
        # Triton would compare int1 as a signed number, so bool is widened.
        kind = max([*kinds, "i"], key=RANK.index)
        left, right = self._operands(args, kind)
        return self.emit("m", axes, f"{left} {COMPARISON[value.op]} {right}")

    @staticmethod
    def _constant_kind(value: Val) -> str:
        """The narrowest compute type of a constant, so that comparing an index with it can stay in 32 bits."""
        small = value.kind == "l" and -(2**31) <= value.attrs[1] < 2**31
        return "i" if small else value.kind

    def _where(self, value: Val) -> Piece:
        condition, *choices = value.args
        a, b = self._operands(tuple(choices), value.kind)
        return self.emit(value.kind, self._axes(value), f"tl.where({self.as_kind(condition, 'm')}, {a}, {b})")

    def _to_dtype(self, value: Val) -> Piece:
        piece = self.get(value.args[0])
        text = self.converted(piece, value.kind)
        if value.kind == "i" and value.dtype != "int32":
            text = f"{piece.text}.to({ELEMENT[value.dtype]}).to(tl.int32)" if piece.kind in "il" else (
                f"{text}.to({ELEMENT[value.dtype]}).to(tl.int32)")  # fmt: skip
        return piece if text == piece.text else self.emit(value.kind, piece.axes, text)

    def _bitcast(self, value: Val) -> Piece:
        source, piece = value.args[0], self.get(value.args[0])
        text = piece.text if source.dtype in NATIVE else f"{piece.text}.to({ELEMENT[source.dtype]})"
        text = f"{text}.to({ELEMENT[value.dtype]}, bitcast=True)"
        return self.emit(value.kind, piece.axes, text + self.widened(value.dtype))

    @staticmethod
    def widened(dtype: str) -> str:
        """What converts a value of a dtype, as it is in memory, to its compute type."""
        return "" if dtype in NATIVE else f".to({COMPUTE[kind_of(dtype)]})"

    # ---- memory

    def _load(self, value: Val) -> Piece:
        buf, index, names = value.attrs
        if buf in self.values.by_value:
            return self._host_number(value)
        text, axes = self.load_text(value)
        return self.emit(value.kind, axes, text + self.widened(self.dtypes[buf]))

    def load_text(self, value: Val, *more: str) -> tuple[str, frozenset[str]]:
        """The text of a load, in the dtype of the buffer, of lanes for which all of `more` hold; and its axes."""
        buf, index, names = value.attrs
        masked = value.op == "masked_load"
        at = self.index(index, tuple(zip(names, value.args[masked:])))
        axes = at.axes
        if masked:
            condition = self.get(value.args[0])
            axes, more = axes | condition.axes, (*more, self.converted(condition, "m"))
        mask = self.mask(axes, *more)
        options = f", {mask}" if mask else ""
        return f"tl.load({self.pointer(buf, at, axes)}{options}{self.eviction(value)})", axes

    def _host_number(self, value: Val) -> Piece:
        """A load from a buffer on the CPU. Unsupported if it is not always of the same element."""
        buf, index, _ = value.attrs
        if not isinstance(index, Affine) or index.terms or type(index.const) is not int or value.dtype not in NUMBER:
            raise Unsupported(f"a kernel on a GPU reads {value.dtype} elements of a tensor on the CPU")
        return self.emit(value.kind, NONE, self.pointer_to(HostNumber(buf, index.const)))

    def eviction(self, value: Val) -> str:
        """The text of a load's eviction policy option, if any."""
        return ""

    def _wrap(self, value: Val) -> Piece:
        """An index with negative values counted from the end. One out of bounds sets the status word and becomes 0."""
        piece, size = self.get(value.args[0]), value.attrs[0]
        if len(value.attrs) > 1:  # certain to be within bounds
            kind = "l" if self.wide else "i"
            return Piece(self.converted(piece, kind), kind, piece.axes)
        masks = [self.as_kind(m, "m") for m in value.args[1:]]
        axes = self._axes(value)
        mask = self.mask(axes, *masks) or "True"
        operands = self.converted(piece, "l"), self.printer.size(size), mask, self.pointer_to(STATUS)
        text = self.fill(prelude("wrap_index", 4), *operands)
        narrow = fits_int32((0, size)) and not self.wide
        return self.emit("i" if narrow else "l", axes, text + (".to(tl.int32)" if narrow else ""))

    taken = "rmask"  # the text of the mask of the elements that a reduction takes; set by the kernel
    wide = False  # whether indices need 64 bits; set by the kernel
    backward = False  # whether rows are run through from their end; set by the kernel
    shared_loads = ""  # the text of an option of loads of partial results; set by the kernel
    group = 1  # the number of neighbours along r that one thread holds; set by the kernel

    def _index_value(self, value: Val) -> Piece:
        index, names = value.attrs
        at = self.index(index, tuple(zip(names, value.args)))
        kind = "l" if self.wide else "i"
        if not at.axes:
            number = not names and not index.names() and not isinstance(index.const, Size)
            return self.emit(kind, NONE, f"tl.full([], {at.text}, {COMPUTE[kind]})" if number else at.text)
        if value.kind in "fd":
            return self.emit(value.kind, at.axes, f"({at.text}).to({COMPUTE[value.kind]})")
        return self.emit(kind, at.axes, at.text)

    def store(self, store: Store, *, only: str = "") -> None:
        """Emits a store, masked to the lanes that exist, whose indices are within bounds and for which `only` holds."""
        value = self.get(store.value)
        at = self.index(store.index, store.symbols)
        axes = at.axes | value.axes
        if store.mode != "assign":  # each point changes the element, also those of which nothing varies
            axes |= self.whole() if store.loop else self.whole() - {"r"}
        conditions = [only] if only else []
        if store.where is not None:
            axes |= self.get(store.where).axes
            conditions.append(f"({self.as_kind(store.where, 'm')})")
        pointer = self.pointer(store.buf, at, axes)
        text = self.converted(value, kind_of(self.dtypes[store.buf]))
        wrapped = [(self.as_kind(v.args[0], "l"), self.printer.size(v.attrs[0])) for _, v in store.symbols]
        bounds = [self.fill(prelude("inside", 2), *operands) for operands in wrapped]
        mask = self.mask(axes, *conditions, *bounds)
        options = f", {mask}" if mask else ""
        if store.mode == "assign":
            self.lines.append(f"tl.store({pointer}, {text}{options})")
        elif self.dtypes[store.buf] in ("bool", "int8", "uint8", "int16"):
            raise Unsupported(f"atomic changes of {self.dtypes[store.buf]}")
        elif store.mode == "mul":
            operands = f"({pointer})", f"({text})", self.pointer_to(store.buf), mask or "True"
            self.lines.append(self.fill(prelude("atomic_multiply", 4), *operands))
        else:
            self.lines.append(f'tl.atomic_{store.mode}({pointer}, {text}{options}, sem="relaxed")')

    def widest(self) -> bool:
        """Whether computing some index may exceed 32 bits."""
        sizes, wide = self.axes.sizes, False
        for value in self.values.table.values():
            if value.op in ("load", "masked_load", "index"):
                index, names = (value.attrs[1], value.attrs[2]) if value.op != "index" else value.attrs
                used = value.args[len(value.args) - len(names) :]
                wide = wide or not fits_int32(span(index, sizes, dict(zip(names, used))))
        for store in self.values.stores:
            wide = wide or not fits_int32(span(store.index, sizes, dict(store.symbols)))
        return wide or any(a.size >= 2**31 for a in self.axes.tile)
