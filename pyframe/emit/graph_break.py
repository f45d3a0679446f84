"""`BreakEmitter`: the code that follows the graph when a frame breaks. It restores locals and stack, executes the
breaking instruction as in the original, and calls the resume function for the rest of the frame."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _C
from ..bytecode import OPS, CanonicalCode, Instr, Label, call_sequence
from ..bytecode.flow import FlowGraph, live_locals, reachable, stack_depths
from ..bytecode.isa import NULL_BEFORE_CALLABLE
from ..core.source import LocalSource
from ..errors import SkipFrame, Unsupported
from ..vars.protocol.base import Var
from ..vars.protocol.null import is_null
from ..vars.torch_objects.contexts import Entered, enters_mode
from .assemble import Assembler, call_moving_arguments
from .described_resume import described_resume, raise_at
from .finished_trace import End, FinishedTrace, RootFrame
from .handlers import starts_of_handling
from .loop_break import LoopEmitter
from .loops import UNBOUND
from .reconstruct import ValueEmitter
from .replay import Commit
from .resume import (
    FIRST,
    ResumeKey,
    continuation,
    handled_parameter,
    keyword_names,
    stack_parameter,
    super_argument,
)
from .varying_values import VaryingValues

# Their results may contain a NULL, which cannot be passed to a resume function.
_NULL_RESULTS = ("LOAD_SUPER_ATTR", "LOAD_FAST_AND_CLEAR", "SEND")
_PURE = {"LOAD_CONST": 1, "LOAD_FAST": 1, "PUSH_NULL": 1, "NOP": 0, "JUMP": 0}  # how many values they push
_MAKE_TEXT = ("FORMAT_SIMPLE", "FORMAT_WITH_SPEC")  # they break on tensor data: the text differs in each iteration
_JUMP_BY_TRUTH = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
_SEE_LOCALS = ("locals", "vars", "dir", "eval", "exec")
_SEE_FRAMES = frozenset(("_getframe", "currentframe"))  # of `sys` and `inspect`
_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"))


def _no_error(text: str) -> None:
    """Called at run time if the exception that ended the trace did not occur, where breaks are errors."""
    raise Unsupported(f"{text}\nThe exception was raised while tracing, but not when the instruction ran.")


def _still_bound(var: Var | None, name: str) -> bool:
    """Whether a parameter is known to still have the value that it had at the call."""
    return var is not None and isinstance(var.source, LocalSource) and var.source.local == name


def raised_where(flow: FlowGraph, broke: int, at: int, kept: int) -> int | None:
    """The ordinal of the instruction whose handler handles an exception that occurs between the breaking instruction
    `broke` and `at`, where the frame continues.

    That is `broke`, which left `kept` stack slots unchanged, or None for `at` if `broke` has entered the block around
    `at`.
    """
    left, entered = flow.region[broke], flow.region[at]
    if left is None or left is entered or left.depth > kept:
        return None
    if entered is not None and flow.place[left.start] <= at < flow.place[left.end]:
        return None
    return broke


def reads_all_locals(cc: CanonicalCode) -> bool:
    """Whether a frame may access its locals other than by name. That prevents resuming it: after a break another frame
    runs."""
    instrs = cc.real_instrs()
    for at, instr in enumerate(instrs):
        if instr.op in _LOADS and instr.arg in _SEE_FRAMES:
            return True
        if instr.op != "LOAD_GLOBAL" or instr.arg not in _SEE_LOCALS:
            continue
        call = next(each for each in instrs[at + 1 :] if each.op != "PUSH_NULL")
        if instr.arg in ("eval", "exec") or (call.op == "CALL" and call.arg == 0):
            return True
    return False


def cells_of_comprehensions(cc: CanonicalCode) -> set[str]:
    """Names that are cells in a comprehension inlined in the code (from CPython 3.12 on) and locals outside of it."""
    cells = {item.arg for item in cc.real_instrs() if item.op == "MAKE_CELL"}
    return cells & {item.arg for item in cc.real_instrs() if item.op == "STORE_FAST"}


class BreakEmitter:
    """Emits the code after the graph of a frame that breaks. `end`: how its trace ended."""

    def __init__(self, tx: FinishedTrace, root: RootFrame, end: End, cells: set[str]) -> None:
        self.tx, self.root, self.end, self.cells = tx, root, end, cells
        self.known = continuation(root.code)
        self.varying = VaryingValues(self.known)
        self.keeping_alive: list[str] = []
        self.passed: list[str] = []
        self.handled: list[str] = []  # locals with the exceptions being handled at run time, outermost first
        self.first = super_argument(root.cc)
        if cells_of_comprehensions(root.cc):
            raise SkipFrame("a graph break in a frame with a comprehension whose variable a closure captures")
        if reads_all_locals(root.cc):
            raise SkipFrame("a graph break in a frame that reads its locals as a dict")
        self.alive = live_locals(root.cc, end.at)
        self.live = [name for name in root.locals if name not in cells and (name in self.alive or name == self.first)]
        if self.first is not None and self.first not in self.live:
            if self.first not in root.cc.cellvars:
                raise SkipFrame("super() without arguments in a frame that has deleted its first argument")
            self.first = FIRST

    def emit(self, cg: ValueEmitter, commits: Sequence[Commit]) -> None:
        """Emit everything from the values of the live locals on."""
        asm, root, end = cg.asm, self.root, self.end
        values = {name: cg.load_to_local(root.locals[name]) for name in self.live}
        own = [(name, root.cells[name].content) for name in root.cc.cellvars if name in root.cells]
        contents = {name: None if content is None else cg.load_to_local(content) for name, content in own}
        if any(map(enters_mode, end.stack)):
            cg.load_call(Entered)
            cg.entered = asm.store_fast()
            asm.exit_on_error(Entered.leave, cg.entered)
        slots = [None if is_null(var) else cg.load_to_local(var) for var in end.stack]
        self.handled = [cg.load_to_local(var) for var in root.handled_for_real()]
        if cg.dry:
            self.keeping_alive = self._keeping_alive(cg)
            kept = [name for name in asm.params if _still_bound(root.locals.get(name), name)]
            self.passed = [name for name in (*kept, *self.keeping_alive) if name not in (*self.live, *self.cells)]
        kept_alive = {name: cg.load_to_local(root.locals[name]) for name in self.keeping_alive}
        asm.raise_errors_here()
        raised_at = self._last_effect() if commits and end.loop is None else None
        if raised_at is None:
            for commit in commits:
                commit()
        else:
            self._commit(asm, commits, raised_at, values, contents, slots)
        for name, temp in {**values, **kept_alive}.items():
            asm.load_fast(temp)
            asm.store_fast(name)
        stored = {*values, *kept_alive, *self.cells}
        for name in asm.params:  # deleted by the program, or rebound to a value that is not read
            if name not in stored and not _still_bound(root.locals.get(name), name):
                asm.delete_fast(name)
        for name, content in contents.items():
            if content is not None:
                asm.load_fast(content)
                asm.store_deref(name)
        asm.end_exit_on_error()
        call = self._call_moving_arguments() if end.loop is None else None
        for at, slot in enumerate(slots):
            if call is not None and at == call[0]:
                asm.append(*call_sequence([Instr("LOAD_CONST", _C.move_args)], [], 0)[:-1])
            if slot is not None:
                asm.load_fast(slot)
            elif call is None or at < call[0]:
                asm.emit("PUSH_NULL")
        if end.loop is None:
            self._break(asm, () if call is None else call[1])
        elif end.plain:
            LoopEmitter(self, self.varying).emit_copy(asm, end.loop)
        else:
            LoopEmitter(self, self.varying).emit(asm, end.loop)

    def _last_effect(self) -> int | None:
        """The ordinal of the instruction whose handler handles an exception that occurs while side effects are
        replayed: the last one before the break that does more than push values, or the breaking one. None if there is
        no such handler, or if it needs what the frame does not have at the break."""
        depth = len(self.end.stack)
        before = self._before(self.end.at)
        while before is not None and (op := self.root.flow.instrs[before].op) in _PURE:
            depth -= _PURE[op]
            before = self._before(before)
        if before is not None and self._can_raise_at(before, depth):
            return before
        return self.end.at if self._can_raise_at(self.end.at, len(self.end.stack)) else None

    def _before(self, at: int) -> int | None:
        """The ordinal of the instruction that runs before instruction `at`; None if there may be several."""
        flow = self.root.flow
        if at and not OPS[flow.instrs[at - 1].op].terminator:
            return at - 1
        jumps = [i for i, item in enumerate(flow.instrs) if OPS[item.op].jump and flow.place[item.arg] == at]
        return jumps[0] if len(jumps) == 1 and jumps[0] < at else None

    def _can_raise_at(self, at: int, depth: int) -> bool:
        """Whether an exception can be raised at instruction `at`, which has a handler, with the lowest `depth` slots of
        the stack and the locals of the break."""
        region = self.root.flow.region[at]
        if region is None or region.depth > depth:
            return False
        if any(map(enters_mode, self.end.stack[region.depth :])):
            return False
        needed = live_locals(self.root.cc, self.root.flow.place[region.handler])
        return needed <= {*self.live, *self.cells}

    def _commit(
        self, asm: Assembler, commits: Sequence[Commit], raised_at: int, values: Mapping[str, str],
        contents: Mapping[str, str | None], slots: Sequence[str | None],
    ) -> None:
        """Replay the side effects. If that raises, the frame continues in the original code with the exception raised
        at instruction `raised_at`, so that `with` blocks are exited. The other arguments say where the values of live
        locals, the contents of cells and the stack slots are kept."""
        key = ResumeKey(self.root.code, self.end.at, tuple(map(is_null, self.end.stack)), tuple(values), self.first)
        key = dataclasses.replace(key, handled=len(self.handled), raised_at=raised_at)
        cells = (*self.root.cc.cellvars, *self.root.cc.freevars)
        begin, end, failed = map(Label, ("commit", "commit.end", "commit.failed"))

        def handler() -> None:
            error = asm.store_fast()
            for name, content in contents.items():
                if content is not None:
                    asm.load_fast(content)
                    asm.store_deref(name)
            if self.first is not None and self.first in values:
                asm.load_fast(values[self.first])
                asm.store_fast(self.first)
            loads = self.loads(asm, [*filter(None, slots), *self.handled], tuple(values), values)
            closure = [Instr("LOAD_CLOSURE", name) for name in cells]
            arguments = [*closure, Instr("BUILD_TUPLE", len(cells)), *loads, Instr("BUILD_LIST", len(loads))]
            load = [Instr("LOAD_CONST", functools.partial(raise_at, key))]
            asm.call(load, [*arguments, Instr("LOAD_FAST", error)], 3)
            asm.return_value()

        asm.label(begin)
        for commit in commits:
            commit()
        asm.label(end)
        asm.region(begin, end, failed, 0)
        asm.at_the_end(failed, asm.collect(handler))

    def _rebound(self, at: int) -> set[str]:
        """The names in `passed` that the frame rebinds, and thereby releases, if it continues at `at`."""
        written = {
            self.root.flow.instrs[each].arg
            for each in (reachable(self.root.cc, at, self.root.flow) if self.passed else ())
            if self.root.flow.instrs[each].op == "STORE_FAST"
        }
        return written.intersection(self.passed)

    def _keeping_alive(self, cg: ValueEmitter) -> list[str]:
        """Locals that nothing will read, but that keep objects alive which may be observed in other ways."""
        dead = {name: var for name, var in self.root.locals.items() if name not in self.live and name not in self.cells}
        return [
            name
            for name, var in dead.items()
            if (var.source is None and getattr(var, "node", None) is None and cg.counts.get(id(var)))
            or (isinstance(var.source, LocalSource) and var.source.local != name)
        ]

    def _call_moving_arguments(self) -> tuple[int, list[Instr]] | None:
        """For a call: the stack slot where it starts, and the instructions that perform it so that this frame does not
        hold the arguments during the call. A call between two functions does not hold them either."""
        instrs, at, stack = self.root.flow.instrs, self.end.at, self.end.stack
        op, count = instrs[at].op, instrs[at].arg
        if op not in ("CALL", "CALL_KW"):
            return None
        start = len(stack) - OPS[op].pops(count)
        count += not any(map(is_null, stack[start : start + 2]))
        if op == "CALL":
            return start, [Instr("BUILD_LIST", count), Instr("CALL", 2)]
        names = Instr("LOAD_CONST", keyword_names(instrs, at))
        return start, [Instr("POP_TOP"), Instr("BUILD_LIST", count), names, Instr("CALL", 3)]

    def embed(
        self, asm: Assembler, at: int, tail: Label, taken: Label | None = None, instead: Sequence[Instr] = ()
    ) -> None:
        """Execute the original instruction `at`, then go to `tail` or `taken`. If it raises and the program handles the
        exception, the frame continues in a resume function that starts in the handler."""
        cc, flow = self.root.cc, self.root.flow
        region = flow.region[at]
        starts: dict[int, int] = {}
        if region is not None and not any(map(is_null, self.end.stack[: region.depth])):
            starts = starts_of_handling(cc, flow, flow.place[region.handler], len(self.handled))
        labels = {start: Label(f"handling{start}") for start in starts}
        asm.jump(asm.embed_original(at, tail, taken, leaves=labels, instead=instead))
        for start, count in starts.items():
            asm.label(labels[start])
            self.handle(asm, start, self.handled[:count])

    def handle(self, asm: Assembler, start: int, handled: Sequence[str]) -> None:
        """Return the result of the rest of the frame after the PUSH_EXC_INFO at `start`. `handled`: the exceptions that
        were already being handled. Any local may be unbound, because copied original code has run."""
        at = start + 1
        depth = stack_depths(self.root.cc, self.root.flow)[at]
        assert depth is not None
        stack = [asm.store_fast() for _ in range(depth)][::-1]
        before, exc = stack[-2:]
        if any(region.lasti and self.root.flow.place[region.handler] == start for region in self.root.cc.regions):
            asm.load_const(0)  # an instruction offset of this code is meaningless in another
            asm.store_fast(stack[-3])
        alive = live_locals(self.root.cc, at)
        names = [name for name in self.root.cc.varnames if name in alive and name not in self.cells]
        places = {name: self.move_perhaps_unbound(asm, name) for name in names if name != self.first}
        begin, end, failed = Label("handle"), Label("handle.end"), Label("handle.failed")
        asm.label(begin)
        for temp in stack:
            asm.load_fast(temp)
        self.continue_at(asm, at, (), (False,) * depth, names, places, (*handled, exc))
        asm.label(end)
        asm.label(failed)  # whatever failed, this exception must not stay the current one
        asm.load_fast(before)
        asm.emit("POP_EXCEPT")
        asm.emit("RERAISE", 0)
        asm.region(begin, end, failed, 0)

    def move_perhaps_unbound(self, asm: Assembler, name: str) -> str:
        """Move the value of a local, or UNBOUND if it has none, into a new local; the stack must be empty."""
        start, end, unbound, bound = (Label(f"{name}.{part}") for part in ("start", "end", "unbound", "bound"))
        asm.label(start)
        asm.load_fast(name)
        asm.delete_fast(name)
        asm.label(end)
        place = asm.store_fast()
        asm.jump(bound)
        asm.label(unbound)
        asm.emit("PUSH_EXC_INFO")
        asm.pop_top()
        asm.emit("POP_EXCEPT")
        asm.load_const(UNBOUND)
        asm.store_fast(place)
        asm.label(bound)
        asm.region(start, end, unbound, 0)
        return place

    # ---- straight on ----
    def _break(self, asm: Assembler, instead: Sequence[Instr]) -> None:
        """Execute the breaking instruction (by `instead`, if given), then call the resume function."""
        root, end = self.root, self.end
        instr: Instr = root.flow.instrs[end.at]
        if instr.op in _NULL_RESULTS:
            raise SkipFrame(f"break at {instr.op}")
        row, at = OPS[instr.op], end.at
        tail, taken = Label("tail"), Label("taken") if row.jump else None
        self.embed(asm, at, tail, taken, instead)
        kept = end.stack[: len(end.stack) - row.pops(instr.arg)]
        if not row.terminator:
            asm.label(tail)
            strict, brk = self.tx.options.fullgraph or self.tx.error_on_break, end.brk
            if strict and brk is not None and brk.kind == "exception-in-traced-code":
                asm.call([Instr("LOAD_CONST", functools.partial(_no_error, str(brk)))], [], 0)
            if instr.op == "TO_BOOL" and root.flow.instrs[at + 1].op in _JUMP_BY_TRUTH:
                # A branch as CPython 3.13 compiles it. Both ways may lead to where other branches continue.
                at, taken = at + 1, Label("taken")
                instr = root.flow.instrs[at]
                row = OPS[instr.op]
                asm.emit(instr.op, taken)
            pushed = (False,) * row.pushes(instr.arg)
            if instr.op == "LOAD_METHOD":  # embedded as LOAD_ATTR, whose result is called without a self
                asm.push_null_for_call()
                pushed = (NULL_BEFORE_CALLABLE, not NULL_BEFORE_CALLABLE)
            self.continue_at(asm, at + 1, kept, pushed)
        if taken is not None:
            assert row.jump_pushes is not None
            asm.label(taken)
            target = root.flow.place[instr.arg]
            if instr.op == "FOR_ITER":
                self.continue_at(asm, target + 1, kept)
            else:
                self.continue_at(asm, target, kept, (False,) * row.jump_pushes(instr.arg))

    def continue_at(
        self,
        asm: Assembler,
        at: int,
        kept: Sequence[Var],
        pushed: Sequence[bool] = (),
        live: Sequence[str] | None = None,
        maybe: Mapping[str, str] | None = None,
        handled: Sequence[str] | None = None,
    ) -> None:
        """Return the result of the rest of the frame, computed by a resume function.

        On the stack are `kept` and new slots; `pushed` says which of the latter hold NULL. `live`: the locals that may
        be live (default: those at the break). `maybe`: locals that are stored in other places. `handled`: at the start
        of a handler, whose exception is on top of the stack, the locals with the exceptions being handled (default: at
        the break).
        """
        maybe = maybe or {}
        at, kept, pushed = self._skip(asm, at, kept, pushed)
        starts = handled is not None
        handled = self.handled if handled is None else handled
        raised_at = None if starts else raised_where(self.root.flow, self.end.at, at, len(kept))
        alive = live_locals(self.root.cc, at) | self._rebound(at)
        if raised_at is not None:
            region = self.root.flow.region[raised_at]
            assert region is not None
            alive |= live_locals(self.root.cc, self.root.flow.place[region.handler])
        names = tuple(name for name in ((*self.live, *self.passed) if live is None else live) if name in alive)
        nulls = (*(is_null(var) for var in kept), *pushed)
        key = ResumeKey(self.root.code, at, nulls, names, self.first, tuple(n for n in maybe if n in names))
        key = dataclasses.replace(key, handled=len(handled), raised_at=raised_at)
        code = self.resume_code(key)
        for slot, var in enumerate(kept):
            self.varying.mark_like(code, stack_parameter(slot, names), var)
        if starts:
            self.varying.mark_exception_arguments(code, stack_parameter(len(nulls) - 1, names))
        elif self.known is not None and self.known.loops and self.root.flow.instrs[self.end.at].op in _MAKE_TEXT:
            self.varying.mark(code, stack_parameter(len(nulls) - 1, names), (str,))
        temps = [asm.store_fast() for _ in nulls][::-1]
        stack = [temp for temp, null in zip(temps, nulls, strict=True) if not null]
        loads = self.loads(asm, [*stack, *handled], names, maybe)
        loads += [Instr("DELETE_FAST", name) for name in names if name not in maybe]
        call_moving_arguments(asm, _C.move_args, asm.function_instrs(code), loads)
        asm.return_value()

    def _skip(
        self, asm: Assembler, at: int, kept: Sequence[Var], pushed: Sequence[bool]
    ) -> tuple[int, Sequence[Var], Sequence[bool]]:
        """Execute what needs no resume function: jumps, and the removal of a result that nothing reads. Branches that
        join there then continue in the same resume function. Returns the next instruction and the stack there."""
        flow = self.root.flow
        while True:
            op = flow.instrs[at].op
            if op == "POP_TOP" and pushed and not pushed[-1]:
                asm.pop_top()
                at, pushed = at + 1, pushed[:-1]
            elif op == "NOP":
                at += 1
            elif op == "JUMP" and flow.place[flow.instrs[at].arg] > at:
                at = flow.place[flow.instrs[at].arg]
            else:
                return at, kept, pushed

    def resume_code(self, key: ResumeKey) -> Any:
        """The resume function's code for `key`; values that are unknown in this trace are unknown there too."""
        loops = self.known is not None and self.known.loops
        code, described = described_resume(key, loops, () if self.end.brk is None else self.end.brk.stack)
        described.handled = key.handled
        for number in range(key.handled):
            self.varying.mark_exception_arguments(code, handled_parameter(number, key.live))
        for name in key.live:
            var = self.root.locals.get(name)
            self.varying.mark_like(code, name, var)
        return code

    def loads(
        self, asm: Assembler, stack: Sequence[str], names: Sequence[str], places: Mapping[str, str]
    ) -> list[Instr]:
        """Instructions that push the arguments of a resume function."""
        loads = []
        if self.first is not None:
            in_cell = self.first not in self.root.cc.varnames
            loads.append(Instr("LOAD_DEREF", self.root.cc.varnames[0]) if in_cell else Instr("LOAD_FAST", self.first))
        loads += [Instr("LOAD_FAST", temp) for temp in stack]
        loads += [Instr("LOAD_FAST", places.get(name, name)) for name in names if name != self.first]
        return loads
