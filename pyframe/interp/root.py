"""Runs the root frame of a trace, step by step, to its end or to the first graph break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.breaks import describe
from ..core.source import ClosureSource, GlobalsSource, LocalSource
from ..emit.assemble import frame_arguments
from ..emit.finished_trace import End
from ..emit.output import TraceResult
from ..errors import GraphBreak, SkipFrame, Unsupported
from ..vars.containers.iterator import NotRebuilt
from ..vars.objects.exceptions import ExceptionVar
from ..vars.objects.functions import CellVar
from ..vars.protocol.base import Raised
from ..vars.torch_objects.distributed_tensors import check_masks
from .aliases import guard_aliases
from .frame import Frame, Outcome, UntouchedVar
from .generators import makes_generator
from .planned_breaks import RAISES, PlannedBreak

if TYPE_CHECKING:
    from .trace import Trace


def run_root(trace: Trace) -> TraceResult:
    """Trace to the end or the first break. Raises Restart, SkipFrame, Unsupported or BackendCompilerFailed."""
    root = _root(trace)
    trace.frames.append(root)
    end = _run_steps(trace, root)
    guard_aliases(trace)
    try:
        check_masks(trace)
        trace.generators.check_suspended()
        _check_raised(trace)
        result = trace.output(trace, root, end).build()
        trace.generators.check_awaited()
        return result
    except (NotRebuilt, SkipFrame) as lost:
        planned = trace.breaks.planned.get(trace.steps)
        if end.brk is not None and planned is not None and planned.inner is not None:
            raise trace.breaks.without_inner(trace.steps) from lost
        if isinstance(lost, SkipFrame):
            raise
        if trace.options.fullgraph:
            brk = GraphBreak(lost.kind, str(lost), trace.user_stack())
            raise Unsupported(describe(brk.kind, brk.detail, brk.stack)) from lost
        if lost.step in trace.breaks.planned:
            raise SkipFrame(str(lost)) from lost
        brk = end.brk or GraphBreak(lost.kind, str(lost))  # reported at the step that creates the value
        raise trace.breaks.plan(lost.step, PlannedBreak(brk.kind, brk.detail, brk.stack)) from lost


def _check_raised(trace: Trace) -> None:
    """An exception that existed before the frame and was raised here must get its traceback."""
    for exc in trace.raised:
        if isinstance(exc, ExceptionVar) and exc.source is not None:
            exc.needs_traceback()


def _root(trace: Trace) -> Frame:
    func = trace.func
    if makes_generator(func.__code__):
        raise SkipFrame("a generator or coroutine")
    root = Frame(trace, func.__code__, func.__globals__, GlobalsSource(), is_root=True)
    trace.frames.append(root)
    names = frame_arguments(root.cc)
    for index, (name, value) in enumerate(zip(names, trace.entry_locals, strict=False)):
        source = LocalSource(name, index)
        reads_first = index == 0 and "super" in func.__code__.co_names
        root.locals[name] = trace.wrap(value, source) if reads_first else UntouchedVar(value, source)
    for number in range(trace.known.handled if trace.known is not None else 0):
        name = next(each for each in names if each.lstrip("_") == f"handled_{number}")
        root.handling.append((root.locals[name], 0))
    for index, name in enumerate(root.cc.freevars):
        cell = (func.__closure__ or ())[index]
        content = ClosureSource(name, index)
        var = CellVar(None, content, name, trace.reader(cell, content))
        trace.cells[id(cell)] = var
        root.free.append(var)
    trace.frames.pop()
    return root


def _run_steps(trace: Trace, root: Frame) -> End:
    while True:
        stack, relied = list(root.stack), trace.reliances.mark()
        trace.steps += 1
        trace.breaks.begin_step(root)
        try:
            trace.breaks.break_if_planned(root)
            outcome: Outcome | None = _root_step(trace, root)
        except GraphBreak as brk:
            brk.__context__ = brk.__cause__ = None  # a context would keep this frame alive
            brk.__traceback__ = None
            loop = trace.breaks.loop_of(root, brk)
            if "root_stack" not in brk.context:  # no frame is suspended within the instruction
                trace.reliances.forget_since(relied)
            stack = brk.context.pop("root_stack", stack)
            return End(None, brk, root.at, stack, loop, loop in trace.breaks.long_loops)
        if outcome is not None:
            return End(outcome.value, None, root.at)


def _root_step(trace: Trace, root: Frame) -> Outcome | None:
    try:
        return root.step()
    except Raised as raised:
        what = raised.exc.describe()
        if root.instr.op == "RERAISE" and trace.raise_step:
            # The exception must be raised at run time, with its traceback: break at the step that raised it.
            raise trace.breaks.plan(trace.raise_step, PlannedBreak(RAISES, what, ())) from raised
        # a local variable for it would form a cycle with its traceback
        raise trace.breaks.exception_for(GraphBreak(RAISES, what, trace.user_stack())) from raised
