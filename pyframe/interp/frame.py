"""Executes one frame of the traced program: runs its canonical bytecode through the registered handlers, with Vars on
the stack and in the locals, and unwinds to exception handlers."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..bytecode import CanonicalCode, Instr
from ..bytecode.flow import FlowGraph
from ..bytecode.isa import NULL_BEFORE_CALLABLE
from ..core.files import our_file
from ..core.guard import UserLine
from ..core.source import ConstSource, DictItemSource, GlobalSource, Source
from ..emit.loops import decoded, loops_of, starts_at_iterator
from ..emit.resume import plain_name
from ..errors import InternalError
from ..vars.containers.iterator import ResumableVar
from ..vars.objects.exceptions import ExceptionVar
from ..vars.objects.functions import CellVar
from ..vars.protocol.base import NotConstant, Raised, Var
from ..vars.protocol.const import ConstVar
from ..vars.protocol.null import NULL
from .limits import too_long

if TYPE_CHECKING:
    from .trace import Trace


class UntouchedVar(Var):
    """An argument of the root frame that has not been read yet, so that it needs no guards."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source) -> None:
        super().__init__(source)
        self.value = value


@dataclass(slots=True)
class Outcome:
    """How `Frame.run` ended: with a returned value, or with a yielded one, after which the frame can be resumed."""

    value: Var
    yielded: bool = False


