"""Containers with more items than config.size_limit.

Wrapping every item would make as many guards.  Here only type and length are guarded, and an item of a list or tuple is
wrapped when the program reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.source import SeqItemSource
from ..protocol import dunder, slots
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar
from ..protocol.opaque import OpaqueVar
from ..tracer import Tracer
from .iterator import ItemsIteratorVar
from .sequence import ListVar, TupleVar

_ITEM = 8  # the cost of guarding an item, in traced instructions


class LazyContainerVar(OpaqueVar):
    """A container of which only type and length are known; operations that need its items break the graph."""

    __slots__ = ()

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if hasattr(type(self.value), name) else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        found = dunder.call(tx, self, name, args) if not kwargs else None
        return self.unsupported(tx, f"method {name!r}") if found is None else found

    def truth(self, tx: Tracer) -> bool:
        return True

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.value))


class LongSequenceVar(LazyContainerVar):
    """A list or tuple; items can be read by index, by slice and by iteration."""

    __slots__ = ()

    def item(self, tx: Tracer, at: int) -> Var:
        tx.spend(_ITEM)
        return tx.wrap(self.value[at], None if self.source is None else SeqItemSource(self.source, at))

    def getitem(self, tx: Tracer, key: Var) -> Var:
        places = range(len(self.value))
        if slots.has_type(key, slice):
            chosen = places[key.constant()]
            tx.limit_size(len(chosen), "a slice")
            build = ListVar if isinstance(self.value, list) else TupleVar
            return build([self.item(tx, at) for at in chosen])
        at = slots.index(tx, key)
        if not -len(places) <= at < len(places):
            tx.raise_(IndexError, f"{type(self.value).__name__} index out of range")
        return self.item(tx, places[at])

    def iterate(self, tx: Tracer) -> Var:
        return LongIteratorVar(self)


class LongIteratorVar(ItemsIteratorVar):
    """`iter()` of a long list or tuple."""

    __slots__ = ()

    owner: LongSequenceVar

    def __init__(self, owner: LongSequenceVar) -> None:
        super().__init__([], owner)
        self.type = type(iter(owner.value))

    def advance(self, tx: Tracer) -> Var | None:
        if self.position >= len(self.owner.value):
            return None
        self.position += 1
        return self.owner.item(tx, self.position - 1)

    def remaining(self) -> int | None:
        return len(self.owner.value) - self.position
