"""Handlers of the instructions for raising and handling exceptions and for `with` blocks."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import _use_grad_for_differentiable

from ..bytecode.flow import reachable
from ..bytecode.isa import EXIT_IS_A_PAIR
from ..core.per_code import per_code
from ..vars.codegen import Codegen
from ..vars.containers.sequence import TupleVar
from ..vars.objects.classes import ClassVar
from ..vars.objects.exception_groups import left_over, matched
from ..vars.objects.exceptions import ExceptionVar, TracebackVar
from ..vars.objects.instances import InstanceVar
from ..vars.protocol.base import Raised, Var
from ..vars.protocol.class_reads import MISSING, lookup
from ..vars.protocol.const import ConstVar, make
from ..vars.protocol.null import NULL
from ..vars.stdlib.locks import SharedLockVar
from ..vars.torch_objects.contexts import EnteredVar, enter_unseen
from ..vars.tracer import Tracer
from .frame import Frame, op

if TYPE_CHECKING:
    from .trace import Trace

# Instructions by which a handler has effects visible outside.
_SEEN = {
    "RETURN_VALUE", "RAISE_VARARGS", "GET_AWAITABLE", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_OP", "IMPORT_NAME",
    "STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF",
    "DELETE_ATTR", "DELETE_SUBSCR", "DELETE_GLOBAL",
}

# The code of the function that torch wraps around steps of optimizers.
OF_STEPS = next(
    constant for constant in _use_grad_for_differentiable.__code__.co_consts if isinstance(constant, types.CodeType)
)


class ExitVar(EnteredVar):
    """The `__exit__` that a `with` block keeps on the stack. `exited`: it has been called. The handler that called it
    still has it on its stack, but does not read it any more."""

    __slots__ = ("context", "entered", "exited")

    def __init__(self, context: Any, entered: Var) -> None:
        """`context`: a Var with `enter` and `exit`; `entered`: the result of its `enter`."""
        super().__init__()
        self.context = context
        self.entered = entered
        self.exited = False

    @property
    def enters_for_real(self) -> bool:
        return not (self.exited or isinstance(self.context, InstanceVar))

    def call(self, tx: Tracer, args: Any, kwargs: Any) -> Var:
        result = self.context.exit(tx, *args) if isinstance(self.context, InstanceVar) else self.context.exit(tx)
        self.exited = True
        return result if isinstance(result, Var) else ConstVar(None)

    def mode(self) -> Var:
        if isinstance(self.context, SharedLockVar):
            self.context.for_real()
        mode: Var = self.context
        return mode

    def reconstruct(self, cg: Codegen) -> None:
        """Push the bound `__exit__`. An `__enter__` of the program has been traced; torch's modes, which the graph
        restored, are entered again."""
        if self.exited:
            cg.load_const(None)
            return
        if isinstance(self.context, InstanceVar):
            cg.load(self.context)
        else:
            mode = self.mode()
            if cg.entered is None:
                cg.load_const(enter_unseen)
            else:
                cg.asm.load_fast(cg.entered)
                cg.emit("LOAD_ATTR", "enter")
            cg.call_top(lambda: cg.load(mode))
        cg.emit("LOAD_ATTR", "__exit__")


class EnterVar(Var):
    """The `__enter__` of a context manager that was already entered; calling it returns what that `__enter__` returned
    (CPython 3.14)."""

    __slots__ = ("entered",)

    def __init__(self, entered: Var) -> None:
        super().__init__()
        self.entered = entered

    def call(self, tx: Tracer, args: Any, kwargs: Any) -> Var:
        return self.entered


def error_is_observable(frame: Frame) -> bool:
    """Whether an exception raised by the current instruction reaches code of the program: a handler, `finally`, or the
    program's own context manager. torch's modes do not count: they pass exceptions on, and the graph exits them."""
    flow, region = frame.flow, frame.flow.region[frame.at]
    while region is not None:
        # A frame that waits for what it yields from lacks the value at the top that it will be sent.
        place = region.depth - (2 if EXIT_IS_A_PAIR else 1)
        leave = frame.stack[place] if 0 <= place < len(frame.stack) else None
        handler = flow.place[region.handler]
        if not isinstance(leave, ExitVar):
            return _does_something(frame, handler)
        if isinstance(leave.context, InstanceVar):
            return True
        cleanup = flow.region[handler]  # the handler around `__exit__` raises again in the region around the `with`
        region = None if cleanup is None else flow.region[flow.place[cleanup.handler]]
    return False


def _does_something(frame: Frame, handler: int) -> bool:
    """Whether running the handler differs from just raising the exception again."""
    known = _known_handlers(frame.code)
    if handler not in known:
        after = reachable(frame.cc, handler, frame.flow)
        known[handler] = any(frame.flow.instrs[at].op in _SEEN for at in after)
    return known[handler]


@per_code
def _known_handlers(code: types.CodeType) -> dict[int, bool]:
    return {}


@op("BEFORE_WITH")
def before_with(frame: Frame, arg: None) -> None:
    leave = _enter(frame, frame.pop())
    frame.push(leave)
    frame.push(leave.entered)


def _enter(frame: Frame, context: Any) -> ExitVar:
    """Enter a context manager, or break the graph."""
    if not hasattr(context, "enter"):
        return frame.tx.graph_break("unsupported-context-manager", context.describe())
    if isinstance(context, InstanceVar) and lookup(context.cls, "__enter__") is not MISSING:
        context.needs(frame.tx, "__exit__")
    entered = context.enter(frame.tx)
    return ExitVar(context, entered if isinstance(entered, Var) else ConstVar(None))


_ENTER, _EXIT = 0, 1  # arguments of LOAD_SPECIAL


def load_exit_or_enter(frame: Frame, which: int) -> None:
    """CPython 3.14 loads `__exit__`, then `__enter__`, and calls the latter. No code of the program runs in between, so
    the context manager is entered at the first of the two. If that breaks the graph, so does the second."""
    if which == _EXIT:
        frame.push(_enter(frame, frame.pop()))
        return frame.push(NULL)
    leave = frame.stack[-3] if len(frame.stack) >= 3 else None
    if not isinstance(leave, ExitVar) or leave.context is not frame.stack[-1]:
        frame.tx.graph_break("unsupported-context-manager", frame.stack[-1].describe())
    frame.pop()
    frame.push(EnterVar(leave.entered))
    frame.push(NULL)


@op("WITH_EXCEPT_START")
def with_except_start(frame: Frame, arg: None) -> None:
    exc, leave = frame.stack[-1], frame.stack[-5 if EXIT_IS_A_PAIR else -4]
    own = [frame.stack[-4]] if EXIT_IS_A_PAIR and frame.stack[-4] is not NULL else []
    frame.push(frame.tx.call(leave, [*own, make(exc.python_type()), exc, TracebackVar(exc)], {}))


@op("RAISE_VARARGS")
def raise_varargs(frame: Frame, count: int) -> None:
    if count == 0:
        handled = frame.tx.handled()
        if handled is None:
            frame.tx.guard_nothing_handled()
            frame.tx.raise_(RuntimeError, "No active exception to reraise")
        raise Raised(handled, fresh=False)
    parts = frame.popn(count)
    exc = frame.tx.exception(parts[0])
    if count == 2:
        set_cause(frame.tx, exc, parts[1])
    raise Raised(exc)


def set_cause(tx: Trace, exc: Var, cause: Var) -> None:
    if not (cause.is_constant() and cause.constant() is None):
        kind = cause.constant() if isinstance(cause, ClassVar) else cause.python_type()
        if not issubclass(kind, BaseException):
            tx.raise_(TypeError, "exception causes must derive from BaseException")
        cause = tx.exception(cause)
    if isinstance(exc, ExceptionVar):
        exc.store(tx, "__cause__", cause)
    else:
        exc.unsupported(tx, "raise ... from")


@op("RERAISE")
def reraise(frame: Frame, arg: int) -> None:
    raise Raised(frame.pop(), fresh=False)


@op("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, arg: None) -> None:
    exc = frame.pop()
    frame.push(frame.handled() or ConstVar(None))
    frame.handling.append((exc, frame.tx.raise_step))
    frame.push(exc)


@op("POP_EXCEPT")
def pop_except(frame: Frame, arg: None) -> None:
    before = frame.pop()
    for_real = frame.handled_for_real()
    exc, _ = frame.handling.pop()
    if len(for_real) > len(frame.handled_for_real()):
        frame.tx.effects.add("HANDLED", exc, before, frame.tx.user_line())


@op("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, arg: None) -> None:
    kinds = frame.pop()
    for kind in kinds.unpack(frame.tx) if isinstance(kinds, TupleVar) else [kinds]:
        if not (isinstance(kind, ClassVar) and issubclass(kind.value, BaseException)):
            frame.tx.raise_(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    frame.push(ConstVar(issubclass(frame.stack[-1].python_type(), kinds.constant())))


@op("CHECK_EG_MATCH")
def check_eg_match(frame: Frame, arg: None) -> None:
    exc, kinds = frame.popn(2)
    match, rest = matched(frame.tx, exc, kinds)
    frame.push(rest)
    frame.push(match)
    if not (match.is_constant() and match.constant() is None):
        if match is not exc and not frame.handling[-1][1]:
            # The thread is handling `exc` for real, and exceptions raised from here on have the group as their context.
            frame.tx.graph_break("unsupported-instruction", "except* of an exception that was raised at run time")
        frame.handling[-1] = (match, frame.handling[-1][1])


@op("CALL_INTRINSIC_2")
def call_intrinsic_2(frame: Frame, name: str) -> None:
    if name != "INTRINSIC_PREP_RERAISE_STAR":
        frame.tx.graph_break("unsupported-instruction", name)
    original, raised = frame.popn(2)
    frame.push(left_over(frame.tx, original, raised.unpack(frame.tx)))
