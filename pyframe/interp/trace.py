"""`Trace`: the run of one root frame over Vars, and what it leaves behind."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from ..core.breaks import CATALOGUE
from ..core.effects import EffectLog
from ..core.guard import Guard, GuardSet, UserLine
from ..core.source import (
    CellSource,
    ClosureSource,
    ConstSource,
    DictItemSource,
    FuncPartSource,
    LocalSource,
    Source,
)
from ..emit.assemble import frame_arguments
from ..emit.output import End, OutputBuilder, TraceResult
from ..errors import GraphBreak, Restart, SkipFrame, Unsupported
from ..vars import builtins as _builtins
from ..vars import wrap as wrapping
from ..vars.base import Var
from ..vars.const import ConstVar, make
from ..vars.exception import ExceptionVar, Raised
from ..vars.function import CellVar, FunctionVar
from ..vars.iterator import GeneratorVar
from . import ops_build, ops_call, ops_exc, ops_jump, ops_match, ops_stack
from .bind import bind
from .frame import Frame, Outcome

HANDLER_FILES = (ops_build, ops_call, ops_exc, ops_jump, ops_match, ops_stack, _builtins)
MAX_DEPTH = 60
CO_GENERATOR, CO_ASYNC = 0x20, 0x80 | 0x200
# Shared values of these types carry no identity worth remembering.
_PLAIN = (int, float, complex, str, bytes, type(None), type, types.FunctionType, types.ModuleType)


class GlobalsVar(Var):
    """A globals dict that the program writes to."""

    __slots__ = ("value", "written")

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__()
        self.value = value
        self.written: dict[str, Var] = {}


class Trace:
    """Traces `func` called with the fast locals `locals_`.

    `speculation` maps root steps at which a break is known to be needed to (kind, detail, stack); the trace adds
    to it before it raises Restart.
    """

    def __init__(
        self,
        func: types.FunctionType,
        locals_: tuple[Any, ...],
        options: Any,
        graph_builder: Any,
        speculation: MutableMapping[int, tuple[str, str, tuple[UserLine, ...]]],
        resume_maker: Any = None,
    ) -> None:
        self.func = func
        self.entry_locals = locals_
        self.options = options
        self.graph = graph_builder
        self.speculation = speculation
        self.guards = GuardSet()
        self.effects = EffectLog()
        self.memo: dict[int, Var] = {}
        self.keep_alive: list[Any] = []
        self.frames: list[Frame] = []
        self.cells: dict[int, CellVar] = {}
        self.globals_written: dict[tuple[int, str], Var] = {}
        self.globals_vars: dict[int, GlobalsVar] = {}
        self.steps = 0
        self.raise_step = 0
        self.inlined_in_step = False
        self.compile_graph: Callable[[Any], Any] = lambda gm: gm

    # ---- the Tracer protocol ----
    def user_line(self) -> UserLine:
        return self.frames[-1].user_line()

    def user_stack(self) -> tuple[UserLine, ...]:
        return tuple(frame.user_line() for frame in self.frames)

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        if source is None and kind not in ("GLOBAL_STATE", "DISTINCT"):
            return
        if isinstance(source, ConstSource) and kind in ("ID", "TYPE", "EQUALS", "NOT_ID"):
            return
        self.guards.add(Guard(source, kind, payload, self.user_line() if self.frames else None))

    def wrap(self, value: Any, source: Source | None) -> Var:
        if isinstance(value, Var):
            return value
        known = None if isinstance(value, _PLAIN) else self.memo.get(id(value))
        if known is None:
            var = wrapping.wrap(self, value, source)
            if not isinstance(value, _PLAIN):
                self.memo[id(value)] = var
                self.keep_alive.append(value)
            return var
        if source is not None and known.source is not None and source != known.source:
            if not (isinstance(source, ConstSource) and isinstance(known.source, ConstSource)):
                self.guard(source, "SAME", known.source)
        return known

    def call(self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return fn.call(self, list(args), dict(kwargs))

    def getattr(self, obj: Var, name: str) -> Var:
        return obj.getattr_(self, name)

    def inline(self, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if isinstance(fn, types.FunctionType):
            fn = FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
        if len(self.frames) > MAX_DEPTH:
            self.graph_break("inline-depth", fn.describe())
        if fn.code.co_flags & CO_ASYNC:
            self.graph_break("generator-frame", fn.describe())
        if fn.source is not None and not isinstance(fn.source, ConstSource):
            self.guard(FuncPartSource(fn.source, "__code__"), "ID", fn.code)
        globals_source = fn.globals_source
        if fn.fn is not None:
            globals_source = (
                FuncPartSource(fn.source, "__globals__")
                if fn.source is not None
                else ConstSource.of(fn.globals, "globals()")
            )
        frame = Frame(self, fn.code, fn.globals, globals_source)
        frame.locals = bind(self, fn, args, kwargs)
        frame.free = fn.cells(self)
        if fn.code.co_flags & CO_GENERATOR:
            return self._generator(frame)
        return frame.run().value

    def graph_break(self, kind: str, detail: str) -> NoReturn:
        raise self._break(GraphBreak(kind, detail, self.user_stack()))

    def raise_(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        raise Raised(ExceptionVar(exc_type, [make(arg) for arg in args]))

    # ---- services to Vars and handlers ----
    def item_source(self, source: Source, key: Any) -> Source:
        return DictItemSource(source, key)

    def const_source(self, value: Any, label: str) -> Source:
        return ConstSource.of(value, label)

    def cell(self, cell: types.CellType, source: Source | None) -> CellVar:
        """The CellVar of an existing cell, one for each cell object."""
        found = self.cells.get(id(cell))
        if found is None:
            try:
                content = self.wrap(cell.cell_contents, CellSource(source) if source else None)
            except ValueError:
                content = None
            found = self.cells[id(cell)] = CellVar(content, source or ConstSource.of(cell, "cell"))
            self.keep_alive.append(cell)
        return found

    def store_global(self, frame: Frame, name: str, value: Var) -> None:
        target = self.globals_vars.setdefault(id(frame.globals), GlobalsVar(frame.globals))
        target.written[name] = value
        self.globals_written[id(frame.globals), name] = value
        self.effects.add("GLOBAL", target, name, self.user_line())

    def until_stop(self, method: Var | None) -> Var | None:
        """Call `__next__`; None for StopIteration."""
        if method is None:
            self.raise_(TypeError, "object is not an iterator")
        try:
            return self.call(method, [], {})
        except Raised as raised:
            if issubclass(raised.exc.python_type(), StopIteration):
                return None
            raise

    def enter_frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.inlined_in_step = True

    def leave_frame(self, frame: Frame) -> None:
        self.frames.pop()

    def _generator(self, frame: Frame) -> Var:
        def resume(tx: Any, sent: Var) -> Var | None:
            if frame.pc:
                frame.push(sent)
            outcome = frame.run()
            if not outcome.yielded:
                var.returned = outcome.value
                return None
            return outcome.value

        var = GeneratorVar(resume)
        return var

    # ---- breaks ----
    def _break(self, brk: GraphBreak) -> BaseException:
        """What to raise for a break: itself in the root frame, or a Restart that breaks before the root call."""
        if getattr(self.options, "fullgraph", False):
            return Unsupported(_message(brk))
        root = self.frames[0]
        note = (brk.kind, brk.detail, brk.stack)
        if root.handling:
            self.speculation[root.handling[0][1]] = note
            return Restart()
        if self.steps in self.speculation or not (len(self.frames) > 1 or self.inlined_in_step):
            return brk
        self.speculation[self.steps] = note
        return Restart()

    # ---- the root frame ----
    def run(self) -> TraceResult:
        """Trace to the end or to the first break.  Raises Restart, SkipFrame, Unsupported, BackendCompilerFailed."""
        root = self._root()
        self.frames.append(root)
        end = self._run_root(root)
        return OutputBuilder(self, root, end).build()

    def _root(self) -> Frame:
        func = self.func
        if func.__code__.co_flags & (CO_GENERATOR | CO_ASYNC):
            raise SkipFrame("a generator or coroutine")
        root = Frame(self, func.__code__, func.__globals__, None, is_root=True)
        self.frames.append(root)
        names = frame_arguments(root.cc)
        for index, (name, value) in enumerate(zip(names, self.entry_locals, strict=False)):
            root.locals[name] = self.wrap(value, LocalSource(name, index))
        for index, name in enumerate(root.cc.freevars):
            cell = (func.__closure__ or ())[index]
            try:
                content = self.wrap(cell.cell_contents, ClosureSource(name, index))
            except ValueError:
                content = None
            var = CellVar(content, ClosureSource(name, index), name)
            self.cells[id(cell)] = var
            root.free.append(var)
        self.frames.pop()
        return root

    def _run_root(self, root: Frame) -> End:
        while True:
            stack = list(root.stack)
            self.steps += 1
            self.inlined_in_step = False
            try:
                if self.steps in self.speculation:
                    root.at = root.pc
                    kind, detail, lines = self.speculation[self.steps]
                    raise GraphBreak(kind, detail, lines)
                outcome: Outcome | None = self._root_step(root)
            except GraphBreak as brk:
                if _in_loop(root):
                    raise SkipFrame(f"a graph break inside a loop ({brk})") from brk
                return End(None, brk, root.at, stack)
            if outcome is not None:
                return End(outcome.value, None, root.at)

    def _root_step(self, root: Frame) -> Outcome | None:
        before = len(root.handling)
        try:
            outcome = root.step()
        except Raised as raised:
            stack = self.user_stack()
            raise self._break(GraphBreak("exception-in-traced-code", raised.exc.describe(), stack)) from raised
        if root.pc != root.at + 1 and root.flow.instrs[root.pc].op == "PUSH_EXC_INFO" and before == 0:
            self.raise_step = self.steps
        return outcome


def _in_loop(root: Frame) -> bool:
    """Whether a backward jump spans the current instruction."""
    place, at = root.flow.place, root.at
    return any(
        index >= at >= place[instr.arg]
        for index, instr in enumerate(root.flow.instrs)
        if instr.op.startswith(("JUMP", "POP_JUMP")) and place.get(instr.arg, index + 1) <= index
    )


def _message(brk: GraphBreak) -> str:
    kind = CATALOGUE[brk.kind]
    lines = "".join(f"\n  at {line}" for line in reversed(brk.stack))
    hints = "".join(f"\n  - {hint}" for hint in kind.hints)
    return f"{brk.kind}: {brk.detail}\n{kind.explanation}{lines}\nHints:{hints}"


__all__ = ["ConstVar", "Trace", "TraceResult"]
