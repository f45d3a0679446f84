"""Raising, handling, `with`."""

from __future__ import annotations

from typing import Any

from ..vars.base import Var
from ..vars.const import ConstVar, make
from ..vars.exception import ExceptionVar, Raised
from ..vars.instance import InstanceVar
from ..vars.klass import ClassVar
from .frame import NULL, Frame, op


class ExitVar(Var):
    """The `__exit__` that a `with` block keeps on the stack."""

    __slots__ = ("context",)

    def __init__(self, context: Var) -> None:
        super().__init__()
        self.context = context

    def call(self, tx: Any, args: Any, kwargs: Any) -> Var:
        result = self.context.exit(tx, *args) if isinstance(self.context, InstanceVar) else self.context.exit(tx)
        return result if isinstance(result, Var) else ConstVar(None)

    def reconstruct(self, cg: Any) -> None:
        """Enter the context for real and leave its bound `__exit__`."""
        cg.load(self.context)
        cg.emit("COPY", 1)
        cg.emit("LOAD_ATTR", "__enter__")
        cg.call_top()
        cg.emit("POP_TOP")
        cg.emit("LOAD_ATTR", "__exit__")


@op("BEFORE_WITH")
def before_with(frame: Frame, arg: None) -> None:
    context = frame.pop()
    if not hasattr(context, "enter"):
        frame.tx.graph_break("unsupported-context-manager", context.describe())
    entered = context.enter(frame.tx)
    frame.push(ExitVar(context))
    frame.push(entered if isinstance(entered, Var) else ConstVar(None))


@op("WITH_EXCEPT_START")
def with_except_start(frame: Frame, arg: None) -> None:
    exc, leave = frame.stack[-1], frame.stack[-4]
    frame.push(frame.tx.call(leave, [make(exc.python_type()), exc, ConstVar(None)], {}))


def _instance(frame: Frame, value: Var) -> Var:
    return frame.tx.call(value, [], {}) if isinstance(value, ClassVar) else value


@op("RAISE_VARARGS")
def raise_varargs(frame: Frame, count: int) -> None:
    if count == 0:
        if not frame.handling:
            frame.tx.raise_(RuntimeError, "No active exception to reraise")
        raise Raised(frame.handling[-1][0])
    parts = frame.popn(count)
    exc = _instance(frame, parts[0])
    if not isinstance(exc, ExceptionVar | InstanceVar):
        frame.tx.raise_(TypeError, "exceptions must derive from BaseException")
    if count == 2 and isinstance(exc, ExceptionVar):
        exc.attrs["__cause__"] = _instance(frame, parts[1])
    raise Raised(exc)


@op("RERAISE")
def reraise(frame: Frame, arg: int) -> None:
    raise Raised(frame.pop())


@op("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, arg: None) -> None:
    exc = frame.pop()
    frame.push(frame.handling[-1][0] if frame.handling else ConstVar(None))
    frame.handling.append((exc, frame.tx.raise_step))
    frame.push(exc)


@op("POP_EXCEPT")
def pop_except(frame: Frame, arg: None) -> None:
    frame.pop()
    frame.handling.pop()


@op("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, arg: None) -> None:
    kinds = frame.pop()
    frame.push(ConstVar(issubclass(frame.stack[-1].python_type(), kinds.constant())))


__all__ = ["NULL"]
