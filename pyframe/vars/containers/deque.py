"""Model of `collections.deque` and its iterator."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import Source
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar, fold
from ..protocol.text import TextPlaceholder
from ..tracer import Tracer
from .iterator import ItemsIteratorVar
from .sequence import ListVar

_ADDS = ("append", "appendleft", "extend", "extendleft")
_METHODS = (*_ADDS, "clear", "copy", "insert", "pop", "popleft", "reverse", "rotate")


class DequeVar(ListVar):
    """A deque; `maxlen` None is unbounded; `rearranged`: more was changed than which items are at
    which places.  Methods that do not compare items run on a real deque of their Vars."""

    __slots__ = ("changes", "maxlen", "rearranged")
    type = collections.deque

    def __init__(self, items: Sequence[Var], maxlen: int | None = None, source: Source | None = None) -> None:
        super().__init__(items, source)
        self.maxlen = maxlen
        self.changes = 0
        self.rearranged = False

    def _real(self) -> collections.deque[Any]:
        return collections.deque(self.items, self.maxlen)

    def like(self, items: Sequence[Var]) -> Var:
        return DequeVar(list(collections.deque(items, self.maxlen)), self.maxlen)

    def plain(self) -> Any:
        raise NotConstant("deque")

    def repr_(self, tx: Tracer) -> Var | None:
        return fold(tx, repr, collections.deque([TextPlaceholder(tx, item) for item in self.items], self.maxlen))

    def changed(self, tx: Tracer) -> None:
        if self.maxlen is not None and len(self.items) > self.maxlen:
            del self.items[: len(self.items) - self.maxlen]
        self.changes += 1
        self.rearranged = True
        tx.effects.change("DEQUE", self, None, tx.user_line)

    def native(self, tx: Tracer, method: str, *args: Any) -> Any:
        real = self._real()
        try:
            result = getattr(real, method)(*args)
        except (IndexError, ValueError, TypeError) as error:
            tx.raise_(type(error), *error.args)
        self.items[:] = real
        return result

    def _place(self, tx: Tracer, key: Var, out_of_range: str) -> int:
        if not slots.has_type(key, int):
            tx.raise_(TypeError, f"sequence index must be integer, not {slots.type_name(key)!r}")
        return super()._place(tx, key, "{} index out of range")

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        before = self.rearranged
        super().setitem(tx, key, value)
        self.rearranged = before or value is None

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return ConstVar(self.maxlen) if name == "maxlen" else super().getattr_(tx, name)

    def iterate(self, tx: Tracer) -> Var:
        return DequeIteratorVar(list(self.items), self)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name not in _METHODS:
            return super().call_method(tx, name, args, kwargs)
        if kwargs:
            tx.raise_(TypeError, f"deque.{name}() takes no keyword arguments")
        values: list[Any] = list(args)
        if name in ("extend", "extendleft"):
            if type(args[0]).unpack is Var.unpack:
                return self._add_each(tx, "append" if name == "extend" else "appendleft", args[0])
            values = [self.and_items(tx, args[0].unpack(tx))]
        elif name == "rotate" or name == "insert":
            values[:1] = [slots.index(tx, arg) for arg in args[:1]]
        if name == "copy":
            return self.like(self.items)
        result = self.native(tx, name, *values)
        self.changed(tx)
        return ConstVar(None) if result is None else result

    def _add_each(self, tx: Tracer, method: str, items: Var) -> Var:
        """Add the items one by one: the iterator may read the deque while it is being extended."""
        iterator = items.iterate(tx)
        while (item := iterator.next_(tx)) is not None:
            self.native(tx, method, item)
            self.changed(tx)
        return ConstVar(None)

    def _extend(self, tx: Tracer, items: Var) -> None:
        self.call_method(tx, "extend", [items], {})

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(collections.deque)
        cg.call_top(lambda: cg.sequence("BUILD_LIST", self.items), lambda: cg.load_const(self.maxlen))


class DequeIteratorVar(ItemsIteratorVar):
    """`iter()` of a deque; the graph breaks if the deque changes during the iteration."""

    __slots__ = ("changes",)

    def __init__(self, items: list[Var], owner: DequeVar) -> None:
        super().__init__(items, owner)
        self.changes = owner.changes

    def advance(self, tx: Tracer) -> Var | None:
        if isinstance(self.owner, DequeVar) and self.owner.changes != self.changes:
            self.unsupported(tx, "iteration after the deque changed")
        return super().advance(tx)
