"""Iterators: over known items, over a call, and generators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.tracer import Tracer
from .base import Var
from .const import MethodVar, make

Call = tuple[Var, Sequence[Var], Mapping[str, Var]]
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
    """`iter()` of a sequence: rereads it at each step, so that growing it while iterating is seen.  `owner` is the Var
    of the sequence that `items` belong to, None for a copy."""

    __slots__ = ("items", "owner", "position")

    def __init__(self, items: list[Var], owner: Var | None = None) -> None:
        self.items, self.owner = items, owner
        self.position = 0
        super().__init__(self._advance)

    def _advance(self, tx: Tracer) -> Var | None:
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def reconstruct(self, cg: Any) -> None:
        if self.owner is not None and not self.done:
            _load_at(cg, self.owner, self.position)
            return
        cg.load_const(iter)
        rest = [] if self.done else self.items[self.position :]
        cg.call_top(lambda: cg.sequence("BUILD_LIST", rest))


class ViewIteratorVar(IteratorVar):
    """`iter()` of the view `owner` of a dict: an error once the dict has another size than at the start."""

    __slots__ = ("items", "mapping", "owner", "position", "tx")

    def __init__(self, tx: Tracer, owner: Var, mapping: Var) -> None:
        self.tx, self.owner, self.mapping, self.position = tx, owner, mapping, 0
        self.items = owner.unpack(tx)
        super().__init__(self._advance)

    def _advance(self, tx: Tracer) -> Var | None:
        if self.owner.length(tx).constant() != len(self.items):
            tx.raise_(RuntimeError, "dictionary changed size during iteration")
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def reconstruct(self, cg: Any) -> None:
        # A dict that the trace changed is filled again on leaving, which a real iterator of it would take as a change.
        if self.done or any(effect.target is self.mapping for effect in self.tx.effects):
            cg.load_const(iter)
            rest = [] if self.done else self.items[self.position :]
            cg.call_top(lambda: cg.sequence("BUILD_LIST", rest))
            return
        _load_at(cg, self.owner, self.position)


class LazyVar(IteratorVar):
    """`kind(*parts, **named)` for zip, map, filter or enumerate: all of its state is in its parts, which are iterators
    (and a function, and the count of enumerate)."""

    __slots__ = ("kind", "named", "parts")

    def __init__(
        self, kind: type, rows: Iterator[Var], parts: list[Var], named: Mapping[str, Var] | None = None
    ) -> None:
        super().__init__(lambda tx: next(rows, None), kind)
        self.kind, self.parts, self.named = kind, parts, dict(named or {})

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.kind)
        loads = [*self.parts, *self.named.values()]
        cg.call_top(*(lambda part=part: cg.load(part) for part in loads), names=tuple(self.named))


def from_python(items: Iterator[Var]) -> IteratorVar:
    """An IteratorVar over a Python iterator of Vars."""
    return ItemsIteratorVar(list(items))


def iterator_at(iterable: Any, position: int) -> Iterator[Any]:
    """`iter(iterable)` after `position` items."""
    iterator = iter(iterable)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(position)
    else:
        next(itertools.islice(iterator, position, position), None)
    return iterator


def _load_at(cg: Any, owner: Var, position: int) -> None:
    cg.load_const(iterator_at if position else iter)
    if position:
        cg.call_top(lambda: cg.load(owner), lambda: cg.load_const(position))
    else:
        cg.call_top(lambda: cg.load(owner))


class NotRebuilt(NotImplementedError):
    """A value that cannot be made again; the root step `step` made it, and must run for real."""

    def __init__(self, what: str, step: int) -> None:
        super().__init__(what)
        self.step = step


class GeneratorVar(IteratorVar):
    """A generator whose body runs inline: `resume(tx, sent)` runs to the next yield, None at the end.  `origin` is
    the function with its arguments, and `made_at` the root step of the call."""

    __slots__ = ("made_at", "origin", "resume", "returned", "started")

    def __init__(self, resume: Callable[[Tracer, Var], Var | None], origin: Call, made_at: int) -> None:
        super().__init__(lambda tx: self.resume(tx, make(None)), type(x for x in ()))
        self.started = False
        self.origin, self.made_at = origin, made_at
        self.returned: Var = make(None)

        def run(tx: Tracer, sent: Var) -> Var | None:
            self.started = True
            return resume(tx, sent)

        self.resume = run

    def reconstruct(self, cg: Any) -> None:
        if self.started:
            raise NotRebuilt("a running generator", self.made_at)
        fn, args, kwargs = self.origin
        cg.load(fn)
        loads = [*args, *kwargs.values()]
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in loads), names=tuple(kwargs))

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "send":
            item = None if self.done else self.resume(tx, args[0])
            self.done = item is None
            return tx.raise_(StopIteration, self.returned) if item is None else item
        if name == "close" and self.done:
            return make(None)
        return super().call_method(tx, name, args, kwargs)
