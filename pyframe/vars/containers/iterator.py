"""Vars of iterators: over sequences, sets and dicts, the lazy builtins (zip, map, filter, enumerate), and generators.

The tracer advances an iterator step by step. If the program still needs the iterator after the graph has run, the new
bytecode rebuilds it at the position it has reached. A generator that has started cannot be rebuilt: the trace restarts
with a graph break where it was created.
"""

from __future__ import annotations

import collections
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from ..codegen import Codegen
from ..protocol import dunder, slots
from ..protocol.base import NotRebuildable, Raised, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, MethodVar, make
from ..registry import Args, Kwargs, register
from ..tracer import Tracer

Resume = Callable[[Tracer, Var, Var | None], Var | None]
Call = tuple[Var, Sequence[Var], Mapping[str, Var]]
Step = Callable[[Tracer], Var | None]
_LIST_ITERATOR: type = type(iter([]))


class IteratorVar(Var):
    """An iterator that the tracer advances; `type` is its Python type."""

    __slots__ = ("done", "type")

    def __init__(self, type_: type = _LIST_ITERATOR) -> None:
        super().__init__()
        self.done = False
        self.type = type_

    def advance(self, tx: Tracer) -> Var | None:
        """The next item; None when the iterator is exhausted."""
        raise NotImplementedError

    def python_type(self) -> type:
        return self.type

    def iterate(self, tx: Tracer) -> Var:
        return self

    def next_(self, tx: Tracer) -> Var | None:
        tx.spend(1)
        tx.effects.moves += not self.done
        item = None if self.done else self.advance(tx)
        self.done = item is None
        return item

    def stop(self, tx: Tracer) -> NoReturn:
        """Raise StopIteration in the traced program: the iterator is exhausted."""
        tx.raise_(StopIteration)

    def truth(self, tx: Tracer) -> bool:
        return True

    def length(self, tx: Tracer) -> Var:
        tx.raise_(TypeError, f"object of type {self.type.__name__!r} has no len()")

    def contains(self, tx: Tracer, item: Var) -> bool:
        while (each := self.next_(tx)) is not None:
            if slots.equal(tx, each, item):
                return True
        return False

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(self.type, name) is MISSING:
            tx.raise_(AttributeError, f"{self.type.__name__!r} object has no attribute {name!r}")
        if not callable(getattr(self.type, name)):
            return self.unsupported(tx, f"attribute {name!r}")
        return make(self.type) if name == "__class__" else MethodVar(self, name)

    def remaining(self) -> int | None:
        """What `__length_hint__` returns before the iterator is exhausted; None if that has no model."""
        return None

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__length_hint__" and (length := self.remaining()) is not None:
            return ConstVar(0 if self.done else max(length, 0))
        found = dunder.call(tx, self, name, args)
        return self.unsupported(tx, f"method {name!r}") if found is None else found


class ItemsIteratorVar(IteratorVar):
    """`iter()` of a sequence, which it reads at each step, so that items added during the iteration are found.  `owner`
    is the Var of the sequence whose `items` these are; None if `items` is a copy."""

    __slots__ = ("items", "owner", "position")

    def __init__(self, items: list[Var], owner: Var | None = None) -> None:
        self.items, self.owner = items, owner
        self.position = 0
        super().__init__()

    def advance(self, tx: Tracer) -> Var | None:
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def remaining(self) -> int | None:
        return len(self.items) - self.position

    def reconstruct(self, cg: Codegen) -> None:
        if self.owner is not None and not self.done:
            _load_at(cg, self.owner, self.position)
            return
        cg.load_const(iter)
        rest = [] if self.done else self.items[self.position :]
        cg.call_top(lambda: cg.sequence("BUILD_LIST", rest))


class KnownIteratorVar(ItemsIteratorVar):
    """`iter()` of a range, str or bytes with the constant `value`; the Var of an item is created when it is reached."""

    __slots__ = ("value",)

    def __init__(self, owner: Var, value: Sequence[Any]) -> None:
        super().__init__([], owner)
        self.value = value
        self.type = type(iter(value))

    def advance(self, tx: Tracer) -> Var | None:
        try:
            item = self.value[self.position]
        except IndexError:
            return None
        self.position += 1
        return make(item)

    def remaining(self) -> int | None:
        return len(self.value) - self.position


