"""Plans the kernels of a group with reductions or scans: in how many passes each row is read, and which kernel makes
which pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...dtypes import dtype_of
from ...ir.size import AnySize, Size, ceil_of, hint, quotient, same
from ...runtime import plan_spec as spec
from ...schedule.index import Affine, Index
from ..values import Store, Val, Values
from . import heuristics
from .accumulate import online_pairs
from .axes import Axes
from .chain import Chain
from .gpu import Gpu
from .moments import Moments, moments
from .scan import total_kinds

MERGED_EACH = 64  # partial results in registers of a thread that combines them
MOST_KEPT = 1 << 20  # 64-bit words that a kernel keeps for the totals of chunks
GROUP = 4  # adjacent elements that one thread loads at once; of half precision, twice as many


@dataclass(frozen=True)
class Scratch:
    """Memory through which the kernels of a group pass partial results; initially uninitialized. With `kept` it is 0 at
    first, belongs to the plan, and keeps what kernels store from one run to the next."""

    name: str
    dtype: str
    size: AnySize
    kept: bool = False


def rough(values: Values, dtypes: Mapping[str, str]) -> bool:
    """Whether all floating-point results are rounded to half precision. Bits of a number are a result."""
    kept = {dtypes[s.buf] for s in values.stores} | {r.dtype for r in values.reductions if r.position_of is not None}
    kept |= {v.args[0].dtype for v in values.table.values() if v.op == "bitcast"}
    return not kept & {"float32", "float64"}


@dataclass(frozen=True)
class Job:
    """The part of a reducing group that one kernel computes: the loops of `phases`, whose reductions are shared with
    other programs if `partial`, and the row-level stores if `rows`. With `joins`, it combines the partial results of
    the reductions of all earlier jobs for the later ones. With `last`, these two are left to the last program of each
    tile of rows."""

    phases: tuple[int, ...]
    partial: bool
    rows: bool
    joins: bool = False
    last: bool = False


@dataclass
class Work:
    """The plan for a group with reductions or scans: its phases, after merging passes that can be one, and the jobs
    that run them."""

    values: Values
    axes: Axes
    dtypes: Mapping[str, str]
    gpu: Gpu
    scratch: dict[tuple[Val, int, bool], Scratch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x, r = self.axes.axis("x"), self.axes.axis("r")
        self.loop_stores = [s for s in self.values.stores if s.loop]
        length = heuristics.room(hint(r.size)) if isinstance(r.size, Size) else r.size
        shape, sms = self._shape(hint(x.size), length), self.gpu.multiprocessors
        self.config = heuristics.reduction(shape, sms)
        self.scans = [v for v in self.values.table.values() if v.op == "scan"]
        if self.scans:
            self.config = heuristics.scanning(shape, hint(r.size), self._itemsize(), sms)
            if any(v.position_of is not None for v in self.scans):  # one program runs through each row in order
                self.config = replace(self.config, split=1)
        self.sorts = [v for v in self.values.table.values() if v.op == "sort"]
        if self.sorts:
            self.config = heuristics.sorting(hint(x.size), length, self.axes.contiguous, self._sorted_bits())
        self.bounds = self._bounds()
        if self.bounds:
            rows = math.prod(hint(size) for _, size in self.axes.fixed)
            self.config = heuristics.bounded(hint(x.size), hint(r.size) // max(1, rows))
        held = self.config.persistent and r.size <= self.config.block("r")
        self.held = held
        # scans of which each program takes a chunk of the row, and begins with the result of those before it
        self.chunked = self.scans if self.config.split > 1 else []
        self.moments: dict[Val, Moments] = {}
        # Correcting the mean of a row that is held costs more than half precision gains.
        exact = not held or self.axes.contiguous == "x" or not rough(self.values, self.dtypes)
        if exact and not self.scans and not self.bounds and not same(r.size, 0):
            self.moments = moments(self.values, r.size)
        # reductions that are computed together with an earlier one
        self.pairs = {} if held or self.bounds else online_pairs(self.values.reductions)
        self.pairs |= {} if held else {squares: pair.total for squares, pair in self.moments.items()}
        self.phase = self._phases()
        self.reductions = [r for r in self.values.reductions if r not in self.pairs.values()]
        self.row_stores = [s for s in self.values.stores if not s.loop]
        self.chain = self._chain()
        used = {self.phase[v] - 1 for v in self.partial} | {self.store_phase(s) for s in self.loop_stores}
        order = tuple(sorted(used))
        alone = self.config.split == 1 or self.chain is not None
        self.jobs = [Job(order, False, True)] if alone else self._shared(order)

    def _sorted_bits(self) -> int:
        """The bits of the widest elements that are sorted, as `heuristics.sorting` takes them."""
        return max(16, *(8 * dtype_of(v.attrs[2]).itemsize for v in self.sorts))

    def _bounds(self) -> tuple[Val, ...]:
        """The bounds of the points of a row that count; empty if all of them do."""
        (bounds, *others) = dict.fromkeys(v.args[1:] for v in self.values.reductions) or [()]
        if others:
            raise AssertionError("reductions of one kernel with several bounds")
        return bounds

    @property
    def partial(self) -> list[Val]:
        """The values of which each program computes a part, if programs share rows."""
        return self.reductions + self.chunked

    def _chain(self) -> Chain | None:
        """The memory for the totals of chunks, if the scans of chunks are all that there is besides elementwise values,
        and of sizes that do not vary."""
        rows, length = self.axes.axis("x").size, self.axes.axis("r").size
        if isinstance(rows, Size) or isinstance(length, Size) or self.reductions or self.row_stores or self.sorts:
            return None
        if not self.chunked or any(self.phase[v] != 1 for v in self.scans):
            return None
        if self.axes.contiguous != "r" or self.axes.mixed:
            return None
        config = heuristics.chaining(rows, length, self.gpu.multiprocessors)
        kinds = tuple([kind for scan in self.scans for kind in total_kinds(scan)])
        first = next(s.buf for s in self.values.stores)
        chain = Chain(f"%{first}.totals", rows, config.split, kinds)
        if config.split == 1 or chain.words > MOST_KEPT:
            return None
        self.config = config
        return chain

    def _itemsize(self) -> int:
        """The bytes of the largest elements that are read or written in a loop."""
        bufs = [v.attrs[0] for v in self.values.table.values() if self.large(v)] + [s.buf for s in self.loop_stores]
        return max((dtype_of(self.dtypes[buf]).itemsize for buf in bufs), default=1)

    def varies(self, value: Val) -> bool:
        """Whether a value may vary from row to row. One that does not is computed once per program."""
        return value in self._varying

    def moves(self, index: Index) -> bool:
        """Whether an index may vary from row to row by itself."""
        x = self.axes.axis("x")
        return isinstance(x.size, Size) or same(x.size, 1) or any(name in index.names() for name, _ in x.variables)

    def same_for_all(self, store: Store) -> bool:
        """Whether all programs compute what a store writes."""
        return not any(map(self.varies, store.operands())) and not self.moves(store.index)

    @property
    def is_row_product(self) -> bool:
        """Whether rows of matrices are multiplied with one row, and nothing but the sums is stored."""
        own = [v for v in self.values.reductions if self.varies(v)]
        products = all(v.attrs[0] == "sum" and len(v.args) == 1 and v.args[0].op == "mul" for v in own)
        return bool(own) and products and all(map(self.same_for_all, self.loop_stores)) and not self._others()

    def _others(self) -> bool:
        """Whether there are scans or sorts, or sizes that vary."""
        varying = any(isinstance(a.size, Size) for a in self.axes.tile)
        return varying or any(v.op in ("scan", "sort") for v in self.values.table.values())

    @property
    def has_shared_row(self) -> bool:
        """Whether each program reduces a row that is the same for all."""
        return not all(map(self.varies, self.reductions))

    @cached_property
    def _varying(self) -> set[Val]:
        """The values that may vary from row to row."""
        found = set[Val]()
        for value in self.values.table.values():
            moves = value.op in ("scan", "sort") or any(isinstance(a, Index) and self.moves(a) for a in value.attrs)
            if moves or any(a in found for a in value.args):
                found.add(value)
        if self.moves(Affine()):  # there is one row, or an unknown number
            found.update(self.values.table.values())
        return found

    def _shape(self, rows: int, length: int) -> heuristics.Shape:
        reductions = [v for v in self.values.reductions if self.varies(v)]
        stores = [s for s in self.loop_stores if not self.same_for_all(s)]
        passes = len({v.phase for v in reductions} | {s.phase + 1 for s in stores})
        slow = bool(online_pairs(reductions)) or any(v.position_of is not None for v in reductions)
        loads = [v for v in self.values.table.values() if v.op == "load" and v.loop]
        tiles = sum(self.large(v) for v in self.values.table.values())
        return heuristics.Shape(
            rows, length, self.axes.contiguous, self.axes.mixed, self.neighbours(GROUP), passes,
            len(reductions) == 1 and not stores and not slow, slow, bool(stores), tiles,
            not all(self.large(v) for v in loads), self.is_row_product, len(reductions),
            len(reductions) < len(self.values.reductions), self._itemsize(),
        )  # fmt: skip

    def _shared(self, order: tuple[int, ...]) -> list[Job]:
        partial = [p for p in order if any(self.phase[v] == p + 1 for v in self.partial)]
        joins = heuristics.joins(hint(self.axes.axis("x").size), self.config.split, bool(self.chunked))
        jobs: list[Job] = []
        for p in order:
            jobs.append(Job((p,), p in partial, False))
            if joins and p in partial and p != order[-1]:
                jobs.append(Job((), False, False, joins=True))
        if not self.row_stores:
            return self._merged(jobs)
        written = {s.buf for s in self.row_stores}
        if jobs[-1].partial:
            jobs.append(Job((), False, True))
        elif len(jobs) > 1 and jobs[-2].joins and not written & self._loaded(self.loop_stores):
            jobs[-2] = replace(jobs[-2], rows=True)
        elif not written & self._loaded([*self.loop_stores, *self.row_stores]):
            jobs[-1] = replace(jobs[-1], rows=True)
        else:
            # Programs of the last loop may still read memory that a row-level store overwrites: use another kernel.
            jobs.append(Job((), False, True))
        return self._merged(jobs)

    def _merged(self, jobs: list[Job]) -> list[Job]:
        """The jobs, with those that follow a partial one and have no loop made a part of it, where its programs read
        nothing that they overwrite and the partial results of a tile of rows fit in the registers of a program."""
        tiles = ceil_of(self.axes.axis("x").size, self.config.block("x"))
        states = 3 if self.moments else 2 if self.pairs else 1
        many = self.config.block("x") * self.config.split * states > MERGED_EACH * 32 * self.config.warps
        if many or not isinstance(tiles, int) or tiles > spec.COUNTERS:
            return jobs
        merged: list[Job] = []
        written = {s.buf for s in self.row_stores} & self._loaded(self.partial)
        for job in jobs:
            if merged and merged[-1].partial and not job.phases and not (job.rows and written):
                job = replace(merged.pop(), rows=job.rows, joins=job.joins, last=True)
            merged.append(job)
        return merged

    def _loaded(self, needed: Sequence[Store] | Sequence[Val]) -> set[str]:
        """The buffers that are read to compute these stores, or the operands of these reductions and scans, once all
        other reductions are known."""
        stack = [value for n in needed for value in (n.operands() if isinstance(n, Store) else n.args)]
        seen = set(stack)
        while stack:
            value = stack.pop()
            new = [] if value.op == "reduction" else [a for a in value.args if a not in seen]
            seen.update(new)
            stack += new
        return {v.attrs[0] for v in seen if v.op in ("load", "masked_load")}

    def _phases(self) -> dict[Val, int]:
        """The phase of each value, like `Val.phase`, except that reductions which one pass computes share a phase, and
        that a scan of chunks takes a pass to find their totals."""
        phase: dict[Val, int] = {}
        for value in self.values.table.values():
            before = max((phase[a] for a in value.args), default=0)
            phase[value] = before + (value.op == "reduction" or value in self.chunked)
            if value in self.pairs:
                phase[value] = phase[self.pairs[value]]
        return phase

    def large(self, value: Val) -> bool:
        """Whether a value is a load that varies along both axes."""
        if value.op not in ("load", "masked_load") or not value.loop:
            return False
        names = value.attrs[1].names()
        return same(self.axes.axis("x").size, 1) or any(self.axes.letters.get(name) == "x" for name in names)

    def windowed(self, value: Val) -> bool:
        """Whether a load reads elements that another load, at another position, reads as well: taps of a window."""
        loads = [v for v in self.values.table.values() if v.attrs and v.attrs[0] == value.attrs[0] and self.large(v)]
        return len({v.attrs[1] for v in loads}) > 1

    def groups(self) -> tuple[int, ...]:
        """The numbers of adjacent elements that a thread may load at once, the best first."""
        large = [v for v in self.values.table.values() if self.large(v)]
        narrow = large and all(dtype_of(self.dtypes[v.attrs[0]]).itemsize <= 2 for v in large)
        return (2 * GROUP, GROUP) if narrow else (GROUP,)

    def neighbours(self, count: int) -> bool:
        """Whether rows of all large loads consist of aligned runs of `count` adjacent elements."""
        last, size = (self.axes.axis("r").variables or (("", 1),))[-1]
        indices = [v.attrs[1] for v in self.values.table.values() if self.large(v)]
        return quotient(size, count) is not None and all(
            isinstance(index, Affine)
            and same(index.coef(last), 1)
            and all(quotient(c, count) is not None for name, c in (*index.terms, ("", index.const)) if name != last)
            for index in indices
        )

    def store_phase(self, store: Store) -> int:
        """The number of the first loop in which a store's value and index are available."""
        return max(self.phase[v] for v in store.operands())
