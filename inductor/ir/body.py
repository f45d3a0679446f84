"""LoopBody: one loop nest as an immutable list of operations in static single assignment form.

`trace` runs a lowering's Python function under `TracingHandler`, which records each operation on `ops`, and removes
operations that no store needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..dtypes import dtype_name
from .handler import Handler, ops
from .ops import OPS, SCANS
from .real import Real
from .size import AnySize, Size
from .symbolic import Expr, Index, Sym, symbol


@dataclass(frozen=True)
class Ref:
    """A reference to the result of op number `i` of the same body."""

    i: int


@dataclass(frozen=True)
class Op:
    """One operation. `dtype` is the dtype of its result, if it has one. Operands of each op:

    load (buf, index) | store (buf, index, Ref, mode) | store (buf, index, Ref, mode, Ref of the condition)
    reduction (kind, Ref) | reduction (kind, Ref, Ref of the first bound, Ref of the second one)
    scan (kind, Ref, reverse) | sort (what, Ref, descending, element dtype, count)
    constant (value,) | index_expr (index,)
    indirect (Ref, Sym, size): defines the index variable Sym, whose value is wrapped into 0 .. size - 1
    indirect (Ref, Sym, size, True): the same of a value that is certain to be within 0 .. size - 1
    masked (Ref, SubBody, other) | to_dtype (Ref,) | bitcast (Ref,) | as_stored (Ref, dtype) | any other op: Refs only
    """

    name: str
    args: tuple[Any, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class SubBody:
    """The ops inside a `masked` op. Ref(start + k) is op k of this body; lower Refs are ops of the enclosing body."""

    ops: tuple[Op, ...]
    result: Ref
    start: int


@dataclass(frozen=True)
class Dep:
    """A memory access; `index` counts elements from the start of buffer `buf`."""

    buf: str
    index: Index


@dataclass(frozen=True)
class LoopBody:
    """A loop nest: `ops` run for each point of iter_sizes x reduce_sizes, in row-major order.

    With reduction variables, ops that depend on a `reduction` run once per point of iter_sizes, after the inner loop.
    The result of a `scan` or `sort` has an element for each point of both.
    """

    iter_vars: tuple[Sym, ...]
    iter_sizes: tuple[AnySize, ...]
    reduce_vars: tuple[Sym, ...]
    reduce_sizes: tuple[AnySize, ...]
    ops: tuple[Op, ...]

    @cached_property
    def reads(self) -> tuple[Dep, ...]:
        """All loads, including those in masked bodies."""
        return tuple(Dep(op.args[0], op.args[1]) for op in walk(self.ops) if op.name == "load")

    @cached_property
    def writes(self) -> tuple[Dep, ...]:
        """All stores."""
        return tuple(Dep(op.args[0], op.args[1]) for op in self.ops if op.name == "store")


def walk(body: Sequence[Op]) -> Iterator[Op]:
    """All ops; the ops of a masked body follow the `masked` op."""
    for op in body:
        yield op
        if op.name == "masked":
            yield from walk(op.args[1].ops)


class TracingHandler(Handler):
    """A handler that records ops. Equal pure ops are recorded once."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.start = 0
        self._seen: dict[tuple[Any, ...], Ref] = {}
        self._outer: list[tuple[list[Op], int, dict[tuple[Any, ...], Ref]]] = []
        self._dtypes: dict[int, torch.dtype] = {}
        self._indirect = 0

    def record(self, name: str, args: tuple[Any, ...], dtype: torch.dtype) -> Ref:
        """Records an op and returns its Ref, or the Ref of an equal pure op that was recorded before."""
        # 1, 1.0 and True (and 0.0 and -0.0) compare equal in Python but are different constants.
        key = (name, repr(args) if name == "constant" else args, dtype)
        if OPS[name].pure and (found := self._seen.get(key)) is not None:
            return found
        ref = Ref(self.start + len(self.ops))
        self.ops.append(Op(name, args, dtype))
        self._dtypes[ref.i] = dtype
        if OPS[name].pure:
            self._seen[key] = ref
        return ref

    def dtype_of(self, ref: Ref) -> torch.dtype:
        """The dtype of a recorded op's result."""
        return self._dtypes[ref.i]

    def default(self, op: str, args: tuple[Any, ...]) -> Ref:
        """Records an op whose operands are all values."""
        spec = OPS[op]
        if spec.dtype == "bool":
            dtype = torch.bool
        else:
            dtype = self._dtypes[args[1 if spec.dtype == "second" else 0].i]
        return self.record(op, args, dtype)

    def load(self, buf: str, index: Index, dtype: torch.dtype) -> Ref:  # noqa: D102
        return self.record("load", (buf, index), dtype)

    def store(  # noqa: D102
        self, buf: str, index: Index, value: Ref, mode: str | None = None, where: Ref | None = None
    ) -> None:
        condition = () if where is None else (where,)
        self.record("store", (buf, index, value, mode, *condition), self._dtypes[value.i])

    def reduction(  # noqa: D102
        self, dtype: torch.dtype, kind: str, value: Ref, bounds: tuple[Ref, Ref] | None = None
    ) -> Ref:
        return self.record("reduction", (kind, value, *(bounds or ())), dtype)

    def scan(self, dtype: torch.dtype, kind: str, value: Ref, reverse: bool = False) -> Ref:  # noqa: D102
        if reverse and SCANS[kind].position_of is not None:
            raise ValueError(f"a reversed scan of kind {kind}")
        return self.record("scan", (kind, value, reverse), dtype)

    def sort(  # noqa: D102
        self, dtype: torch.dtype, what: str, value: Ref, descending: bool, element: torch.dtype, count: int = 0
    ) -> Ref:
        return self.record("sort", (what, value, descending, dtype_name(element), count), dtype)

    def constant(self, value: bool | int | float | Size | Real, dtype: torch.dtype) -> Ref:  # noqa: D102
        if isinstance(value, Size):
            return self.index_expr(value, dtype)
        if isinstance(value, Real):
            return self.to_dtype(value.traced(), dtype)
        if dtype.is_floating_point:
            value = float(value)
        elif dtype == torch.bool:
            value = bool(value)
        else:
            value = int(value)
        return self.record("constant", (value,), dtype)

    def index_expr(self, expr: Index, dtype: torch.dtype) -> Ref:  # noqa: D102
        return self.record("index_expr", (expr,), dtype)

    def indirect(self, value: Ref, size: int, inside: bool = False) -> Index:  # noqa: D102
        key = ("indirect", value, size, inside)
        if (found := self._seen.get(key)) is None:
            sym = Sym(f"idx{self._indirect}", size)
            self._indirect += 1
            found = self.record("indirect", (value, sym, size, *([True] if inside else [])), torch.int64)
            self._seen[key] = found
        op = self._op(found)
        return symbol(op.args[1])

    def checked(self, element: Ref, value: Ref, size: int) -> Ref:  # noqa: D102
        found = self._seen.get(("indirect", value, size, False))
        sym = None if found is None else self._op(found).args[1]
        if sym is None or self._depends_on(element, sym):
            return element
        dtype = self._dtypes[element.i]
        at = self.index_expr(Expr(((sym, 1),)), torch.int64)
        inside = self.lt(at, self.constant(size, torch.int64))  # type: ignore[attr-defined]
        return self.where(inside, element, self.constant(0, dtype))  # type: ignore[attr-defined]

    def _depends_on(self, value: Ref, sym: Sym) -> bool:
        """Whether `value` is computed with an index that contains this variable."""
        refs, seen = [value.i], {value.i}
        while refs:
            op = self._op(Ref(refs.pop()))
            for each in () if op is None else walk([op]):
                if any(isinstance(arg, Expr) and sym in arg.symbols() for arg in each.args):
                    return True
            for i in set() if op is None else set(_refs(op)) - seen:
                seen.add(i)
                refs.append(i)
        return False

    def masked(self, mask: Ref, body: Callable[[], Ref], other: bool | int | float) -> Ref:  # noqa: D102
        self._outer.append((self.ops, self.start, self._seen))
        start = self.start + len(self.ops)
        # The masked op itself has number `start` in the enclosing body, so the sub-body counts from start + 1.
        self.ops, self.start, self._seen = [], start + 1, dict(self._seen)
        result = body()
        sub = SubBody(tuple(self.ops), result, start + 1)
        dtype = self._dtypes[result.i]
        self.ops, self.start, self._seen = self._outer.pop()
        if not sub.ops:
            return self.where(mask, result, self.constant(other, dtype))  # type: ignore[attr-defined]
        return self.record("masked", (mask, sub, other), dtype)

    def to_dtype(self, value: Ref, dtype: torch.dtype) -> Ref:  # noqa: D102
        if self._dtypes[value.i] == dtype:
            return value
        op = self._op(value)
        if op is not None and op.name == "constant" and dtype in (torch.float32, torch.float64, torch.int64):
            return self.constant(op.args[0], dtype)
        return self.record("to_dtype", (value,), dtype)

    def bitcast(self, value: Ref, dtype: torch.dtype) -> Ref:  # noqa: D102
        return self.record("bitcast", (value,), dtype)

    def as_stored(self, value: Ref, dtype: torch.dtype) -> Ref:  # noqa: D102
        return self.record("as_stored", (value, dtype_name(dtype)), torch.float32)

    def _op(self, ref: Ref) -> Any:
        levels = [(self.ops, self.start), *[(o, s) for o, s, _ in reversed(self._outer)]]
        for recorded, start in levels:
            if start <= ref.i < start + len(recorded):
                return recorded[ref.i - start]
        return None


