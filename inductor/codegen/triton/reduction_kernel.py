"""Kernels with reductions, scans and sorts. Rows are along x and are reduced along r.

A kernel holds rows in registers, or loops over the row once per phase; or, if there are too few rows to fill the
device, there is one kernel per phase, in which several programs share a row. In the last case each program writes its
partial result to scratch memory, and the kernels after it combine the parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ...dtypes import dtype_of
from ...ir.size import AnySize, ceil_of, hint, known
from ..values import COUNTERS, Store, Val
from . import heuristics, sort
from .accumulate import Reducer
from .chain import Chain
from .emit import Piece
from .kernel import Draft, KernelWithPositions
from .moments import HeldMomentsReducer, MomentsReducer
from .scan import ChunkTotal, Scanner, total_kinds
from .work import Job, Scratch, Work

SCRATCH = {"f": "float32", "d": "float64", "i": "int32", "l": "int64"}


class ReductionKernel(KernelWithPositions):
    """A reduction kernel: rows are along x and are reduced along r."""

    def __init__(self, work: Work, job: Job) -> None:
        config = work.config if job.phases else heuristics.joining(hint(work.axes.axis("x").size), work.config.split)
        super().__init__(work.values, work.axes, work.dtypes, config)
        self.work, self.job = work, job
        groups = (n for n in work.groups() if work.neighbours(n) and work.config.block("r") >= n)
        self.group = next(groups, 1)
        self.empty = work.axes.axis("r").size == 0
        self.shared = work.config.split > 1
        self.phase_now = 0
        self.ahead: list[dict[Val, Piece]] = []  # what is loaded ahead of everything else, by step
        self.totals: dict[Val, ChunkTotal] = {}  # of this program's chunk, for programs that follow
        self.backward = any(v.attrs[1] for v in work.scans)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        tiles = ceil_of(self.axes.axis("x").size, self.config.block("x"))
        if self.shared:
            self.constants |= {"xblocks": tiles, "SPLIT": self.config.split}
        chunked = self.shared and bool(self.job.phases)
        if self.work.chain is not None:
            self._begin_chain(self.work.chain)
        else:
            self.lines.append(f"pid = {self.program()}")
        if self.config.programs:
            self._through_tiles(tiles)
            return self.finished("product", self.config.programs, unaligned)
        several = chunked or bool(self.axes.fixed)
        self.lines += self.place("x", f"pid{' % xblocks' if several else ''} * XBLOCK")
        if self.axes.fixed:
            self.constants["xblocks"] = tiles
            self.lines += self.fixed("xblocks")
        if chunked:
            self.lines.append("chunk = pid // xblocks")
        if self.config.persistent:
            self.lines += self.place("r", "")
        if self.config.persistent or self.config.unrolled:
            self._read_ahead()
        for phase in self.job.phases:
            self.phase_now = phase
            self._phase(phase)
        if self.job.last:
            self._last()
        else:
            self._joined_and_stored(chunked)
        kind = "persistent" if self.config.persistent else "shared" if self.shared else "looped"
        kind = kind if self.work.chain is None else "chained"
        programs = tiles * math.prod(size for _, size in self.axes.fixed)
        return self.finished(kind, programs * (self.config.split if chunked else 1), unaligned)

    def _read_ahead(self) -> None:
        """Writes the loads of matrices that are multiplied with a row, before anything waits: for the row, which each
        program may have to compute, and for the kernel ahead, which may still be writing it. Only what no kernel of the
        graph writes is read before the kernel ahead has ended."""
        if not self.work.is_row_product:
            return
        loads = [v for v in self.values.table.values() if v.op == "load" and v.loop and not v.args]
        settled = [v for v in loads if v.attrs[0] in self.values.settled]
        if all(map(self.work.large, loads)) or not any(map(self.work.large, settled)):
            return
        for start in self._steps():
            with self.loop() as body:
                body += self.place("r", start)
                self.ahead.append({v: self.get(v) for v in settled})
            self.lines += body
        self.used.add("wait_for_kernel_ahead")
        self.lines.append("wait_for_kernel_ahead()")
        if self.config.persistent:
            self._row.update(self.ahead[0])

    def _through_tiles(self, tiles: AnySize) -> None:
        """Writes a kernel each of whose programs takes several tiles of the matrices that are multiplied with a row. It
        computes the row once, and loads a tile while it adds up the one before."""
        step = self.config.programs
        table = list(self.values.table.values())
        matrices = [v for v in table if v.op == "load" and not v.args and self.work.large(v)]
        settled = [v for v in matrices if v.attrs[0] in self.values.settled]
        name = {v: f"m{k}" for k, v in enumerate(matrices)}
        self.lines += self.place("r", "") + self.place("x", "pid * XBLOCK")
        self.lines += [f"{name[v]} = {self.load_text(v)[0]}" for v in settled]
        if settled:
            self.used.add("wait_for_kernel_ahead")
            self.lines.append("wait_for_kernel_ahead()")
        self.lines += [f"{name[v]} = {self.load_text(v)[0]}" for v in matrices if v not in settled]
        for phase in self.job.phases:
            self._phase(phase, only=False)
        with self.loop() as body:
            body += self.place("x", f"(tile + {step}) * XBLOCK")
            body += [f"{name[v]}_next = {self.load_text(v, *self._within())[0]}" for v in matrices]
            body += self.place("x", "tile * XBLOCK")
            for v in matrices:
                self.define(v, self.emit(v.kind, self.whole(), name[v] + self.widened(self.dtypes[v.attrs[0]])))
            for phase in self.job.phases:
                self._phase(phase, only=True)
            self._rows(chunked=False)
            body += [f"{name[v]} = {name[v]}_next" for v in matrices]
        self.lines += [f"for tile in range(pid, {tiles}, {step}):", *(f"    {line}" for line in body)]

    def _within(self) -> list[str]:
        """The mask of the rows that exist, where the mask of the tile is not one."""
        return [] if "x" in self.masked else ["(xindex < xnumel)"]

    def in_loop(self, value: Val) -> bool:
        """As the base class says."""
        return self.varies(value) if self.config.programs else super().in_loop(value)

    def _steps(self) -> list[str]:
        """Where the steps of an unrolled loop over the row begin."""
        if self.config.persistent:
            return [""]
        length = self.axes.axis("r").size
        assert isinstance(length, int)
        return [str(start) for start in range(0, length, self.config.block("r"))]

    def varies(self, value: Val) -> bool:
        """As the base class says; of rows that several programs share, each result is treated as varying."""
        return self.shared or self.work.varies(value)

    def _begin_chain(self, chain: Chain) -> None:
        self.dtypes[chain.name] = "int64"
        self.work.scratch[self.work.scans[0], 0, False] = Scratch(chain.name, "int64", chain.words, kept=True)
        chain.begin(self)

    def _joined_and_stored(self, chunked: bool) -> None:
        if self.job.joins:
            self._join()
        if self.job.rows:
            self._rows(chunked)

    def _last(self) -> None:
        """Writes what the last of the programs that share a tile of rows does once all have stored their partial
        results: it combines them, always in the same order. A counter, 0 between kernels, says which one is the last.
        Its increment orders the memory accesses: the barrier ahead of it makes it follow the stores of all threads, and
        the other threads see its result behind a barrier, too."""
        counter = f"{self.pointer_to(COUNTERS)} + pid % xblocks"
        head = ["tl.debug_barrier()", f'if tl.atomic_add({counter}, 1, sem="acq_rel") == SPLIT - 1:']
        self.shared_loads = ', cache_modifier=".cg"'  # other multiprocessors have stored them
        before = self.lines
        self.lines = self.row_lines = [f"tl.store({counter}, 0)"]
        self._joined_and_stored(chunked=False)
        before += [*head, *(f"    {line}" for line in self.lines)]
        self.lines = self.row_lines = before

    def _phase(self, phase: int, only: bool | None = None) -> None:
        """Writes the loop of a phase. `only`: what varies from row to row (True), or what does not (False)."""
        work = self.work
        partial = [v for v in work.partial if work.phase[v] == phase + 1]
        reducers = [self._reducer(v) for v in partial if only in (None, self.varies(v))]
        stores = [s for s in work.loop_stores if work.store_phase(s) == phase]
        stores = [s for s in stores if only in (None, not work.same_for_all(s))]
        if self.empty:
            for reducer in reducers:
                reducer.nothing()
        elif self.config.persistent:
            for reducer in reducers:
                reducer.direct()
            for store in stores:
                self.store(store, only=self._first_program(store))
        else:
            self._looped(reducers, stores)
        for reducer in reducers:
            if self.work.chain is not None and isinstance(reducer, ChunkTotal):
                self.totals[reducer.value] = reducer
                self.work.chain.publish(reducer, self._first(reducer.value))
            elif self.job.partial:
                reducer.write(self._scratch(reducer))
            else:
                reducer.results()

    def _first_program(self, store: Store) -> str:
        """The condition under which a program stores what all programs compute, or "" for other stores."""
        return "(pid == 0)" if self.work.same_for_all(store) and not self.shared else ""

    def _looped(self, reducers: list[Reducer], stores: list[Store]) -> None:
        for reducer in reducers:
            self.lines += reducer.declare()
        if self.config.unrolled:
            self._unrolled(reducers, stores)
            return
        with self.loop() as body:
            body += self._bounded_place() if self.work.bounds else self.place("r", "start")
            for reducer in reducers:
                reducer.update()
            for store in stores:
                self.store(store, only=self._first_program(store))
        if self.backward:
            body = ["start = tl.cdiv(rnumel, RBLOCK) * RBLOCK - RBLOCK - passed", *body]
        variable = "passed" if self.backward else "start"
        if self.work.bounds:
            self.lines += ["for start in range(first, stop, RBLOCK):", *(f"    {line}" for line in body)]
        elif self.work.chunked:
            self._through_chunk(variable, body, back=self.phase_now == 0 and not stores)
        else:
            self._through_row(variable, body)
        for reducer in reducers:
            reducer.finish()

    def _unrolled(self, reducers: list[Reducer], stores: list[Store]) -> None:
        for k, start in enumerate(self._steps()):
            with self.loop() as body:
                if self.ahead and self._loop is not None:
                    self._loop.update(self.ahead[k])
                body += [f"start = {start}", *self.place("r", start)]
                for reducer in reducers:
                    reducer.update()
                for store in stores:
                    self.store(store, only=self._first_program(store))
            self.lines += body
        for reducer in reducers:
            reducer.finish()

    def _bounded_place(self) -> list[str]:
        """As `place` for a loop over the points that count for any row of the tile. `rmask` is true of them, and
        `counts` of those that count for the same row."""
        at, texts = "l" if self.wide else "i", []
        for name, bound, neutral in zip(("low", "high"), self.work.bounds, ("rnumel", "0"), strict=True):
            text = f"tl.minimum(tl.maximum({self.as_kind(bound, at)}, 0), rnumel)"
            varies = bool(self.get(bound).axes)
            if varies and "x" in self.masked:
                text = f"tl.where(xmask, {text}, {neutral})"
            self.row_lines.append(f"{name} = {text}")
            texts.append(f"tl.{'min' if name == 'low' else 'max'}({name}, axis=None)" if varies else name)
        self.row_lines += [f"first = {texts[0]}", f"stop = {texts[1]}"]
        self.masked.add("r")
        self.taken = "counts"
        index, *rest = [line for line in self.place("r", "start") if not line.startswith("rmask")]
        return [index, "rmask = rindex < stop", "counts = (rindex >= low) & (rindex < high)", *rest]

    def mask(self, axes: frozenset[str], *more: str) -> str:
        """As the base class says; of loads for single elements, those that count."""
        inner = [self.taken] if self.taken != "rmask" and self._loop is not None and axes >= {"x", "r"} else []
        return super().mask(axes, *inner, *more)

    def _through_chunk(self, variable: str, body: list[str], back: bool) -> None:
        """Writes a loop over the blocks of this program's chunk of the row. With `back` it starts at the end of the
        chunk, so that the first blocks are still in the cache when the next pass reads them."""
        steps = ceil_of(ceil_of(self.axes.axis("r").size, self.config.block("r")), self.config.split)
        self.constants["CHUNK"] = steps * self.config.block("r")
        self.lines += ["begin = chunk * CHUNK", "end = tl.minimum(begin + CHUNK, rnumel)"]
        if back:
            self.lines.append("last = begin + tl.cdiv(end - begin, RBLOCK) * RBLOCK - RBLOCK")
            body = [f"{variable} = last - back", *body]
        head = "for back in range(0, end - begin, RBLOCK):" if back else f"for {variable} in range(begin, end, RBLOCK):"
        self.lines += [head, *(f"    {line}" for line in body)]

    def _through_row(self, variable: str, body: list[str]) -> None:
        """Writes a loop over the blocks of a row, of which programs that share it take every SPLIT-th."""
        first, step = ("chunk * RBLOCK", "SPLIT * RBLOCK") if self.shared else ("0", "RBLOCK")
        once = known(self.axes.axis("r").size, "<=", self.config.block("r") * self.config.split)
        self.lines += [f"{variable} = {first}", *body] if once else [
            f"for {variable} in range({first}, rnumel, {step}):", *(f"    {line}" for line in body)
        ]  # fmt: skip

    def _rows(self, chunked: bool) -> None:
        # Each store directly follows its value: Triton 3.6 and 3.7 fail on sums that are used first and stored later.
        order = {value: i for i, value in enumerate(self.values.table.values())}
        stores = sorted(self.work.row_stores, key=lambda s: order[s.value])
        written = {s.buf for s in stores}
        if any(v.op in ("load", "masked_load") and v.attrs[0] in written for v in self.values.table.values()):
            self.load_all(stores)
        for store in stores:
            self.store(store, only="(chunk == 0)" if chunked else "")

    def _reducer(self, value: Val) -> Reducer:
        if value.op == "scan":
            return ChunkTotal(self, value)
        if value in self.work.moments and self.work.held:
            return HeldMomentsReducer(self, self.work.moments[value])
        if value in self.work.moments:
            config = self.work.config
            return MomentsReducer(self, self.work.moments[value], config.block("r"), config.split)
        return Reducer(self, value, self.work.pairs.get(value))

    def _join(self) -> None:
        """Combines the partial results of reductions once, for all programs of the kernels that follow."""
        scratch = self.work.scratch
        for value in self.work.partial:
            if (value, 0, False) in scratch and (value, 0, True) not in scratch:
                reducer = self._reducer(value)
                if isinstance(reducer, ChunkTotal):
                    reducer.accumulate(self._scratch(reducer), self._scratch(reducer, whole=True))
                    continue
                reducer.read(self._scratch(reducer))
                reducer.results()
                reducer.write_whole(self._scratch(reducer, whole=True))

    def _scratch(self, reducer: Reducer, whole: bool = False) -> list[str]:
        """The names of the scratch memory for the partial, or `whole`, results of a reduction."""
        names = []
        for k, part in enumerate(reducer.parts):
            key = (reducer.value, k, whole)
            if key not in self.work.scratch:
                first = next(s.buf for s in self.values.stores)
                name = f"%{first}.part{len(self.work.scratch)}"
                parts = 1 if whole and reducer.value.op == "reduction" else self.work.config.split
                size = parts * self.axes.axis("x").size
                self.work.scratch[key] = Scratch(name, SCRATCH[part.kind], size)
            scratch = self.work.scratch[key]
            self.dtypes[scratch.name] = scratch.dtype
            names.append(scratch.name)
        return names

    def reduced(self, value: Val) -> Piece:
        """The result of a reduction of which earlier kernels wrote the partial results, or the combined ones."""
        owner = next((r for r, first in self.work.pairs.items() if first is value), value)
        if (owner, 0, False) not in self.work.scratch:
            return super().reduced(value)
        reducer = self._reducer(owner)
        if (owner, 0, True) in self.work.scratch:
            reducer.read_whole(self._scratch(reducer, whole=True))
        else:
            reducer.read(self._scratch(reducer))
        reducer.results()
        return self._row[value]

    def _compute(self, value: Val) -> Piece:
        pair = next((m for m in self.work.moments.values() if m.center is value), None)
        if pair is None or self.work.held:
            return super()._compute(value)
        self.reduced(pair.squares)  # the mean itself is more accurate than the sum divided by the length
        return self._row[value]

    def scanned(self, value: Val) -> Piece:
        """Scans a block of the row. A scan of values and one of their positions are the same scan."""
        extreme = value.position_of or value.attrs[0]
        alike = [v for v in self.work.scans if (v.args, v.attrs[1]) == (value.args, value.attrs[1])]
        both = [v for v in alike if extreme in (v.position_of, v.attrs[0])]
        finder = next((v for v in both if v.position_of is not None), value)
        pieces = Scanner(self, finder).emit(self._loop is not None, self._begins_with(finder))
        scope = self._row if self._loop is None else self._loop
        for v in both:
            scope[v] = pieces[-1] if v.position_of is not None else pieces[0]
        return scope[value]

    def _begins_with(self, scan: Val) -> list[str]:
        """The parts of a scan's result for all chunks before this one, computed ahead of the loop; none if there are no
        chunks."""
        if scan not in self.work.chunked:
            return []
        total = ChunkTotal(self, scan)
        lines, self.lines = self.lines, self.row_lines
        if self.work.chain is not None:
            self.work.chain.join_ahead(self.totals[scan], total, self._first(scan))
        elif (scan, 0, True) in self.work.scratch:
            total.read_before(self._scratch(total, whole=True))
        else:
            total.join_before(self._scratch(total))
        self.lines = lines
        return total.names

    def _first(self, scan: Val) -> int:
        """The number of the first value of a scan's total among those that programs pass on."""
        before = self.work.scans[: self.work.scans.index(scan)]
        return sum(len(total_kinds(v)) for v in before)

    def ordered(self, value: Val) -> Piece:
        """Sorts the row. Its elements in order and their positions are one sort."""
        alike = [v for v in self.work.sorts if (v.args, v.attrs[1:]) == (value.args, value.attrs[1:])]
        pieces = sort.emit(self, value, self.config, self.work.gpu)
        for v in alike:
            self._row[v] = pieces[v.attrs[0]]
        return self._row[value]

    def eviction(self, value: Val) -> str:
        """Asks to keep data in the cache that is read again, and to evict first data that is not."""
        work, x, r = self.work, self.axes.axis("x"), self.axes.axis("r")
        if not work.large(value) or work.windowed(value):
            return ""
        again = any(phase > self.phase_now for job in work.jobs for phase in job.phases)
        if again and not self.config.persistent:
            return "" if self.shared else ', eviction_policy="evict_last"'
        passes = sum(len(job.phases) for job in work.jobs)
        if passes > 1 and not self.config.persistent:
            return ', eviction_policy="evict_first"'
        big = heuristics.streamed(hint(x.size) * hint(r.size), dtype_of(self.dtypes[value.attrs[0]]).itemsize)
        return ', eviction_policy="evict_first"' if big and not work.loop_stores else ""
