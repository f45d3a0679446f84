"""Generates one C++ function for a group.

For each point of the outer loops, a row is computed in phases. Each phase is one loop over the inner variables, which
computes the reductions and stores whose operands are available. Values that do not vary along the row are computed
between phases. Code is vectorized along the last inner variable, or along the last outer one if memory is contiguous
there (then every value of a row is a vector).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import Unsupported
from ...ir.ops import EXPENSIVE
from ...ir.size import AnySize, Size, ceil_of, hint, quotient, same
from ...schedule import score
from ...schedule.index import Affine
from ...schedule.node import Group
from ..values import DIVISIONS, Store, Val, Values
from .accumulate import Accumulator
from .axes import plan_axes
from .emit import Emitter, Tile
from .ops import MEMORY, SCALAR
from .tables import Table, chosen

UNROLL = 4
BLOCK = 64  # columns that are reduced together
MIN_BLOCKS = 4  # of several passes, so that there is work for several threads
MAX_ROWS, MAX_SUMS = 8, 16  # rows that are reduced together, and vectors of sums in registers
UNROLL_BLOCK, LONG_BODY = 16, 40  # their loop is unrolled, unless its body has more lines than this
MANY_POINTS = 1 << 18  # from here on, rows are not expected in the nearest caches
MAX_SEGMENTS = 5
CHUNK = 8192
LONG_ROW = 2 * CHUNK
MAX_PARTS = 1 << 14  # partial results of a long row; they are stored on the stack
MAX_SCRATCH = 16384
LANES_AT_MOST = 16


@dataclass(frozen=True)
class RowsAtOnce:
    """A rectangle of results that one loop reduces: `rows` values of the outer variable `row`, and `block` of the outer
    variable `column`, which has `columns` values."""

    row: str
    rows: int
    column: str
    columns: str
    block: int

    @property
    def count(self) -> int:
        """The number of results."""
        return self.rows * self.block

    def loop(self) -> str:
        """The head of the loop over blocks of columns."""
        return f"for (int64_t {self.column}b = 0; {self.column}b < {self.columns}; {self.column}b += {self.block})"

    def head(self) -> str:
        """The head of the loops over the results."""
        return " ".join(self._loops()) + " {"

    def unrolled(self) -> list[str]:
        """The same loops, unrolled."""
        rows, columns = self._loops()
        return [f"#pragma GCC unroll {self.rows}", rows, f"#pragma GCC unroll {self.block}", columns + " {"]

    def slot(self) -> str:
        """The C text of the number of a result."""
        return f"({self.row} * {self.block} + {self.column} - {self.column}b)"

    def _loops(self) -> tuple[str, str]:
        start, column = f"{self.column}b", self.column
        return (f"for (int64_t {self.row} = 0; {self.row} < {self.rows}; ++{self.row})",
                f"for (int64_t {column} = {start}; {column} < {start} + {self.block}; ++{column})")  # fmt: skip


class Kernel(Emitter):
    """The C++ function of a group. `text(name)` is its source and `bufs` the names of its buffer arguments."""

    def __init__(self, group: Group, dtypes: Mapping[str, str]) -> None:
        super().__init__(plan_axes(group), dtypes)
        inner = {v for v, _ in self.axes.inner}
        sizes = {v: size for v, size in (*self.axes.outer, *self.axes.inner)}
        self.values = Values(group, self.axes.renames, inner, dtypes, sizes)
        self.group = group
        self.plain = all(s.mode == "assign" and not s.symbols for s in self.values.stores)
        self.scans = any(value.op == "scan" for value in self.values.table.values())  # along the rows, in order
        self._shared = False  # in loops in which each thread has a part of the columns, from lo to hi
        if any(s.where is not None for s in self.values.stores):
            raise Unsupported("a store of some points of a loop")
        self._live = self._needed_by_phase()
        self.body = self._function_body()

    def text(self, name: str) -> str:
        """The source of the function, named `name`."""
        ints = " ints" if self.symbols else ""
        return f'extern "C" void {name}(void** bufs, const int64_t*{ints}) {{\n{self.body}}}\n'

    # ---- structure

    def _needed_by_phase(self) -> list[set[Val]]:
        phases = max([r.phase for r in self.values.reductions] + [s.phase + 1 for s in self.values.stores], default=0)
        live: list[set[Val]] = [set() for _ in range(phases)]

        def walk(value: Val, phase: int) -> None:
            stack = [value]
            while stack:
                top = stack.pop()
                if top.loop and top not in live[phase]:
                    live[phase].add(top)
                    stack.extend(top.args)

        for p in range(phases):
            for r in self._reductions(p):
                walk(r.args[0], p)
            for s in self._stores(p):
                walk(s.value, p)
                for _, v in s.symbols:
                    walk(v, p)
        return live

    def _reductions(self, phase: int) -> list[Val]:
        return [r for r in self.values.reductions if r.phase == phase + 1]

    def _stores(self, phase: int) -> list[Store]:
        return [s for s in self.values.stores if s.loop and s.phase == phase]

    def _function_body(self) -> str:
        together = self._rows_at_once()
        loops = [loop for loop in self.axes.outer if together is None or loop[0] != together.row]
        cost = len(self.values.table)
        divides = self.plain or self._apart((*loops, *self.axes.inner)[:1])
        parallel = divides and score.parallel(self.group.work(), cost)
        few = together is None and math.prod(hint(s) for _, s in loops) < 4
        self._parallel_inner = parallel and few and (self.plain or not loops) and not self.scans
        tables = self._fill_tables()
        lines = []
        if loops and parallel and not self._parallel_inner:
            several = len(loops) > 1 and self.plain
            lines.append(self._pragma() + (f" collapse({len(loops)})" if several else ""))
        if self.axes.vector_outer:
            lines = self._column_loops(loops, lines)
        elif self.axes.across is not None and not self._parallel_inner:
            lines += self._tiles(loops)
        elif self._puts_rows() and score.parallel(self.group.work(), cost):
            lines = self._shared_columns(loops)
        else:
            blocks = {together.column: together.loop()} if together else {}
            lines += [blocks.get(v) or self._for(v, s) for v, s in loops]
            lines += ["{", *(self._rows_body(together) if together else self._row_body(None)), "}"]
        head = [f"{MEMORY[self.dtypes[b]]}* b{i} = ({MEMORY[self.dtypes[b]]}*)bufs[{i}];"
                for i, b in enumerate(self.bufs)]
        self.symbols = sorted(self.printer.symbols)
        head += [f"const int64_t {name} = ints[{i}];" for i, name in enumerate(self.symbols)]
        return "".join(f"  {line}\n" for line in head + tables + lines)

    def _fill_tables(self) -> list[str]:
        """The code that computes values before all loops, and keeps them in tables."""
        lines: list[str] = []
        tables = {}
        for value, loops in chosen(self.axes, self.values.stores, self.values.reductions).items():
            table = tables[value] = Table(self.fresh("s"), loops)
            lines.append(f"alignas(64) {SCALAR[value.kind]} {table.name}[{table.count + LANES_AT_MOST}];")
            *outer, (var, size) = loops
            self.new_row()
            body: list[str] = []
            for tail in (None, f"({size} - {var})") if size % LANES_AT_MOST else (None,):
                with self.loop_scope(tail) as part:  # what is stored beyond a row is overwritten by the next one
                    part.append(f"st({table.place()}, {self.get(value, True)});")
                whole = f"{size} / W * W"
                body += [f"for (int64_t {var} = 0; {var} < {whole}; {var} += W) {{"] if tail is None else [
                    f"if ({whole} < {size}) {{", f"const int64_t {var} = {whole};"]  # fmt: skip
                body += [*part, "}"]
            lines += [*(self._for(v, n) for v, n in outer), "{", *self._row_lines, *body, "}"]
        self._tables = tables
        return lines

    def _apart(self, loop: tuple[tuple[str, AnySize], ...]) -> bool:
        """Whether what is added, or written to positions that are loaded, for one value of a loop's variable is apart
        in memory from that for any other one."""
        sizes = dict((*self.axes.outer, *self.axes.inner))
        for store in self.values.stores:
            if store.mode == "assign" and not store.symbols:
                continue
            extents = {**sizes, **{n: v.attrs[0] for n, v in store.symbols if v.op == "wrap"}}
            if not loop or not isinstance(store.index, Affine) or not store.index.names() <= extents.keys():
                return False
            terms = {name: (coef, extents[name]) for name, coef in store.index.terms}
            distance, _ = terms.pop(loop[0][0], (0, 0))
            numbers = [distance, *(n for term in terms.values() for n in term)]
            if not all(type(n) is int and n >= 0 for n in numbers):
                return False
            if sum(coef * (extent - 1) for coef, extent in terms.values()) >= distance:
                return False
        return True

    def _puts_rows(self) -> bool:
        """Whether all stores are to rows at positions that are loaded, one vector after the other."""
        return not self.group.reduces and bool(self.axes.outer) and all(map(self.puts_row, self.values.stores))

    def _shared_columns(self, loops: list[tuple[str, AnySize]]) -> list[str]:
        """The loops of a kernel that writes rows at any positions: each thread takes a part of the columns."""
        self._shared = True
        body = self._row_body(None)
        self._shared = False
        columns = self.printer.size(self.axes.inner[-1][1])
        return [
            f"const int64_t part = (({columns} - 1) / omp_get_max_threads() / W + 1) * W;", "#pragma omp parallel for",
            f"for (int64_t lo = 0; lo < {columns}; lo += part) {{",
            f"const int64_t hi = lo + part < {columns} ? lo + part : {columns};",
            *(self._for(v, s) for v, s in loops), "{", *body, "}", "}",
        ]  # fmt: skip

    def _pragma(self) -> str:
        """The line that runs the following loop on several threads."""
        sizes = [size for size in (*self.group.outer, *self.group.inner) if not same(size, 1)]
        if not any(isinstance(size, Size) for size in sizes):
            return "#pragma omp parallel for"
        work = " * ".join(map(self.printer.size, sizes))  # the same code may be called with small and large sizes
        return f"#pragma omp parallel for if({work} >= {score.parallel_work(len(self.values.table))})"

    def _for(self, var: str, size: AnySize) -> str:
        return f"for (int64_t {var} = 0; {var} < {self.printer.size(size)}; ++{var})"

    def _tiles(self, loops: list[tuple[str, AnySize]]) -> list[str]:
        """Loops over tiles of the vector variable and of `axes.across`, along which some access is contiguous."""
        across, (var, size) = self.axes.across or "", self.axes.inner[-1]
        extent, end = dict(loops)[across], size
        self.new_row()
        whole = self._tile_body(across, var, None, None)
        lines = [
            *(self._for(v, s) for v, s in loops if v != across),
            f"for (int64_t {across}b = 0; {across}b < {self.printer.size(extent)}; {across}b += W)",
            f"for (int64_t {var} = 0; {var} < {self.printer.size(end)}; {var} += W) {{",
        ]
        if all(quotient(n, LANES_AT_MOST) is not None for n in (extent, end)):
            return [*lines, *whole, "}"]
        self.new_row()
        rows, columns = self.fresh("rows"), self.fresh("columns")
        part = self._tile_body(across, var, rows, columns)
        return [
            *lines,
            f"const int64_t {rows} = {self.printer.size(end)} - {var} < W ? {self.printer.size(end)} - {var} : W;",
            f"const int64_t {columns} = {self.printer.size(extent)} - {across}b < W ? "
            f"{self.printer.size(extent)} - {across}b : W;",
            f"if ({rows} == W && {columns} == W) {{", *whole, "} else {", *part, "}", "}",
        ]  # fmt: skip

    def _tile_body(self, across: str, var: str, rows: str | None, columns: str | None) -> list[str]:
        """The code for one tile of `rows` values of the vector variable, and `columns` of the other one."""
        self._tile = tile = Tile(across, f"{across}b", f"({across} - {across}b)", rows, columns)
        body = self._iteration({}, self._stores(0), "0", rows)
        self._tile = None
        end = f"{across}b + {columns or 'W'}"
        return [
            *tile.before, f"for (int64_t {across} = {across}b; {across} < {end}; ++{across}) {{",
            *self._row_lines, *body, "}", *tile.after,
        ]  # fmt: skip

    def _column_loops(self, loops: list[tuple[str, AnySize]], pragma: list[str]) -> list[str]:
        """The loops of a kernel that is vectorized along the last outer variable."""
        *rest, (var, size) = loops
        nest = [*pragma, *(self._for(v, s) for v, s in rest)]
        blocks, lines = self._column_blocks(var, size), []
        whole: AnySize = 0
        if blocks:
            whole = size // BLOCK * BLOCK
            end = self.printer.size(whole)
            lines = [*nest, f"for (int64_t {var}b = 0; {var}b < {end}; {var}b += {BLOCK}) {{", *blocks, "}"]
        if not same(whole, size):
            start, end = self.printer.size(whole), self.printer.size(size)
            lines += [*nest, f"for (int64_t {var} = {start}; {var} < {end}; {var} += W) {{"]
            lines += [f"if ({var} + W <= {end}) {{", *self._row_body(None)]
            if quotient(size, LANES_AT_MOST) is None:
                lines += ["} else {", *self._row_body(f"({end} - {var})")]
            lines += ["}", "}"]
        return lines

    def _column_blocks(self, var: str, size: AnySize) -> list[str]:
        """The body for BLOCK columns at once, so that each inner step reads whole cache lines of a row. Empty if this
        is not possible."""
        if hint(size) < BLOCK or any(_needs_lines(v) for v in self.values.table.values() if not v.loop):
            return []
        blocks = hint(size) // BLOCK * math.prod(hint(n) for v, n in self.axes.outer if v != var)
        if len(self._live) > 1 and blocks < MIN_BLOCKS and score.parallel(self.group.work(), len(self.values.table)):
            return []
        self.new_row()
        count = f"({BLOCK} / W)"
        self._block = f"for (int u = 0; u < {count}; ++u) {{ const int64_t {var} = {var}b + u * W;"
        self._block_size = count
        for phase in range(len(self._live)):
            reductions, stores = self._reductions(phase), self._stores(phase)
            if reductions or stores:
                self._block_phase(reductions, stores)
        last: list[str] = []
        self.lines = last
        self._store_all([store for store in self.values.stores if not store.loop])
        self._row_lines += [self._block, *last, "}"] if last else []
        self._block = None
        return self._row_lines

    def _block_phase(self, reductions: list[Val], stores: list[Store]) -> None:
        """One loop over the inner variables, for a block of columns."""
        accs = {r: Accumulator(self, r) for r in reductions}
        body = self._iteration(accs, stores, "u", None)
        unroll = UNROLL_BLOCK if len(body) <= LONG_BODY else 1
        lines = [line for acc in accs.values() for line in acc.declare(self._block_size)]
        lines += [self._for(v, s) for v, s in self.axes.inner[:-1]]
        lines += [self._for(*self.axes.inner[-1]) + " {", f"#pragma GCC unroll {unroll}"]
        lines += [self._block or "", *body, "}}"]
        self._row_lines += lines
        for r, acc in accs.items():
            self._row[r] = acc.in_slot("u")

    def _rows_at_once(self) -> RowsAtOnce | None:
        """The rows that are reduced in one loop, because something that varies along them is the same in all: such as a
        few vectors that are multiplied by the rows of a matrix. None if there are none."""
        reductions, inner, table = self.values.reductions, self.axes.inner, self.values.table.values()
        if self.axes.vector_outer or not self.plain or self.scans or len(inner) != 1 or len(self.axes.outer) < 2:
            return None
        if isinstance(inner[0][1], Size) or inner[0][1] >= LONG_ROW or not reductions:
            return None
        if any(r.phase != 1 or r.position_of for r in reductions) or any(s.loop for s in self.values.stores):
            return None
        if any(_needs_lines(value) for value in table if not value.loop):
            return None
        read = [value.attrs[1].names() for value in self._live[0] if value.op == "load"]
        for row, size in self.axes.outer:
            others = self.axes.variables() - {row}
            if type(size) is int and 1 < size <= MAX_ROWS and any(row not in at and others <= at for at in read):
                column, columns = next(loop for loop in reversed(self.axes.outer) if loop[0] != row)
                most = MAX_SUMS // size // len(reductions)
                blocks = (n for n in (8, 4, 2) if n <= most and quotient(columns, n) is not None)
                return RowsAtOnce(row, size, column, self.printer.size(columns), next(blocks, 1))
        return None

    def _rows_body(self, rows: RowsAtOnce) -> list[str]:
        """The body for several rows, and several columns, at once."""
        self.new_row()
        ((inner, length),) = self.axes.inner
        self._block, self._block_slot, self._block_size = rows.head(), rows.slot(), str(rows.count)
        unroll = max(1, MAX_ROWS // rows.count) if hint(length) >= MAX_ROWS * LANES_AT_MOST else 1
        accs = {r: Accumulator(self, r) for r in self.values.reductions}
        at, end = self.fresh("at"), self.printer.size(length)

        def step(number: str, tail: str | None = None) -> list[str]:
            return [*rows.unrolled(), *self._iteration(accs, [], f"{rows.slot()} * {unroll} + {number}", tail), "}"]

        lines = [line for acc in accs.values() for line in acc.declare(rows.count * unroll)]
        lines += [f"int64_t {at} = 0;", f"for (; {at} + {unroll} * W <= {end}; {at} += {unroll} * W) {{",
                  f"#pragma GCC unroll {unroll}", f"for (int u = 0; u < {unroll}; ++u) {{",
                  f"const int64_t {inner} = {at} + u * W;", *step("u"), "}}"]  # fmt: skip
        if quotient(length, unroll * LANES_AT_MOST) is None:
            lines += [f"for (; {at} + W <= {end}; {at} += W) {{", f"const int64_t {inner} = {at};", *step("0"), "}"]
        if quotient(length, LANES_AT_MOST) is None:
            lines += [f"if ({at} < {end}) {{", f"const int64_t {inner} = {at};", *step("0", f"({end} - {at})"), "}"]
        self._row_lines += lines
        for r, acc in accs.items():
            self._row_lines.append(acc.finish_rows(self._block, rows.slot(), unroll, self._block_size))
            self._row[r] = f"{acc.result}[{rows.slot()}]"
        last: list[str] = []
        self.lines = last
        self._store_all(self.values.stores)
        self._row_lines += [self._block, *last, "}"]
        self._block, self._block_slot = None, "u"
        return self._row_lines

    def _row_body(self, tail: str | None) -> list[str]:
        self.new_row(tail)
        self._choose_spills()
        for phase in range(len(self._live)):
            reductions, stores = self._reductions(phase), self._stores(phase)
            if reductions or stores:
                self._row_lines += self.declare_carries(v for v in self._live[phase] if v.op == "scan")
                self._phase(reductions, stores)
        self._store_all([store for store in self.values.stores if not store.loop])
        return self._row_lines

    def _choose_spills(self) -> None:
        self._spilled, self._spill_ready = {}, set()
        if self.axes.vector_outer or len(self.axes.inner) != 1:
            return
        values = sorted(set().union(*self._live), key=lambda v: v.id) if self._live else ()
        again = [v for v in values if v.op in EXPENSIVE and sum(v in live for live in self._live) > 1]
        length = self.axes.inner[0][1]
        if not again or length > MAX_SCRATCH:
            return
        size = (MAX_SCRATCH if isinstance(length, Size) else length) + LANES_AT_MOST
        for value in again:
            name = self.fresh("s")
            self._row_lines.append(f"alignas(64) {SCALAR[value.kind]} {name}[{size}];")
            self._spilled[value] = name

    # ---- one loop over the inner variables

    def _phase(self, reductions: list[Val], stores: list[Store]) -> None:
        inner = list(self.axes.inner)
        accs = {r: Accumulator(self, r) for r in reductions}
        if not inner:
            raise Unsupported("a reduction over no dimension")
        var, size = inner[-1]
        vector = not self.axes.vector_outer
        unroll = UNROLL if vector and reductions and hint(size) >= UNROLL * LANES_AT_MOST else 1
        chunked = vector and len(inner) == 1 and hint(size) >= LONG_ROW and bool(reductions) and self.plain
        chunked = chunked and not self.scans
        row = self._row_lines
        body: list[str] = []
        open_lines: list[str] = []
        close_lines: list[str] = []
        for acc in accs.values():
            (body if chunked else open_lines).extend(acc.declare(unroll, "lo" if chunked else "0"))
        for v, s in inner[:-1]:
            open_lines.append(self._for(v, s) + " {")
            close_lines.append("}")
        if vector:
            body += self._vector_loop(var, size, unroll, chunked, accs, stores)
        else:
            body += [self._for(var, size) + " {",
                     *self._iteration(accs, stores, "0", self.tail), "}"]
        if chunked:
            self._chunks(size, accs, body)
        else:
            row += [*open_lines, *body, *close_lines]
            for acc in accs.values():
                row += acc.finish(unroll, vector)
        for r, acc in accs.items():
            self._row[r] = acc.result
        self._spill_ready |= {v for v in self._spilled if any(v in self._live[p] for p in self._phases_of(accs, stores))}  # noqa: E501

    def _phases_of(self, accs: Mapping[Val, Accumulator], stores: list[Store]) -> set[int]:
        return {r.phase - 1 for r in accs} | {s.phase for s in stores}

    def _chunks(self, size: AnySize, accs: Mapping[Val, Accumulator], body: list[str]) -> None:
        """Reduces a long row in chunks with a partial result each, which bounds the rounding error and lets threads
        share the row. In a row of more than MAX_PARTS chunks, several chunks share a partial result, since partial
        results are on the stack."""
        row = self._row_lines
        several = isinstance(size, Size) or size > CHUNK * MAX_PARTS
        length = self.printer.size(size)
        end = f"lo + {CHUNK} < {length} ? lo + {CHUNK} : {length}"
        if several:
            part, parts = self.fresh("elements"), self.fresh("pieces")
            row.append(f"const int64_t {part} = (({length} - 1) / {CHUNK * MAX_PARTS} + 1) * {CHUNK};")
            row.append(f"const int64_t {parts} = ({length} + {part} - 1) / {part};")
        else:
            part, parts = str(CHUNK), str(ceil_of(size, CHUNK))
        for acc in accs.values():
            row += acc.declare_parts(parts, several)
        if self._parallel_inner:
            row.append(self._pragma())
        row.append(f"for (int64_t c = 0; c < {parts}; ++c) {{")
        if several:
            row.append(f"for (int64_t lo = c * {part}; lo < (c + 1) * {part} && lo < {length}; lo += {CHUNK}) {{")
            row.append(f"const int64_t hi = {end};")
            row.append(f"const bool begins = lo == c * {part};")
        else:
            row.append(f"const int64_t lo = c * {CHUNK}, hi = {end};")
        row += body
        for acc in accs.values():
            row += acc.finish(UNROLL, True, part=True, several=several)
        row.append("}}" if several else "}")
        for acc in accs.values():
            row += acc.join_parts(parts)

    def _vector_loop(self, var: str, size: AnySize, unroll: int, chunked: bool, accs: Mapping[Val, Accumulator],
                     stores: list[Store]) -> list[str]:
        lo, hi = ("lo", "hi") if chunked or self._shared else ("0", self.printer.size(size))
        lines = []
        if unroll > 1:
            at = self.fresh("at")
            self._reads_ahead = all(r.phase == 1 for r in accs) and self.group.work() >= MANY_POINTS
            lines += [f"int64_t {at} = {lo};", f"for (; {at} + {unroll} * W <= {hi}; {at} += {unroll} * W) {{",
                      f"#pragma GCC unroll {unroll}", f"for (int u = 0; u < {unroll}; ++u) {{",
                      f"const int64_t {var} = {at} + u * W;", *self._iteration(accs, stores, "u", None), "}}"]
            self._reads_ahead = False
            if quotient(size, unroll * LANES_AT_MOST) is None:
                lines += [f"for (; {at} + W <= {hi}; {at} += W) {{", f"const int64_t {var} = {at};",
                          *self._iteration(accs, stores, "0", None), "}"]
            start = at
        else:
            parallel = self._parallel_inner and not accs and len(self.axes.inner) == 1
            pragma = [self._pragma()] if parallel else []
            in_order = bool(accs) or self.scans  # what one vector leaves, the next one takes
            segments = [] if in_order or isinstance(size, Size) or self._shared else self._segments(var, size)
            if segments:
                return [line for part in segments for line in (*pragma, *self._segment_loop(var, *part, stores))]
            lines += pragma
            whole = f"{lo} + ({hi} - {lo}) / W * W" if self._shared else f"{hi} / W * W"
            lines += [f"for (int64_t {var} = {lo}; {var} < {whole}; {var} += W) {{",
                      *self._iteration(accs, stores, "0", None), "}"]
            start = whole
        if quotient(size, LANES_AT_MOST) is None:
            lines += [f"if ({start} < {hi}) {{", f"const int64_t {var} = {start};",
                      *self._iteration(accs, stores, "0", f"({hi} - {var})"), "}"]
        return lines

    def _segments(self, var: str, size: int) -> list[tuple[int, int]]:
        """Splits the vector loop into ranges in which comparisons of its variable with constants have a fixed outcome.

        Empty if there is only one range, or more than MAX_SEGMENTS.
        """
        cuts = {0, size}
        for value in self.values.table.values():
            if value.op in ("lt", "le", "gt", "ge") and value.args[0].op == "index" and value.args[1].op == "constant":
                index = value.args[0].attrs[0]
                if isinstance(index, Affine) and index.names() == {var}:
                    at = _turn(index.coef(var), value.args[1].attrs[1] - index.const + (value.op in ("le", "gt")))
                    cuts |= {at} if at is not None and 0 < at < size else set()
        ends = sorted(cuts)
        return list(zip(ends, ends[1:])) if 2 < len(ends) <= MAX_SEGMENTS + 1 else []

    def _segment_loop(self, var: str, lo: int, hi: int, stores: list[Store]) -> list[str]:
        self._segment = (lo, hi)
        whole = f"{lo} + {hi - lo} / W * W"  # OpenMP accepts only comparisons of the variable itself
        lines = [f"for (int64_t {var} = {lo}; {var} < {whole}; {var} += W) {{",
                 *self._iteration({}, stores, "0", None), "}"]
        if (hi - lo) % LANES_AT_MOST:
            lines += [f"if ({hi - lo} % W) {{", f"const int64_t {var} = {whole};",
                      *self._iteration({}, stores, "0", f"({hi} - {var})"), "}"]
        self._segment = None
        return lines

    def _iteration(self, accs: Mapping[Val, Accumulator], stores: list[Store], slot: str,
                   tail: str | None) -> list[str]:
        with self.loop_scope(tail) as lines:
            for acc in accs.values():
                acc.update(slot)
            self._store_all(stores)
        return lines

    def _store_all(self, stores: list[Store]) -> None:
        if self.values.overwrites_loads():
            for store in stores:
                self.prepare(store)
        for store in stores:
            self.store(store)


def _turn(coef: AnySize, limit: AnySize) -> int | None:
    """The first integer x for which the outcome of `coef * x < limit` is not that for smaller ones."""
    if type(coef) is not int or type(limit) is not int:
        return None
    return -(-limit // coef) if coef > 0 else limit // coef + 1


def _needs_lines(value: Val) -> bool:
    """Whether the code of a value is more than one expression."""
    return value.op == "masked_load" or value.op in DIVISIONS and value.kind in "il"
