"""Models the locks of `threading`.

A lock that the traced program creates is not shared with any thread, so acquiring it has no effect while tracing. A
lock that existed before is not acquired if the program only reads objects while it holds it. Instead the reads are
guarded, and also that no other thread holds the lock: as all guards hold at the same time, the guarded values are those
that the program would read with the lock held. If the program does more than that, a guard also checks that no other
thread runs Python code: then nobody can see whether the lock is held. A whole program (`options.whole_program`) never
takes such a lock: it changes no object but tensors, and is called by whoever exported it.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ...core.effects import Effect
from ...core.source import Source
from ...errors import Restart
from ..codegen import Codegen
from ..protocol.base import HeldVar, NotRebuildable, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, MethodVar
from ..registry import Handler, register
from ..tracer import Tracer


class LockVar(Var):
    """A lock that the traced program creates by `make()`; `held` counts how often it is acquired."""

    __slots__ = ("attrs", "held", "make")

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make, self.held = make, 0
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return type(self.make())

    def describe(self) -> str:
        return "a lock"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(self.python_type(), name) is MISSING:
            tx.raise_(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "locked" and not args:
            return ConstVar(self.held > 0)
        if name in ("acquire", "__enter__") and not args and not kwargs:
            return self.enter(tx)
        if name in ("release", "__exit__"):
            return self.exit(tx)
        return self.unsupported(tx, f"method {name!r}")

    def enter(self, tx: Tracer) -> Var:
        if self.held and self.make is _thread.allocate_lock:
            self.unsupported(tx, "a second acquire()")
        self.held += 1
        return ConstVar(True)

    def exit(self, tx: Tracer, *args: Var) -> Var:
        if not self.held:
            tx.raise_(RuntimeError, "release unlocked lock" if self.make is not _thread.RLock else _UNOWNED)
        self.held -= 1
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        if self.held:
            raise NotRebuildable("a lock that is held cannot be rebuilt")
        cg.load_call(self.make)


class SharedLockVar(HeldVar):
    """A lock that existed before the trace.

    The lock is acquired for real if the graph breaks while it is held. It is also acquired for real if other threads
    run Python code and the program changes an object or computes with tensors, which another thread may be changing.
    """

    __slots__ = ("begun", "by_name", "tx")

    def __init__(self, tx: Tracer, value: Any, source: Source | None) -> None:
        super().__init__(value, source)
        self.begun: list[tuple[int, int]] = []
        self.by_name: list[Effect] = []  # one per `acquire()` without its `release()`
        self.tx = tx

    def describe(self) -> str:
        return f"{self.source or 'a lock'} of type {type(self.value).__qualname__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if name in _METHODS else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        held = bool(self.begun or self.by_name)
        reacquired = held and type(self.value) is _thread.LockType
        if kwargs or (name != "__exit__" and args) or not self._is_unseen() or (name == "acquire" and reacquired):
            self.for_real()
        if name in ("release", "__exit__"):
            if not self.by_name:
                self.for_real()
            tx.effects.cancel(self.by_name.pop())
            return ConstVar(None)
        if name == "locked":
            return ConstVar(held)
        # The effect acquires the lock if the trace ends before it is released.
        self.by_name.append(tx.effects.add("CALL", None, (_acquire, [self], {}), tx.user_line()))
        return ConstVar(True)

    def enter(self, tx: Tracer) -> Var:
        reacquired = (self.begun or self.by_name) and type(self.value) is _thread.LockType
        if reacquired or not _is_free(self.value) or self.source is None:
            tx.graph_break("unsupported-context-manager", f"method '__enter__' on {self.describe()}")
        tx.guard(self.source, "PREDICATE", (_is_free, (), "no other thread holds the lock"))
        self.begun.append(_done(tx))
        return ConstVar(True)

    def exit(self, tx: Tracer) -> Var:
        if self.begun.pop() != _done(tx) and not tx.options.whole_program and not self._is_unseen():
            self.for_real()
        return ConstVar(None)

    def _is_unseen(self) -> bool:
        """Whether nobody can see if the lock is held; a guard checks this at later calls."""
        if self.source is None or not _is_unseen(self.value):
            return False
        self.tx.guard(self.source, "PREDICATE", (_is_unseen, (), "it is free, and no other thread runs Python code"))
        return True

    def for_real(self) -> NoReturn:
        """Restart the trace with the lock as an opaque object, so that it is acquired for real."""
        self.tx.opaque[id(self.value)] = self.value
        raise Restart()

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _done(tx: Tracer) -> tuple[int, int]:
    return tx.effects.changes, tx.graph.size()


def _is_free(lock: Any) -> bool:
    """Whether this thread could acquire the lock without waiting."""
    if type(lock) is _thread.LockType:
        return not lock.locked()
    free: bool = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free


def _is_unseen(lock: Any) -> bool:
    """Whether the lock is free and no other thread could acquire it before the present call returns."""
    return len(sys._current_frames()) == 1 and _is_free(lock)


def _acquire(lock: Any) -> None:
    lock.acquire()


_METHODS = ("acquire", "release", "locked", "__enter__", "__exit__")
LOCKS = (_thread.LockType, _thread.RLock)
_UNOWNED = "cannot release un-acquired lock"


def _maker(make: Any) -> Handler:
    return lambda tx, args, kwargs: LockVar(make)


register(_thread.RLock)(_maker(_thread.RLock))
register(_thread.allocate_lock)(_maker(_thread.allocate_lock))
