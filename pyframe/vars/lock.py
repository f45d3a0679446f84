"""Locks that the traced program makes: nobody else has them, so taking one does nothing while tracing."""

from __future__ import annotations

import _thread
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.tracer import Tracer
from .base import Var
from .const import ConstVar, MethodVar
from .function import BUILTINS, Handler


class LockVar(Var):
    """`make()` of `threading.Lock` or `threading.RLock`, not held when the graph is left."""

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
        if not hasattr(self.python_type(), name):
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

    def reconstruct(self, cg: Any) -> None:
        if self.held:
            raise NotImplementedError("a lock that is held cannot be rebuilt")
        cg.load_const(self.make)
        cg.call_top()


_UNOWNED = "cannot release un-acquired lock"


def _maker(make: Any) -> Handler:
    return lambda tx, args, kwargs: LockVar(make)


BUILTINS[_thread.RLock] = _maker(_thread.RLock)
BUILTINS[_thread.allocate_lock] = _maker(_thread.allocate_lock)
