"""Graph breaks that an earlier attempt found to be needed, and where a break can happen.

A break is possible between instructions of the root frame: before it, the graph so far is finished, and after it, the
frame continues in a resume function. If the need for a break is found within an instruction, the trace restarts with a
break planned before that instruction. If that instruction is a call that is traced inline, the break is planned within
the call, where all frames down to the inlined one can be suspended (see `inner_breaks`). A loop that contains a break
is left as a whole: the break is planned where the loop starts.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..core.break_reason import BreakReason
from ..core.breaks import describe
from ..core.guard import UserLine
from ..emit.loops import loops_of, starts_at_iterator
from ..emit.varying_values import VaryingValues
from ..errors import GraphBreak, Restart, SkipFrame, Unsupported
from ..vars.stdlib.debuggers import mentions_watchers
from . import limits
from .frame import Frame
from .inner_breaks import InnerPlace, is_at, place_within, suspended_stack
from .limits import Arrival, LongParts

if TYPE_CHECKING:
    from .trace import Trace

RAISES = "exception-in-traced-code"  # raised at run time even where breaks are errors: it propagates to the caller


class PlannedBreak(NamedTuple):
    """A graph break that an earlier attempt found to be needed at a step. `loop`: the head of the loop that contains
    the break and starts at that step. `inner`: where within an inlined call the break happens; by default it happens
    before the step."""

    kind: str
    detail: str
    stack: tuple[UserLine, ...]
    loop: int | None = None
    inner: InnerPlace | None = None


Planned = MutableMapping[int, PlannedBreak]


class BreakPlanner:
    """Plans the breaks of a trace.

    `planned`: the breaks known to be needed, by step of the root frame; they outlive the trace. `entered`: the loops
    that the trace reached, by head. `inlined_in_step`: whether the current step has entered another frame.
    `inner_stop`: the number of the instruction of an inlined frame at which this step breaks, 0 if at none.
    """

    def __init__(self, trace: Trace, planned: Planned, long: LongParts) -> None:
        self._trace = trace
        self.planned = planned
        self.loops = loops_of(trace.func.__code__)
        self.long_loops: Collection[int] = long.loops.get(trace.func.__code__, ())
        self.entered: dict[int, Arrival] = {}
        self.inlined_in_step = False
        self.inner_stop = 0
        self._done_before_step = (0, 0)

    def plan(self, step: int, brk: PlannedBreak) -> Restart:
        """Plan a break; returns what to raise, so that the next attempt makes it."""
        self.planned[step] = brk
        return Restart()

    def begin_step(self, root: Frame) -> None:
        """The trace is about to run an instruction of the root frame."""
        self.inlined_in_step = False
        self.inner_stop = self._trace.inner_steps = 0
        self._done_before_step = self._done()
        if root.pc in self.loops and root.pc not in self.entered:
            self._enter_loop(root)

    def break_if_planned(self, root: Frame) -> None:
        """Raise GraphBreak if a break is planned before the current instruction, or a loop that must run eagerly
        starts there."""
        if self.long_loops and root.pc + (root.flow.instrs[root.pc].op == "GET_ITER") in self.long_loops:
            root.at = root.pc
            raise self.exception_for(GraphBreak(limits.KIND, limits.LOOP, self._trace.user_stack()))
        brk = self.planned.get(self._trace.steps)
        if brk is not None and brk.inner is not None:
            self.inner_stop = brk.inner.number
        elif brk is not None:
            trace = self._trace
            if trace.real_step() != trace.steps:  # in a handler, which the frame must enter at run time
                del self.planned[trace.steps]
                raise self.plan(trace.real_step(), PlannedBreak(brk.kind, brk.detail, brk.stack))
            root.at = root.pc
            lines = brk.stack or self._trace.user_stack()
            raise GraphBreak(brk.kind, brk.detail, lines, ahead=brk.loop is not None)

    def break_within(self) -> NoReturn:
        """Raise GraphBreak within inlined calls, where it is planned. Its context has the stack of the root frame that
        continues the inlined frames."""
        trace = self._trace
        brk = self.planned[trace.steps]
        assert brk.inner is not None
        if not is_at(trace.frames, brk.inner):
            raise self.without_inner(trace.steps)
        raise self._suspending(brk)

    def _suspending(self, brk: PlannedBreak) -> GraphBreak:
        """The break of a trace that is at `brk.inner`."""
        trace, known = self._trace, self._trace.known
        reason = BreakReason(brk.kind, brk.detail, brk.stack)
        varying, loops = VaryingValues(known), known is not None and known.loops
        stack = suspended_stack(trace.frames, reason, varying, loops)
        return GraphBreak(brk.kind, brk.detail, brk.stack, root_stack=stack)

    def _break_now(self, brk: PlannedBreak) -> GraphBreak | None:
        """The break of a trace in which the last frame is at `brk.inner`, if its instruction has not had any effect:
        then nothing has to be traced again."""
        trace, place = self._trace, brk.inner
        last = trace.frames[-1]
        if place is None or place.depth != len(trace.frames) or not (place.number == last.number == trace.inner_steps):
            return None
        if last.before is None or last.before.traced != self.traced():
            return None
        last.stack[:] = last.before.stack
        trace.reliances.forget_since(last.before.relied)
        return self._suspending(brk)

    def traced(self) -> tuple[int, ...]:
        """How much the trace has added so far to the graph, to the guards and to the log of effects."""
        trace = self._trace
        return (*self._done(), trace.graph.size(), len(trace.guards))

    def without_inner(self, step: int) -> Restart:
        """Plan the break of a step before the step, not within a call."""
        return self.plan(step, self.planned[step]._replace(inner=None))

    def exception_for(self, brk: GraphBreak) -> BaseException:
        """What to raise for a break: the break itself if it can happen at the current instruction of the root frame,
        otherwise a Restart after planning a break before that instruction."""
        trace = self._trace
        if trace.breaks_are_errors and brk.kind != RAISES:
            return Unsupported(describe(brk.kind, brk.detail, brk.stack))
        if any(mentions_watchers(frame.code) for frame in trace.frames):
            return SkipFrame(f"a graph break where a debugger, profiler or trace function may be started ({brk})")
        history = trace.graph.history
        if trace.graph.numbers.made_in_loop and history.makes_in_loops and any(map(_in_loop, trace.frames)):
            history.makes_in_loops = False
            return Restart()
        planned = PlannedBreak(brk.kind, brk.detail, brk.stack)
        if trace.real_step() != trace.steps:
            return self.plan(trace.real_step(), planned)
        earlier = self.planned.get(trace.steps)
        if earlier is not None and earlier.inner is not None:  # another break comes first
            return self.without_inner(trace.steps)
        if earlier is not None or not self._began_step():
            return brk
        planned = planned._replace(inner=place_within(trace.frames, brk.kind))
        restart = self.plan(trace.steps, planned)
        return self._break_now(planned) or restart

    def _began_step(self) -> bool:
        """Whether the current instruction of the root frame has already had an effect on the trace."""
        return len(self._trace.frames) > 1 or self.inlined_in_step or self._done() != self._done_before_step

    def _done(self) -> tuple[int, int]:
        return self._trace.effects.changes, self._trace.effects.moves

    # ---- loops ----
    def _enter_loop(self, root: Frame) -> None:
        """Record the step at which a loop starts: that of its GET_ITER, if it is right before the head."""
        head, trace = root.pc, self._trace
        fresh = starts_at_iterator(root.flow, root.at, head)
        self.entered[head] = Arrival(trace.steps - fresh, trace.budget.spent, trace.graph.size())

    def loops_around(self, at: int) -> dict[int, Arrival]:
        """The loops that the trace reached and that contain an instruction, by head."""
        return {head: arrival for head, arrival in self.entered.items() if at in self.loops[head]}

    def loop_of(self, root: Frame, brk: GraphBreak) -> int | None:
        """The head of the loop that contains a break, if the trace is at the start of that loop; None if no loop
        contains it. If the trace is already inside the loop, restart to break at the loop's start."""
        steps = self._trace.steps
        planned = self.planned.get(steps)
        if planned is not None and planned.loop is not None:
            return planned.loop
        at = root.at
        around = [(arrival.step, head) for head, arrival in self.loops_around(at).items()]
        if around:
            step, head = min(around)
            if step == steps:
                brk.context["ahead"] = root.flow.instrs[at].op not in ("GET_ITER", "FOR_ITER")
                return head
            raise self.plan(step, PlannedBreak(brk.kind, brk.detail, brk.stack, head))
        if any(at in members for members in self.loops.values()):
            raise SkipFrame(f"a graph break inside a loop that was entered in its middle ({brk})")
        instrs = root.flow.instrs
        if instrs[at].op == "GET_ITER" and instrs[at + 1].op == "FOR_ITER" and at + 1 in self.loops:
            return at + 1
        return None


def _in_loop(frame: Frame) -> bool:
    return any(frame.at in members for members in loops_of(frame.code).values())