def trace(
    iter_sizes: Sequence[AnySize],
    reduce_sizes: Sequence[AnySize],
    fn: Callable[[tuple[Index, ...], tuple[Index, ...]], Any],
    handler: TracingHandler | None = None,
) -> LoopBody:
    """The loop body recorded from `fn(index, reduce_index)`, which calls `ops`; by `handler`, if one is given."""
    iter_vars = tuple(Sym(f"i{k}", s) for k, s in enumerate(iter_sizes))
    reduce_vars = tuple(Sym(f"r{k}", s) for k, s in enumerate(reduce_sizes))
    handler = handler or TracingHandler()
    with ops.using(handler):
        fn(tuple(map(symbol, iter_vars)), tuple(map(symbol, reduce_vars)))
    return LoopBody(iter_vars, tuple(iter_sizes), reduce_vars, tuple(reduce_sizes), _live(handler.ops))


def _refs(op: Op) -> Iterator[int]:
    for arg in op.args:
        cls = type(arg)
        if cls is Ref:
            yield arg.i
        elif cls is SubBody:
            yield arg.result.i
            for inner in arg.ops:
                yield from _refs(inner)


def _live(recorded: list[Op]) -> tuple[Op, ...]:
    """The ops on which a store depends, renumbered."""
    needed = [op.name == "store" for op in recorded]
    syms = {op.args[1]: k for k, op in enumerate(recorded) if op.name == "indirect"}
    for k in range(len(recorded) - 1, -1, -1):
        if not needed[k]:
            continue
        for i in _refs(recorded[k]):
            if i < k:
                needed[i] = True
        for op in walk([recorded[k]]) if syms else ():
            for arg in op.args:
                if isinstance(arg, Expr):
                    for sym in arg.symbols() & syms.keys():
                        needed[syms[sym]] = True
    if all(needed):
        return tuple(recorded)
    numbers: dict[int, int] = {}
    for k, live in enumerate(needed):
        if live:
            numbers[k] = len(numbers)
    return tuple(_renumber(op, numbers, k) for k, op in enumerate(recorded) if needed[k])


def _renumber(op: Op, numbers: dict[int, int], position: int) -> Op:
    """`op`, formerly number `position`, with its Refs renumbered by `numbers`; its sub-body is shifted with it."""
    shift = numbers.get(position, 0) - position

    def move(arg: Any) -> Any:
        if isinstance(arg, Ref):
            return Ref(numbers[arg.i] if arg.i < position else arg.i + shift)
        if isinstance(arg, SubBody):
            return SubBody(
                tuple(Op(o.name, tuple(map(move, o.args)), o.dtype) for o in arg.ops),
                move(arg.result),
                arg.start + shift,
            )
        return arg

    return Op(op.name, tuple(map(move, op.args)), op.dtype)
