"""Model of `range` with constant bounds, of any length: the Vars of its items are created when they are read."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from ...core.source import Source
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import FOLDED, ConstVar, as_index, fold, maker
from ..tracer import Tracer
from .iterator import KnownIteratorVar
from .sequence import SequenceVar


class _Items(Sequence[Var]):
    """A read-only sequence of the items of a range, each created as a ConstVar when it is read."""

    def __init__(self, value: range) -> None:
        self.value = value

    def __len__(self) -> int:
        return len(self.value)

    @overload
    def __getitem__(self, at: int) -> Var: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Var]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return _Items(self.value[at]) if isinstance(at, slice) else ConstVar(self.value[at])

    def __iter__(self) -> Iterator[Var]:
        return map(ConstVar, self.value)


class RangeVar(SequenceVar):
    """A range object with constant bounds."""

    __slots__ = ("value",)
    type = range

    def __init__(self, value: range, source: Source | None = None) -> None:
        super().__init__([], source)
        self.value = value
        self.items: Sequence[Var] = _Items(value)  # type: ignore[assignment]

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def plain(self) -> Any:
        return self.value

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("start", "stop", "step"):
            return ConstVar(getattr(self.value, name))
        return super().getattr_(tx, name)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return fold(tx, operator.getitem, self.value, as_index(tx, key).constant())

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def repr_(self, tx: Tracer) -> Var | None:
        return None

    def hash_(self, tx: Tracer) -> Var | None:
        return None

    def length(self, tx: Tracer) -> Var:
        return fold(tx, len, self.value)

    def contains(self, tx: Tracer, item: Var) -> bool:
        if type(slots.constant_or(item, self)) in FOLDED:
            return item.constant() in self.value
        self._limit(tx)
        return super().contains(tx, item)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, RangeVar) or op not in ("==", "!="):
            return None
        return ConstVar((self.value == other.value) == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        return None

    def unpack(self, tx: Tracer) -> list[Var]:
        self._limit(tx)
        return list(self.items)

    def _limit(self, tx: Tracer) -> None:
        """Break the graph if the range has more items than config.size_limit; called where all of them are needed."""
        tx.limit_size(-((self.value.start - self.value.stop) // self.value.step), "a range")

    def iterate(self, tx: Tracer) -> Var:
        return KnownIteratorVar(self, self.value)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("index", "count") and len(args) == 1 and type(slots.constant_or(args[0], self)) in FOLDED:
            return fold(tx, getattr(self.value, name), args[0].constant())
        if name in ("index", "count"):
            self._limit(tx)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(range, self.value.start, self.value.stop, self.value.step)


maker(range)(RangeVar)
