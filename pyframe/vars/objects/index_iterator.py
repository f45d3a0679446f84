"""`iter()` of an object that has `__getitem__` but no `__iter__`: the items at 0, 1, 2 and so on."""

from __future__ import annotations

from typing import Any

from ..codegen import Codegen
from ..containers.iterator import IteratorVar
from ..protocol import slots
from ..protocol.base import Raised, Var
from ..protocol.const import ConstVar
from ..tracer import Tracer


class ByIndexVar(IteratorVar):
    """`iter()` of an object that has only `__getitem__`."""

    __slots__ = ("owner", "position")

    def __init__(self, owner: Var) -> None:
        super().__init__(type(iter(_Sequence())))
        self.owner, self.position = owner, 0

    def advance(self, tx: Tracer) -> Var | None:
        try:
            item = self.owner.getitem(tx, ConstVar(self.position))
        except Raised as raised:
            if slots.has_type(raised.exc, IndexError, StopIteration):
                return None
            raise
        self.position += 1
        return item

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(_iterator_at)
        cg.call_top(lambda: cg.load(self.owner), lambda: cg.load_const(None if self.done else self.position))


class _Sequence:
    def __getitem__(self, at: int) -> Any:
        raise IndexError(at)


def _iterator_at(owner: Any, position: int | None) -> Any:
    iterator: Any = iter(_Sequence()) if position is None else iter(owner)
    if position is None:
        next(iterator, None)
    else:
        iterator.__setstate__(position)
    return iterator