@register(str, bytes, method="__iter__")
def _iterate_text(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return KnownIteratorVar(args[0], args[0].constant())


class ReversedVar(IteratorVar):
    """`reversed()` of a sequence, which it reads at each step; `owner` is the Var of the sequence."""

    __slots__ = ("items", "owner", "position")

    def __init__(self, items: Sequence[Var], owner: Var) -> None:
        self.items, self.owner = items, owner
        self.position = len(items) - 1
        super().__init__(type(reversed([])) if isinstance(items, list) else reversed)

    def advance(self, tx: Tracer) -> Var | None:
        if not 0 <= self.position < len(self.items):
            return None
        self.position -= 1
        return self.items[self.position + 1]

    def remaining(self) -> int | None:
        return self.position + 1 if self.position < len(self.items) else 0

    def reconstruct(self, cg: Codegen) -> None:
        if self.done:
            cg.load_const(iter)
            cg.call_top(lambda: cg.sequence("BUILD_LIST", []))
            return
        cg.load_const(reversed_at)
        cg.call_top(lambda: cg.load(self.owner), lambda: cg.load_const(self.position))


def reversed_at(sequence: Sequence[Any], position: int) -> Any:
    iterator = reversed(sequence)
    iterator.__setstate__(position)
    return iterator


class SizedIteratorVar(IteratorVar):
    """`iter()` of `owner`, which is a set or a dict view.  `container` is the set or dict with the items; as in
    CPython, a change of its size raises RuntimeError, as does any change of the keys of an OrderedDict.  `live`, if
    given, iterates over the current items of the dict, so that replaced values are found; otherwise `items` is a
    copy."""

    __slots__ = ("arrangement", "container", "items", "live", "owner", "position", "size", "tx", "what")

    def __init__(
        self,
        tx: Tracer,
        owner: Var,
        container: Var,
        items: list[Var],
        what: str,
        kind: type,
        live: Iterator[Var] | None = None,
    ) -> None:
        self.tx, self.owner, self.container, self.position, self.items = tx, owner, container, 0, items
        self.what, self.live, self.size = what, live, len(items)
        self.arrangement = _arrangement(container) if container.python_type() is collections.OrderedDict else None
        super().__init__(kind)

    def advance(self, tx: Tracer) -> Var | None:
        if self.arrangement is not None and self.arrangement != _arrangement(self.container):
            tx.raise_(RuntimeError, "OrderedDict mutated during iteration")
        if self.container.length(tx).constant() != self.size:
            tx.raise_(RuntimeError, f"{self.what} changed size during iteration")
        if self.live is not None:
            try:
                item = next(self.live, None)
            except RuntimeError as error:
                tx.raise_(RuntimeError, *error.args)
            self.position += item is not None
            return item
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def remaining(self) -> int | None:
        return self.size - self.position if self.container.length(self.tx).constant() == self.size else 0

    def reconstruct(self, cg: Codegen) -> None:
        # The new bytecode refills a dict that the trace changed, which would invalidate an iterator over the real dict.
        if self.done or any(effect.target is self.container for effect in self.tx.effects):
            cg.load_const(iter)
            if self.live is not None and not self.done:  # consume `live` once only, since `reconstruct` runs twice
                self.items, self.position, self.live = list(self.live), 0, None
            rest = [] if self.done else self.items[self.position :]
            cg.call_top(lambda: cg.sequence("BUILD_LIST", rest))
            return
        _load_at(cg, self.owner, self.position)


def _arrangement(mapping: Any) -> tuple[Any, ...]:
    """What iterators over an OrderedDict depend on: the order of its keys, and which were deleted."""
    return list(mapping.items), set(mapping.deleted), mapping.cleared


class LazyVar(IteratorVar):
    """`kind(*parts, **named)` for zip, map, filter or enumerate.  All of its state is in `parts`: iterators, the
    function, the count of enumerate.  `step(tx)` returns the next item, or None at the end."""

    __slots__ = ("kind", "named", "parts", "step")

    def __init__(
        self, kind: type, step: Step, parts: list[Var], named: Mapping[str, Var] | None = None, rebuild: Any = None
    ) -> None:
        super().__init__(kind)
        self.kind, self.parts, self.named, self.step = rebuild or kind, parts, dict(named or {}), step

    def advance(self, tx: Tracer) -> Var | None:
        return self.step(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.kind)
        loads = [*self.parts, *self.named.values()]
        cg.call_top(*(lambda part=part: cg.load(part) for part in loads), names=tuple(self.named))


def from_python(items: Iterator[Var]) -> IteratorVar:
    """An IteratorVar over the items of a Python iterator of Vars, which is exhausted at once."""
    return ItemsIteratorVar(list(items))


def iterator_at(iterable: Any, position: int) -> Iterator[Any]:
    """`iter(iterable)` advanced by `position` items."""
    iterator = iter(iterable)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(position)
    else:
        next(itertools.islice(iterator, position, position), None)
    return iterator


def _load_at(cg: Codegen, owner: Var, position: int) -> None:
    cg.load_const(iterator_at if position else iter)
    if position:
        cg.call_top(lambda: cg.load(owner), lambda: cg.load_const(position))
    else:
        cg.call_top(lambda: cg.load(owner))


class NotRebuilt(NotRebuildable):
    """A value that the new bytecode cannot rebuild.  The trace restarts with a graph break (of id `kind`) at the
    instruction `step` of the root frame, which created the value: CPython creates it."""

    def __init__(self, what: str, step: int, kind: str = "generator-frame") -> None:
        super().__init__(what)
        self.step, self.kind = step, kind


class ResumableVar(IteratorVar):
    """An iterator with `send` and `throw`. `resume(tx, sent, thrown)` continues it with a value or an exception and
    returns the next item, or None at the end, when `returned` is set."""

    __slots__ = ("returned",)

    def __init__(self, type_: type) -> None:
        super().__init__(type_)
        self.returned: Var | None = None

    def resume(self, tx: Tracer, sent: Var, thrown: Var | None) -> Var | None:
        raise NotImplementedError

    def close(self, tx: Tracer) -> None:
        raise NotImplementedError

    def advance(self, tx: Tracer) -> Var | None:
        return self.resume(tx, make(None), None)

    def stop(self, tx: Tracer) -> NoReturn:
        value, self.returned = self.returned, None
        tx.raise_(StopIteration, *([] if value is None or slots.constant_or(value, 0) is None else [value]))

    def send(self, tx: Tracer, value: Var) -> Var | None:
        """`self.send(value)`; None at the end."""
        return self.resume(tx, value, None)

    def throw(self, tx: Tracer, exc: Var) -> Var | None:
        """`self.throw(exc)`; None at the end."""
        return self.resume(tx, make(None), exc)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "close":
            self.close(tx)
            return make(None)
        if name not in ("send", "throw"):
            return super().call_method(tx, name, args, kwargs)
        if name == "send":
            item = self.send(tx, args[0])
        else:
            item = self.throw(tx, tx.exception(args[0], *args[1:2]))
        return self.stop(tx) if item is None else item


class GeneratorVar(ResumableVar):
    """A generator whose body is traced inline.

    `run(tx, sent, thrown)` resumes the body with a value or an exception and returns the next yielded item, or None at
    the end, when `returned` is set.  `origin` is the generator function with its arguments, `created_at` the
    instruction number of the call in the root frame.  `in_try` tells whether the program would handle an exception
    raised where the body is suspended."""

    __slots__ = ("in_try", "created_at", "origin", "run", "running", "started")

    what: ClassVar[str] = "generator"
    not_raised: ClassVar[tuple[type[Exception], ...]] = (StopIteration,)  # the body cannot raise these
    prefix: ClassVar[str] = "gi_"

    def __init__(self, run: Resume, in_try: Callable[[], bool], origin: Call, created_at: int, type_: type) -> None:
        super().__init__(type_)
        self.started = self.running = False
        self.run, self.in_try, self.origin, self.created_at = run, in_try, origin, created_at

    def forget(self) -> None:
        """Drop the body, which holds a reference to this Var (a cycle).  The generator cannot be resumed afterwards."""
        self.done = True
        del self.run, self.in_try, self.origin

    def resume(self, tx: Tracer, sent: Var, thrown: Var | None) -> Var | None:
        if self.done:
            if thrown is not None:
                raise Raised(thrown)
            return None
        if self.running:
            tx.raise_(ValueError, f"{self.what} already executing")
        if not self.started and slots.constant_or(sent, 0) is not None:
            tx.raise_(TypeError, f"can't send non-None value to a just-started {self.what}")
        self.running, ended = True, True
        try:
            if thrown is not None and not self.started:
                raise Raised(thrown)
            self.started = True
            item = self.run(tx, sent, thrown)
            ended = item is None
        except Raised as raised:
            for kind in self.not_raised:
                if issubclass(raised.exc.python_type(), kind):
                    tx.raise_from(RuntimeError, raised.exc, f"{self.what} raised {kind.__name__}")
            raise
        finally:
            self.running, self.done = False, ended
        return item

    def close(self, tx: Tracer) -> None:
        if not self.started:
            self.done = True
        if self.done:
            return
        try:
            item = self.throw(tx, tx.exception(GeneratorExit))
        except Raised as raised:
            if not issubclass(raised.exc.python_type(), GeneratorExit):
                raise
            return
        if item is not None:
            tx.raise_(RuntimeError, f"{self.what} ignored GeneratorExit")

    def reconstruct(self, cg: Codegen) -> None:
        if self.done:
            cg.load_call(_ended)
            return
        if self.started:
            raise NotRebuilt(f"a {self.what} that has started and is still needed after the graph", self.created_at)
        fn, args, kwargs = self.origin
        cg.load(fn)
        loads = [*args, *kwargs.values()]
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in loads), names=tuple(kwargs))

    def state(self) -> str:
        """The state, as `inspect.getgeneratorstate` returns it."""
        if self.running:
            return inspect.GEN_RUNNING
        if self.done:
            return inspect.GEN_CLOSED
        return inspect.GEN_SUSPENDED if self.started else inspect.GEN_CREATED

    def getattr_(self, tx: Tracer, name: str) -> Var:
        field = name.removeprefix(self.prefix)
        match field if field != name or name.startswith("__") else None:
            case "running":
                return make(self.running)
            case "suspended":
                return make(self.state() == inspect.GEN_SUSPENDED)
            case "frame" if self.done:
                return make(None)
            case "__name__" | "__qualname__" | "code" if self.type in _OF_FUNCTIONS:
                return self.origin[0].getattr_(tx, "__code__" if field == "code" else name)
        return super().getattr_(tx, name)


_OF_FUNCTIONS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def _ended() -> Iterator[Any]:
    """An exhausted generator."""
    nothing: tuple[Any, ...] = ()
    ended = (item for item in nothing)
    next(ended, None)
    return ended