Handler = Callable[["Frame", Any], "Outcome | None"]
HANDLERS: dict[str, Handler] = {}


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for instructions of the canonical instruction set."""

    def register(fn: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, fn))
        return fn

    return register


class Before(NamedTuple):
    """What there was before an instruction of an inlined frame: the stack, how much was traced, and what the trace
    relied on."""

    stack: list[Var]
    traced: tuple[int, ...]
    relied: tuple[int, int]


@dataclass(slots=True, eq=False)
class Frame:
    """A frame of the traced program: the root frame of a capture, or a call that is traced inline."""

    tx: Trace
    code: types.CodeType
    globals: dict[str, Any]
    globals_source: Source | None
    is_root: bool = False
    function: Var | None = None  # the function called; None in the root frame
    locals: dict[str, Var] = field(default_factory=dict)
    cells: dict[str, CellVar] = field(default_factory=dict)
    free: list[CellVar] = field(default_factory=list)
    stack: list[Var] = field(default_factory=list)
    pc: int = 0
    at: int = 0
    cc: CanonicalCode = field(init=False)
    flow: FlowGraph = field(init=False)
    loops: Mapping[int, frozenset[int]] = field(init=False)
    calling: Var | None = None  # what the call instruction calls that the frame is at
    number: int = 0  # of the current instruction of an inlined frame, among those of the step of the root frame
    began: int = 0  # instructions spent by the trace when this frame was entered
    names: Var | None = None  # in a class body: the namespace
    given_variables: Var | None = None  # the dict that `locals()` returned
    around: Any = None  # see `TracedFrame`
    # Of an inlined frame, as (number, ordinal of the instruction): where each loop starts, by head, and what raised the
    # outermost exception that the frame is handling.
    loop_starts: dict[int, tuple[int, int]] = field(default_factory=dict)
    raised_at: tuple[int, int] = (0, 0)
    before: Before | None = None  # of an inlined frame
    # Exceptions being handled, each with the root step of its raise; 0: the thread already handles it at run time.
    handling: list[tuple[Var, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cc, self.flow = decoded(self.code)
        self.loops = loops_of(self.code)

    # ---- stack ----
    def push(self, var: Var) -> None:
        self.stack.append(var)

    def push_callable(self, fn: Var) -> None:
        """Push a callable that is already bound, and the NULL in place of self."""
        self.stack += (NULL, fn) if NULL_BEFORE_CALLABLE else (fn, NULL)

    def pop(self) -> Var:
        return self.stack.pop()

    def popn(self, count: int) -> list[Var]:
        if not count:
            return []
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def local(self, name: str) -> Var | None:
        """The value of a local, about to be read; None if unbound."""
        found = self.locals.get(name)
        if type(found) is UntouchedVar:
            found = self.locals[name] = self.tx.wrap(found.value, found.source)
        return found

    def variables(self) -> dict[str, Var | None] | None:
        """The variables of a function in the order of `locals()`, None for those that are unbound; None in other
        code."""
        if self.names is not None or not self.code.co_flags & inspect.CO_NEWLOCALS:
            return None
        free = dict(zip(self.cc.freevars, self.free, strict=True))
        found: dict[str, Var | None] = {}
        for name in (*self.code.co_varnames, *self.code.co_cellvars, *self.code.co_freevars):
            cell = self.cells.get(name) or free.get(name)
            found[name] = self.local(name) if cell is None else cell.content
        return found

    def first_argument(self) -> Any:
        """The object that existed before the trace and is the value of the first parameter; None if there is none."""
        if not self.code.co_argcount:
            return None
        name = self.code.co_varnames[0]
        var = self.cells[name].content if name in self.cells else self.locals.get(name)
        return getattr(var, "value", None)

    def jump(self, label: Any) -> None:
        self.pc = self.flow.place[label]

    @property
    def instr(self) -> Instr:
        return self.flow.instrs[self.at]

    @property
    def file(self) -> str:
        return self.code.co_filename

    def user_line(self) -> UserLine:
        line = self.instr.pos.lineno if self.flow.instrs else None
        return UserLine(self.code.co_filename, line or self.code.co_firstlineno, plain_name(self.code.co_name))

    # ---- running ----
    def step(self) -> Outcome | None:
        """Execute the next instruction; returns an Outcome if the frame returns or yields."""
        previous, self.at = self.at, self.pc
        instr = self.flow.instrs[self.at]
        self.pc = self.at + 1
        handler = HANDLERS.get(instr.op)
        tx = self.tx
        if not self.is_root:
            before = self.number
            tx.inner_steps = self.number = tx.inner_steps + 1
            if self.at in self.loops and self.at not in self.loop_starts:
                fresh = starts_at_iterator(self.flow, previous, self.at)
                self.loop_starts[self.at] = (before, previous) if fresh else (self.number, self.at)
            if self.number == tx.breaks.inner_stop:
                tx.breaks.break_within()
            self.before = Before(list(self.stack), tx.breaks.traced(), tx.reliances.mark())
        tx.instructions += 1
        tx.budget.left -= 1
        if tx.budget.left < 0:
            too_long(tx)
        if handler is None:
            return self.tx.graph_break("unsupported-instruction", instr.op)
        try:
            return handler(self, instr.arg)
        except Raised as raised:
            if not self.unwind(raised):
                raise
            return None
        except NotConstant as value:
            if value.var is not None:
                return value.var.unsupported(self.tx, instr.op)
            return self.tx.graph_break("unsupported-object", f"{instr.op} of {value}, known only at run time")

    def run(self, thrown: Var | None = None) -> Outcome:
        """Run an inlined frame until it returns or yields; `thrown` is raised where the frame is suspended."""
        self.tx.enter_frame(self)
        try:
            outcome = None if thrown is None else self._throw(thrown)
            if outcome is not None:
                return outcome
            while True:
                outcome = self.step()
                if outcome is not None:
                    return outcome
        finally:
            self.tx.leave_frame(self)

    def _throw(self, exc: Var) -> Outcome | None:
        """Raise `exc` at the yield that suspends this frame, or throw it into the iterator of the `yield from` that
        does."""
        instrs = self.flow.instrs
        waiting = self.stack[-1] if self.at and instrs[self.at - 1].op == "SEND" else None
        try:
            if waiting is None:
                raise Raised(exc)
            item = self._throw_into(waiting, exc)
        except Raised as raised:
            if waiting is not None and issubclass(raised.exc.python_type(), StopIteration) and raised.exc is not exc:
                self._sent(self.tx.getattr(raised.exc, "value"))
                return None
            self.push(ConstVar(None))  # what CPython pushes when it resumes a frame to raise an exception in it
            if not self.unwind(raised):
                raise
            return None
        if item is not None:
            return Outcome(item, yielded=True)
        assert isinstance(waiting, ResumableVar)
        self._sent(waiting.returned or ConstVar(None))
        return None

    def _sent(self, value: Var) -> None:
        """Continue after a `yield from` whose iterator ended with `value`."""
        self.push(value)
        self.jump(self.flow.instrs[self.at - 1].arg)

    def _throw_into(self, waiting: Var, exc: Var) -> Var | None:
        tx = self.tx
        if issubclass(exc.python_type(), GeneratorExit):
            if tx.has_attribute(waiting, "close"):
                waiting.call_method(tx, "close", [], {})
            raise Raised(exc)
        if isinstance(waiting, ResumableVar):
            return waiting.throw(tx, exc)
        if not tx.has_attribute(waiting, "throw"):
            raise Raised(exc)
        return waiting.call_method(tx, "throw", [exc], {})

    def in_try(self) -> bool:
        """Whether the program would handle an exception at the instruction that suspends this frame."""
        return not self._passes_close_on(self.at)

    def _passes_close_on(self, at: int) -> bool:
        """Whether a GeneratorExit raised by the instruction at `at` leaves the frame without running code of the
        program."""
        region = self.flow.region[at]
        return region is None or self._ignores_close(self.flow.place[region.handler])

    def _ignores_close(self, at: int) -> bool:
        """Whether the handler at `at` passes on a GeneratorExit without running code of the program."""
        instrs = self.flow.instrs
        if instrs[at].op == "CALL_INTRINSIC_1":  # CPython's handler around the body: StopIteration -> RuntimeError
            return True
        if instrs[at].op == "CLEANUP_THROW":  # of a `yield from`, from 3.12 on: raises again after closing
            return self._passes_close_on(at)
        if [each.op for each in instrs[at : at + 3]] == ["COPY", "POP_EXCEPT", "RERAISE"]:  # the end of a handler
            return self._passes_close_on(at + 2)
        if instrs[at].op == "LOAD_CONST" and instrs[at].arg is None and instrs[at + 3].op == "RERAISE":
            stores, deletes = ("STORE_FAST", "STORE_DEREF"), ("DELETE_FAST", "DELETE_DEREF")  # `except ... as name`
            drops_name = instrs[at + 1].op in stores and instrs[at + 2].op in deletes
            return drops_name and self._passes_close_on(at + 3)
        if instrs[at].op != "PUSH_EXC_INFO":
            return False
        at += 1
        while [each.op for each in instrs[at : at + 3]] == ["LOAD_GLOBAL", "CHECK_EXC_MATCH", "POP_JUMP_IF_FALSE"]:
            caught = getattr(builtins, instrs[at].arg, BaseException)
            if instrs[at].arg in self.globals or not issubclass(caught, Exception):
                return False
            at = self.flow.place[instrs[at + 2].arg]
        return instrs[at].op == "RERAISE" and self._passes_close_on(at)

    def unwind(self, raised: Raised) -> bool:
        """Go to the handler of the exception; False if it leaves the frame."""
        if raised.fresh:
            self.tx.raised.append(raised.exc)
            if isinstance(raised.exc, ExceptionVar):
                raised.exc.raised_at(self.tx.real_step())
                raised.exc.set_context(self.tx, self.tx.handled())
        raised.fresh = False
        region = self.flow.region[self.at]
        if region is None:
            return False
        earlier = raised.exc.source is None or any(exc is raised.exc for exc in self.tx.raised)
        reraised = self.instr.op == "RERAISE" and earlier  # raised by the program at an earlier step
        if self.is_root and not reraised and len(self.handled_for_real()) == len(self.handling):
            self.tx.raise_step = self.tx.steps
        if not self.is_root and not reraised and not self.handling:
            self.raised_at = (self.number, self.at)
        del self.stack[region.depth :]
        if region.lasti:
            self.push(ConstVar(self.at))
        self.push(raised.exc)
        self.jump(region.handler)
        return True

    def resumable_place(self) -> tuple[int, int]:
        """Of an inlined frame: the latest instruction before which a break can suspend it, as (number, ordinal). That
        is the current one, unless the frame is handling an exception, which has to be raised at run time, or is in a
        loop, which has to be left as a whole."""
        place = self.raised_at if self.handling else (self.number, self.at)
        around = (self.loop_starts[head] for head in self.loop_starts if place[1] in self.loops[head])
        return min([place, *around])

    def handled(self) -> Var | None:
        """The innermost exception that this frame is handling."""
        if not self.handling:
            return None
        exc, step = self.handling[-1]
        if type(exc) is UntouchedVar:
            exc = self.tx.wrap(exc.value, exc.source)
            self.handling[-1] = (exc, step)
        return exc

    def handled_for_real(self) -> list[Var]:
        """In the root frame: exceptions that the thread was already handling when it began, and whose handling has not
        ended."""
        return [exc for exc, step in self.handling if not step] if self.is_root else []

    # ---- names ----
    def load_global(self, name: str) -> Var:
        tx = self.tx
        written = tx.written_global(self.globals, name)
        if written is not None:
            return written
        builtins = self.globals.get("__builtins__", {})
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        if name in self.globals:
            value = self.globals[name]
        elif name in builtins:
            value = builtins[name]
        else:
            return tx.raise_(NameError, f"name {name!r} is not defined")
        if self.is_root:
            return tx.wrap(value, GlobalSource(name))
        if name in self.globals:
            return tx.wrap(value, DictItemSource(self.globals_source, name) if self.globals_source else None)
        if our_file(self.file):
            return tx.wrap(value, tx.const_source(value, name))
        tx.guard(self.globals_source, "DICT_LACKS", name)
        return tx.wrap(value, DictItemSource(ConstSource.of(builtins, "builtins"), name))

    def cell(self, name: str) -> CellVar:
        found = self.cells.get(name)
        if found is None:
            raise InternalError(f"no cell {name!r} in {self.code.co_qualname}")
        return found
