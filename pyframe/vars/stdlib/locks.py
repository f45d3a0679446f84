"""Models the locks of `threading`.

A lock that the traced program creates is not shared with any thread, so acquiring it has no effect while tracing. A
lock that existed before is not acquired if the program only reads objects while it holds it. Instead the reads are
guarded, and also that no other thread holds the lock: as all guards hold at the same time, the guarded values are those
that the program would read with the lock held.
"""

from __future__ import annotations

import _thread
from collections.abc import Mapping, Sequence
from typing import Any

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
    """A lock that existed before the trace, used in a `with` statement.

    The lock is acquired for real if, while holding it, the program changes an object, computes with tensors (another
    thread may be writing them) or breaks the graph.
    """

    __slots__ = ("begun", "tx")

    def __init__(self, tx: Tracer, value: Any, source: Source | None) -> None:
        super().__init__(value, source)
        self.begun: list[tuple[int, int]] = []
        self.tx = tx

    def describe(self) -> str:
        return f"{self.source or 'a lock'} of type {type(self.value).__qualname__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def enter(self, tx: Tracer) -> Var:
        reacquired = self.begun and type(self.value) is _thread.LockType
        if reacquired or not _is_free(self.value) or self.source is None:
            tx.graph_break("unsupported-context-manager", f"method '__enter__' on {self.describe()}")
        tx.guard(self.source, "PREDICATE", (_is_free, (), "no other thread holds the lock"))
        self.begun.append(_done(tx))
        return ConstVar(True)

    def exit(self, tx: Tracer) -> Var:
        if self.begun.pop() != _done(tx):
            self.for_real()
        return ConstVar(None)

    def for_real(self) -> None:
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


LOCKS = (_thread.LockType, _thread.RLock)
_UNOWNED = "cannot release un-acquired lock"


def _maker(make: Any) -> Handler:
    return lambda tx, args, kwargs: LockVar(make)


register(_thread.RLock)(_maker(_thread.RLock))
register(_thread.allocate_lock)(_maker(_thread.allocate_lock))
