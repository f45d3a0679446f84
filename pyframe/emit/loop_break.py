"""`LoopEmitter`: emits the part of a frame's replacement code that runs a loop after a graph break inside it.

The emitted code either calls a body function in each iteration (`loops` cuts it out of the original code), or contains
a copy of the loop that runs eagerly (`eager_loops` chooses the instructions to copy). Where control leaves the loop, it
calls a resume function, as after other breaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _C
from ..bytecode import OPS, Instr, Label
from ..bytecode.flow import live_locals, stack_depths
from ..vars.protocol.null import is_null
from ..vars.torch_objects.loop_varying import CONTAINERS
from .assemble import Assembler, call_moving_arguments
from .eager_loops import plan_plain_loop
from .loops import UNBINDS, UNBOUND, LoopBodySpec, loops_of, plan_cut
from .resume import ResumeKey, continuation, stack_parameter
from .varying_values import VaryingValues

if TYPE_CHECKING:
    from .graph_break import BreakEmitter

_GROW = ("LIST_APPEND", "SET_ADD", "MAP_ADD")
_GROWING_CALLS = {("LOAD_METHOD", name) for name in ("append", "extend", "add")}
_NUMBERS = (int, float)
_ITEMS = (int, float, str, tuple)


class LoopEmitter:
    """Emits a loop of the frame that breaks. `breaks` emits what is common to all breaks."""

    def __init__(self, breaks: BreakEmitter, varying: VaryingValues) -> None:
        self._breaks, self._varying = breaks, varying
        self._root, self._end = breaks.root, breaks.end

    def emit_copy(self, asm: Assembler, head: int) -> None:
        """Run a copy of the loop at `head` in this frame; on the stack are the slots at the break."""
        root, end = self._root, self._end
        cc, flow = root.cc, root.flow
        inside = loops_of(root.code)[head]
        plan = plan_plain_loop(cc, flow, end.at, inside, len(self._breaks.handled), not any(map(is_null, end.stack)))
        exits = {at: Label(f"after{at}") for at in plan.exits}
        handlers = {at: Label(f"handling{at}") for at in plan.handlers}
        asm.jump(asm.embed_part(cc, plan.kept, handlers, exits)[end.at])
        for at, count in plan.handlers.items():
            asm.label(handlers[at])
            self._breaks.handle(asm, at, self._breaks.handled[:count])
        depths = stack_depths(cc, flow)
        below = end.stack[: len(end.stack) - (flow.instrs[end.at].op in ("GET_ITER", "FOR_ITER"))]
        unbound = {flow.instrs[at].arg for at in plan.kept if flow.instrs[at].op in UNBINDS}
        bound = {name for name in self._breaks.live if name not in unbound}
        for at, label in exits.items():
            asm.label(label)
            depth = depths[at]
            assert depth is not None
            kept = below[:depth]
            temps = [asm.store_fast() for _ in range(depth)][::-1]  # handlers of unbound locals clear the stack
            alive = live_locals(cc, at)
            names = [name for name in cc.varnames if name in alive and name not in self._breaks.cells]
            unsure = [name for name in names if name not in (*bound, self._breaks.first)]
            places = {name: self._breaks.move_perhaps_unbound(asm, name) for name in unsure}
            for slot, temp in enumerate(temps):
                if slot < len(kept) and is_null(kept[slot]):
                    asm.emit("PUSH_NULL")
                else:
                    asm.load_fast(temp)
            self._breaks.continue_at(asm, at, kept, (False,) * (depth - len(kept)), names, places)

    def emit(self, asm: Assembler, head: int) -> None:
        """Run the loop at `head` in this frame, with its body as a function; on the stack: the slots at the break."""
        root, end = self._root, self._end
        if end.at != head:  # GET_ITER
            with_iterator = Label("iterator")
            self._breaks.embed(asm, end.at, with_iterator)
            asm.label(with_iterator)
        nulls = tuple(is_null(var) for var in end.stack)
        cut = plan_cut(root.code, head, self._breaks.live, nulls)
        alive = live_locals(root.cc, head)
        live = [*cut.carried, *(name for name in self._breaks.live if name in alive and name not in cut.carried)]
        stack = [asm.store_fast() for _ in nulls][::-1]
        _restore(asm, stack, nulls)
        maybe = {name: asm.fresh_temp() for name in cut.maybe}
        for name, place in maybe.items():
            asm.load_fast(name) if name in self._breaks.live else asm.load_const(UNBOUND)
            asm.store_fast(place)
        self._iterate(asm, cut, stack, live, maybe)

    def _iterate(
        self, asm: Assembler, cut: LoopBodySpec, stack: list[str], live: Sequence[str], maybe: Mapping[str, str]
    ) -> None:
        head, item, taken, done = Label("again"), Label("item"), Label("exhausted"), Label("done")
        items = self._root.flow.instrs[cut.head].op == "FOR_ITER"
        code, names = self._body(cut, live, items)
        asm.append(*asm.function_instrs(code))
        body = asm.store_fast()
        slots = [name for name, null in zip(stack, cut.nulls, strict=True) if not null]
        element: list[str] = []
        asm.label(head)
        if items:
            self._breaks.embed(asm, cut.head, item, taken)
            asm.label(item)
            element = [asm.store_fast()]
        for name, null in reversed([*zip(stack, cut.nulls, strict=True)]):
            asm.discard_null() if null else asm.store_fast(name)
        loads = self._breaks.loads(asm, [*slots, *element, *self._breaks.handled], names, maybe)
        loads += [Instr("DELETE_FAST", name) for name in names if name in cut.carried and name not in maybe]
        loads += [Instr("DELETE_FAST", name) for name in slots]  # so that a `break` frees the iterator
        _forget(asm, maybe)
        call_moving_arguments(asm, _C.move_args, [Instr("LOAD_FAST", body)], loads)
        asm.unpack(2)
        asm.emit("COPY", 1)
        asm.jump(done, "POP_JUMP_IF_NONE")
        asm.unpack(len(cut.carried) + len(slots))
        for name in cut.carried:
            _carry(asm, name, maybe.get(name))
        for name in slots:
            asm.store_fast(name)
        asm.pop_top()
        _restore(asm, stack, cut.nulls)
        asm.jump(head)
        asm.label(done)
        asm.pop_top()
        asm.return_value()
        if items:
            asm.label(taken)
            _forget(asm, maybe)
            target = self._root.flow.place[self._root.flow.instrs[cut.head].arg]
            self._breaks.continue_at(asm, target + 1, self._end.stack[:-1], (), live, maybe)

    def _body(self, cut: LoopBodySpec, live: Sequence[str], items: bool) -> tuple[Any, tuple[str, ...]]:
        """The code of the body function, and the names in `live` that it takes."""
        at = cut.head + items
        alive = live_locals(self._root.cc, at)
        names = tuple(name for name in live if name in alive)
        maybe = tuple(name for name in cut.maybe if name in names)
        key = ResumeKey(self._root.code, at, (*cut.nulls, *[False] * items), names, self._breaks.first, maybe, cut)
        key = dataclasses.replace(key, handled=len(self._breaks.handled))
        code = self._breaks.resume_code(key)
        described = continuation(code)
        assert described is not None
        described.loops = True
        # A number that changes in each iteration is not a constant of the body.
        for name in names:
            if name in cut.carried:
                self._varying.mark(code, name, _NUMBERS)
        for slot in self._growing(cut):
            self._varying.mark(code, stack_parameter(slot, names), CONTAINERS)
        for name in self._changed(cut).intersection(names):
            self._varying.mark(code, name, CONTAINERS)
        if items:
            self._varying.mark(code, stack_parameter(len(cut.nulls), names), _ITEMS)
        return code, names

    def _growing(self, cut: LoopBodySpec) -> set[int]:
        """Stack slots of containers that a comprehension grows in each iteration."""
        depths = stack_depths(self._root.cc, self._root.flow)
        grown = set()
        for index in loops_of(self._root.code)[cut.head]:
            instr, depth = self._root.flow.instrs[index], depths[index]
            if instr.op in _GROW and depth is not None:
                grown.add(depth - OPS[instr.op].pops(instr.arg) - instr.arg)
        return {slot for slot in grown if 0 <= slot < len(cut.nulls)}

    def _changed(self, cut: LoopBodySpec) -> set[str]:
        """Locals on which the loop calls a method that makes containers grow."""
        instrs = self._root.flow.instrs
        pairs = ((instrs[at - 1], instrs[at]) for at in loops_of(self._root.code)[cut.head] if at)
        return {load.arg for load, call in pairs if load.op == "LOAD_FAST" and (call.op, call.arg) in _GROWING_CALLS}


def _restore(asm: Assembler, stack: Sequence[str], nulls: Sequence[bool]) -> None:
    """Move stack slots back from locals, leaving no other references to them."""
    for name, null in zip(stack, nulls, strict=True):
        if null:
            asm.emit("PUSH_NULL")
        else:
            asm.load_fast(name)
            asm.delete_fast(name)


def _forget(asm: Assembler, names: Iterable[str]) -> None:
    """Release the values of locals that may be unbound and will be stored before they are read."""
    for name in names:
        asm.load_const(None)
        asm.store_fast(name)


def _carry(asm: Assembler, name: str, place: str | None) -> None:
    """Pop a carried value into the local itself, where exception handlers read it, and into `place`."""
    if place is None:
        asm.store_fast(name)
        return
    bound = Label(f"{name}.bound")
    asm.emit("COPY", 1)
    asm.store_fast(place)
    asm.store_fast(name)
    asm.load_fast(name)
    asm.load_const(UNBOUND)
    asm.emit("IS_OP", 0)
    asm.jump(bound, "POP_JUMP_IF_FALSE")
    asm.delete_fast(name)
    asm.label(bound)
