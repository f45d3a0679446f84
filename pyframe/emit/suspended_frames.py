"""Frames of inlined calls that a graph break suspends.

If the graph breaks inside inlined calls, the replaced frame makes the call that it was in, with a `_C.SuspendedFrame`
in the place of the function. That object calls a resume function of the inlined frame: the innermost frame continues
at the instruction of the break, each other one at its call, which calls the next `SuspendedFrame` in the same way. So
the frames, their exception handlers and `with` blocks are nested as in the original program, the resume functions are
captured like any other, and what the inlined frames computed before the break is part of the caller's graph.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Protocol

from .. import _C
from ..bytecode import Instr
from ..bytecode.flow import live_locals
from ..bytecode.isa import NULL_BEFORE_CALLABLE
from ..core.break_reason import BreakReason
from ..vars.codegen import Codegen
from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import SequenceVar, TupleVar
from ..vars.objects.functions import CellVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.protocol.null import NULL, is_null
from ..vars.torch_objects.contexts import LateEntry, enters_mode
from .described_resume import described_resume
from .finished_trace import RootFrame
from .resume import ResumeKey, stack_parameter, super_argument
from .varying_values import VaryingValues


class InlinedFrame(RootFrame, Protocol):
    """A frame of an inlined call, at the instruction where it is suspended."""

    at: int
    globals: dict[str, Any]
    free: list[CellVar]


class SuspendedFrameVar(Var):
    """The `_C.SuspendedFrame` of an inlined frame. `stack`: its stack before the instruction at which it continues.
    Modes of the thread that the frame has entered are entered again when it is called."""

    __slots__ = ("_loops", "frame", "reason", "stack", "varying")

    def __init__(
        self, frame: InlinedFrame, stack: Sequence[Var], reason: BreakReason, varying: VaryingValues, loops: bool
    ) -> None:
        super().__init__()
        self.frame, self.stack, self.reason, self.varying, self._loops = frame, list(stack), reason, varying, loops

    def python_type(self) -> type:
        return _C.SuspendedFrame

    def reconstruct(self, cg: Codegen) -> None:
        frame = self.frame
        first = super_argument(frame.cc)
        live = self._passed(first)
        code = self._resume_code(first, live)
        loaded = [] if first is None else [frame.locals[first]]
        loaded += [var for var in self.stack if not is_null(var)]
        loaded += [frame.locals[name] for name in live if name != first]
        modes = {at: var.mode() for at, var in enumerate(loaded) if enters_mode(var)}
        loaded = [modes.get(at, var) for at, var in enumerate(loaded)]
        cells: list[Var] = [*(frame.cells[name] for name in frame.cc.cellvars), *frame.free]
        cg.load_const(_C.SuspendedFrame)
        cg.call_top(
            lambda: self._load_function(cg, code, cells),
            lambda: cg.sequence("BUILD_LIST", loaded),
            lambda: cg.load_const(self.reason),
            *([lambda: cg.load_call(LateEntry, *modes)] if modes else []),
        )

    def _load_function(self, cg: Codegen, code: types.CodeType, cells: list[Var]) -> None:
        cg.load_const(types.FunctionType)
        cg.call_top(
            lambda: cg.load_const(code),
            lambda: cg.load_globals(self.frame.globals),
            lambda: cg.load_const(code.co_name),
            lambda: cg.load_const(None),
            lambda: cg.sequence("BUILD_TUPLE", cells) if cells else cg.load_const(None),
        )

    def _passed(self, first: str | None) -> tuple[str, ...]:
        """The locals that the resume function gets: those that it may read, and those that keep an object alive whose
        end may be observed."""
        frame = self.frame
        alive = live_locals(frame.cc, frame.at)
        return tuple(
            name
            for name, var in frame.locals.items()
            if name not in frame.cc.cellvars and (name in alive or name == first or _may_be_observed(var))
        )

    def _resume_code(self, first: str | None, live: tuple[str, ...]) -> types.CodeType:
        frame = self.frame
        nulls = tuple(map(is_null, self.stack))
        key = ResumeKey(frame.code, frame.at, nulls, live, first)
        code, _ = described_resume(key, self._loops, self.reason.stack)
        for slot, var in enumerate(self.stack):
            if not is_null(var):
                self.varying.mark_like(code, stack_parameter(slot, live), var)
        for name in live:
            self.varying.mark_like(code, name, frame.locals[name])
        return code


def _may_be_observed(var: Var) -> bool:
    """Whether the program may observe when the value ceases to exist: not if it is a constant, the result of an
    operator in the graph, or a container that the trace created of such values."""
    todo, seen = [var], set()
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, ConstVar):
            continue
        seen.add(id(each))
        if each.source is None and isinstance(each, SequenceVar | DictVar):
            todo += each.items if isinstance(each, SequenceVar) else each.items.values()
        elif each.source is not None or getattr(each, "node", None) is None:
            return True
    return False


def call_stack(below: Sequence[Var], call: Instr, names: tuple[str, ...], callee: Var) -> list[Var]:
    """The stack before the instruction `call` if it calls `callee`, which ignores its arguments. `below`: the slots
    below those of the call; `names`: of its keyword arguments."""
    pair = [NULL, callee] if NULL_BEFORE_CALLABLE else [callee, NULL]
    none = ConstVar(None)
    if call.op == "CALL_FUNCTION_EX":
        mapping = [DictVar({})] if call.arg & 1 else []
        return [*below, *pair, TupleVar([]), *mapping]
    given = [none] * call.arg
    return [*below, *pair, *given, *([ConstVar(names)] if call.op == "CALL_KW" else [])]
