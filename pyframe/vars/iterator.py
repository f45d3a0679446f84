"""Iterators: over known items, over a call, and generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.tracer import Tracer
from .base import Var
from .const import MethodVar, make

_LIST_ITERATOR: type = type(iter([]))


class IteratorVar(Var):
    """An iterator that the tracer runs: `step(tx)` gives the next Var or None."""

    __slots__ = ("done", "step", "type")

    def __init__(self, step: Callable[[Tracer], Var | None], type_: type = _LIST_ITERATOR) -> None:
        super().__init__()
        self.step = step
        self.done = False
        self.type = type_

    def python_type(self) -> type:
        return self.type

    def iterate(self, tx: Tracer) -> Var:
        return self

    def next_(self, tx: Tracer) -> Var | None:
        item = None if self.done else self.step(tx)
        self.done = item is None
        return item

    def truth(self, tx: Tracer) -> bool:
        return True

    def contains(self, tx: Tracer, item: Var) -> bool:
        return make(self.unpack(tx)).contains(tx, item)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__iter__":
            return self
        if name == "__next__":
            item = self.next_(tx)
            return tx.raise_(StopIteration) if item is None else item
        return self.unsupported(tx, f"method {name!r}")


class ItemsIteratorVar(IteratorVar):
    """`iter()` of a sequence: rereads it at each step, so that growing it while iterating is seen."""

    __slots__ = ("items", "position")

    def __init__(self, items: list[Var]) -> None:
        self.items = items
        self.position = 0
        super().__init__(self._advance)

    def _advance(self, tx: Tracer) -> Var | None:
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(iter)
        rest = [] if self.done else self.items[self.position :]
        cg.call_top(lambda: cg.sequence("BUILD_LIST", rest))


def from_python(iterator: Iterator[Var]) -> IteratorVar:
    """An IteratorVar over a Python iterator of Vars."""
    return IteratorVar(lambda tx: next(iterator, None))


class GeneratorVar(IteratorVar):
    """A generator whose body runs inline: `resume(tx, sent)` runs to the next yield, None at the end."""

    __slots__ = ("resume", "returned")

    def __init__(self, resume: Callable[[Tracer, Var], Var | None]) -> None:
        super().__init__(lambda tx: resume(tx, make(None)), type(x for x in ()))
        self.resume = resume
        self.returned: Var = make(None)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "send":
            item = None if self.done else self.resume(tx, args[0])
            self.done = item is None
            return tx.raise_(StopIteration, self.returned) if item is None else item
        if name == "close" and self.done:
            return make(None)
        return super().call_method(tx, name, args, kwargs)
