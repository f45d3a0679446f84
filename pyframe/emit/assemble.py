"""`Assembler`: builds the code object that replaces a captured frame.

The new code takes the original frame's arguments as plain positional parameters (`*args` and `**kwargs` arrive as one
tuple and one dict) and uses the original's closure. Live objects become constants of the code. If the code calls the
compiled graph, it has one more parameter (see `call_graph`): after the guards, C code passes a `GraphCall` there, which
holds the graph and the inputs that the guards have read.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from pyframe.bytecode import (
    OPS,
    ArgKind,
    CanonicalCode,
    Instr,
    Label,
    Position,
    TryRegion,
    call_sequence,
    canonicalize,
    materialize,
    verify,
)
from pyframe.bytecode.flow import build_flow, last_loads, reachable
from pyframe.bytecode.isa import FLAG_CLOSURE, LANDING_OF, NO_POSITION, NULL_BEFORE_CALLABLE

from .resume import (
    CO_NESTED,
    CO_NEWLOCALS,
    CO_OPTIMIZED,
    CO_VARARGS,
    CO_VARKEYWORDS,
    copy_body,
    drop_empty_regions,
    keyword_names,
)


def frame_arguments(cc: CanonicalCode) -> tuple[str, ...]:
    """Names of the locals that a call of `cc` binds: positional, keyword-only, then *args and **kwargs."""
    count = cc.argcount + cc.kwonlyargcount
    count += bool(cc.flags & CO_VARARGS) + bool(cc.flags & CO_VARKEYWORDS)
    return cc.varnames[:count]


def local_names(items: Iterable[Instr | Label]) -> set[str]:
    """Names of the local slots that instructions read or write."""
    return {
        item.arg
        for item in items
        if isinstance(item, Instr) and item.op in OPS and OPS[item.op].kind is ArgKind.LOCAL
    }


class Assembler:
    """Appends instructions in order. Methods that emit return None unless documented otherwise.

    Instructions without a position get `position`; callers set it to the user's line.
    """

    def __init__(self, original: CanonicalCode | types.CodeType) -> None:
        self.original = canonicalize(original) if isinstance(original, types.CodeType) else original
        self.params = frame_arguments(self.original)
        self.position: Position = NO_POSITION
        self._instrs: list[Instr | Label] = []
        self._regions: list[TryRegion] = []
        self._tail: list[Instr | Label] = []  # copies of original instructions, placed at the end
        self._tail_regions: list[TryRegion] = []
        self._locals: dict[str, None] = dict.fromkeys((*self.original.varnames, *self.original.cellvars))
        self._cells: dict[str, None] = {}
        self._count = 0
        self._temps: list[str] = []
        self._graph: str | None = None  # parameter that holds the graph
        self._failed: Label | None = None  # handler that raises the exception in the original code
        self._guarded: Label | None = None  # start of the region with that handler
        self._left: Label | None = None  # start of the region whose handler exits entered modes
        self._leaving: tuple[Callable[[Any], None], str] | None = None  # what that handler calls, and its argument

    # Single instructions

    def append(self, *instrs: Instr | Label) -> None:
        """Append raw instructions; those without a position get the current one."""
        for item in instrs:
            if isinstance(item, Instr) and item.pos is NO_POSITION:
                item.pos = self.position
            self._instrs.append(item)

    def emit(self, op: str, arg: Any = None) -> None:
        self.append(Instr(op, arg))

    def load_const(self, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def fresh_temp(self) -> str:
        """A new local name. `finish` unbinds it after its last use."""
        while True:
            name = f"__tmp_{self._count}"
            self._count += 1
            if name not in self._locals:
                self._locals[name] = None
                self._temps.append(name)
                return name

    def load_fast(self, name: str) -> None:
        self._locals.setdefault(name)
        self.emit("LOAD_FAST", name)

    def store_fast(self, name: str | None = None) -> str:
        """Pop into local `name` (default: a new temporary); returns the name."""
        name = name if name is not None else self.fresh_temp()
        self._locals.setdefault(name)
        self.emit("STORE_FAST", name)
        return name

    def delete_fast(self, name: str) -> None:
        self.emit("DELETE_FAST", name)

    def make_cell(self, name: str) -> None:
        """Make local `name` a cell from the start of the frame; if it is a parameter, the cell holds the argument."""
        if name in self.original.freevars:
            raise ValueError(f"{name!r} is already a free variable")
        self._cells.setdefault(name)

    def load_closure(self, name: str) -> None:
        """Push the cell of a free variable, or of a name given to `make_cell`."""
        self._need_cell(name)
        self.emit("LOAD_CLOSURE", name)

    def load_deref(self, name: str) -> None:
        self._need_cell(name)
        self.emit("LOAD_DEREF", name)

    def store_deref(self, name: str) -> None:
        self._need_cell(name)
        self.emit("STORE_DEREF", name)

    def _need_cell(self, name: str) -> None:
        if name not in self._cells and name not in self.original.freevars:
            raise ValueError(f"{name!r} is neither a free variable nor made a cell")

    def load_global(self, name: str) -> None:
        self.emit("LOAD_GLOBAL", name)

    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def store_attr(self, name: str) -> None:
        """Stack: value, object."""
        self.emit("STORE_ATTR", name)

    def load_item(self, key: Any) -> None:
        """Replace the container on top by its item at a constant key."""
        self.load_const(key)
        self.emit("BINARY_SUBSCR")

    def pop_top(self) -> None:
        self.emit("POP_TOP")

    def discard_null(self) -> None:
        """Pop a slot that may hold NULL, which POP_TOP does not allow."""
        self.store_fast()

    def build_tuple(self, count: int) -> None:
        self.emit("BUILD_TUPLE", count)

    def build_list(self, count: int) -> None:
        self.emit("BUILD_LIST", count)

    def build_dict(self, count: int) -> None:
        """Stack: `count` pairs key, value."""
        self.emit("BUILD_MAP", count)

    def unpack(self, count: int) -> None:
        """Unpack the sequence on top; its first item ends up on top."""
        self.emit("UNPACK_SEQUENCE", count)

    def return_value(self) -> None:
        self.emit("RETURN_VALUE")

    # Control flow

    def label(self, label: Label) -> None:
        """Place `label` here."""
        self._instrs.append(label)

    def jump(self, label: Label, test: str = "JUMP") -> None:
        """Jump to `label`; `test` may be one of the POP_JUMP_IF_... ops."""
        if not OPS[test].jump:
            raise ValueError(f"{test} is not a jump")
        self.emit(test, label)

    def region(self, start: Label, end: Label, handler: Label, depth: int, lasti: bool = False) -> None:
        """Add an exception region; inner regions must be added first."""
        self._regions.append(TryRegion(start, end, handler, depth, lasti))

    def at_the_end(self, label: Label, instrs: Sequence[Instr]) -> None:
        """Place `label` and instructions that do not continue behind everything that is emitted, outside of all
        regions."""
        self._tail += [label, *instrs]

    # Calls and functions

    def collect(self, emit: Callable[[], None]) -> list[Instr]:
        """The instructions that `emit()` would append, for use in `call`. Raises ValueError if one is a label."""
        saved, self._instrs = self._instrs, []
        try:
            emit()
            taken = self._instrs
        finally:
            self._instrs = saved
        instrs = [item for item in taken if isinstance(item, Instr)]
        if len(instrs) != len(taken):
            raise ValueError("a label inside an expression")
        return instrs

    def call(
        self, load_callable: list[Instr], load_args: list[Instr], n: int, kwnames: tuple[str, ...] = ()
    ) -> None:
        """Call with `n` arguments that `load_args` pushes, the last `len(kwnames)` of them by keyword."""
        self.append(*call_sequence(load_callable, load_args, n, kwnames))

    def push_null_for_call(self) -> None:
        """Push the NULL that CALL requires next to the callable on top of the stack."""
        self.emit("PUSH_NULL")
        if NULL_BEFORE_CALLABLE:
            self.emit("SWAP", 2)

    def call_graph(self, *more: str, guarded: bool = True) -> None:
        """Run the entry's graph and push its outputs; may be used once. Adds a last parameter to the new code, which
        receives the graph bound to its inputs. `more`: locals that are passed as further inputs. `guarded`: a region of
        `raise_errors_in` contains the call, too."""
        self._graph = self.fresh_temp()
        outside = not guarded and self._guarded is not None
        if outside:
            self.raise_errors_here()
        self.call([Instr("LOAD_FAST", self._graph)], [Instr("LOAD_FAST", name) for name in more], len(more))
        if outside:
            self._guarded = Label("guarded")
            self.label(self._guarded)
        self.delete_fast(self._graph)

    def run_instead_of_none(self, code: types.CodeType) -> None:
        """If None is on top of the stack, return what `code` returns for this frame's arguments. The frame must not
        have had side effects yet."""
        done = Label("done")
        guarded = self._guarded is not None
        self.raise_errors_here()
        self.emit("COPY", 1)
        self.jump(done, "POP_JUMP_IF_NOT_NONE")
        self.pop_top()
        loads = [Instr("LOAD_DEREF" if name in self._cells else "LOAD_FAST", name) for name in self.params]
        self.call(self.function_instrs(code), loads, len(loads))
        self.return_value()
        self.label(done)
        if guarded:
            self._guarded = done

    def raise_errors_in(self, code: types.CodeType, raise_in: Callable[..., Any]) -> None:
        """From here to `raise_errors_here`, raise exceptions inside the original code instead of in this frame.

        `code` is the original, whose RESUME has an exception handler. A function made from it raises the exception at
        that RESUME, and this frame returns what the function returns. The frame must not have had side effects yet.
        `raise_in`: `_C.raise_in`.
        """
        self._guarded, self._failed = Label("guarded"), Label("failed")
        self.label(self._guarded)
        error = self.fresh_temp()
        loads = [Instr("LOAD_FAST", name) for name in self.params]
        call = call_sequence(
            [Instr("LOAD_CONST", raise_in)],
            [*self.function_instrs(code), *loads, Instr("BUILD_LIST", len(loads)), Instr("LOAD_FAST", error)],
            3,
        )
        handler = [Instr("STORE_FAST", error), *call, Instr("RETURN_VALUE")]
        for item in handler:
            item.pos = self.position
        self._tail += [self._failed, *handler]

    def raise_errors_here(self) -> None:
        """End the region that `raise_errors_in` began, if any."""
        if self._guarded is None or self._failed is None:
            return
        if self._left is not None:  # regions are nested
            self._end_leaving(self._failed)
            self.label(self._left)
        end = Label("guarded.end")
        self.label(end)
        self.region(self._guarded, end, self._failed, 0)
        self._guarded = None

    def exit_on_error(self, leave: Callable[[Any], None], name: str) -> None:
        """From here to `end_exit_on_error`, call `leave` with the value of local `name` if an exception propagates."""
        self._left, self._leaving = Label("entered"), (leave, name)
        self.label(self._left)

    def end_exit_on_error(self) -> None:
        """End the region that `exit_on_error` began, if any."""
        if self._left is not None:
            self._end_leaving(None)
        self._left = None

    def _end_leaving(self, outer: Label | None) -> None:
        """End the region of `exit_on_error` and begin the next. `outer`: the handler that the exception goes to
        afterwards."""
        assert self._left is not None and self._leaving is not None
        leave, name = self._leaving
        end, handler, begin, done = map(Label, ("entered.end", "leave", "leave.begin", "leave.end"))
        self.label(end)
        self.region(self._left, end, handler, 0)
        error = self.fresh_temp()
        call = call_sequence([Instr("LOAD_CONST", leave)], [Instr("LOAD_FAST", name)], 1)
        instrs = [Instr("STORE_FAST", error), *call, Instr("POP_TOP"), Instr("LOAD_FAST", error), Instr("RERAISE", 0)]
        for item in instrs:
            item.pos = self.position
        self._tail += [handler, begin, *instrs, done]
        if outer is not None:
            self._tail_regions.append(TryRegion(begin, done, outer, 0, False))
        self._left = Label("entered")

    def call_object(self, function: Any, *args: str) -> None:
        """Call a live object with locals as arguments."""
        self.call([Instr("LOAD_CONST", function)], [Instr("LOAD_FAST", name) for name in args], len(args))

    def function_instrs(self, code: types.CodeType) -> list[Instr]:
        """Instructions that push a function made from `code`, with a closure of this frame's cells."""
        for name in code.co_freevars:
            self._need_cell(name)
        if not code.co_freevars:
            return [Instr("LOAD_CONST", code), Instr("MAKE_FUNCTION", 0)]
        return [
            *(Instr("LOAD_CLOSURE", name) for name in code.co_freevars),
            Instr("BUILD_TUPLE", len(code.co_freevars)),
            Instr("LOAD_CONST", code),
            Instr("MAKE_FUNCTION", FLAG_CLOSURE),
        ]

    def make_function_with_closure(self, code: types.CodeType) -> None:
        self.append(*self.function_instrs(code))

    # The original body

    def embed_original(
        self,
        at: int | Instr,
        tail_label: Label,
        jump_label: Label | None = None,
        cc: CanonicalCode | None = None,
        leaves: Mapping[int, Label] | None = None,
        instead: Sequence[Instr] = (),
    ) -> Label:
        """Add a copy of instruction `at` that runs inside the original's exception regions; returns its label.

        Jump there with the original's stack and locals in place. If the instruction completes, control continues at
        `tail_label`, outside all regions, with its results on the stack, or at `jump_label` if it jumps. If it raises
        inside a region, copies of the original's handlers and of all code that follows them run to the end of the
        function. The caller must ensure that this frame's locals and cells are those of the original. `leaves` maps
        ordinals of copied instructions to labels that control jumps to after them; `instead` replaces the instruction.

        LOAD_METHOD is run as LOAD_ATTR, with one result instead of two.

        FOR_ITER and SEND are followed by their END_FOR or END_SEND: at `jump_label` the iterator (or receiver) is
        already popped, and the resume function continues after the original's END_FOR.
        """
        cc = cc or self.original
        instrs = cc.real_instrs()
        index = at if isinstance(at, int) else next(i for i, item in enumerate(instrs) if item is at)
        instr = instrs[index].copy()
        if instr.op == "LOAD_METHOD":  # its two results may hold a NULL in either slot
            instr.op = "LOAD_ATTR"
        row = OPS[instr.op]
        if row.jump:
            if jump_label is None:
                raise ValueError(f"{instr.op} can jump: give jump_label")
            instr.arg = jump_label
        landing = Label(f"embedded{index}.landing")
        if instr.op in LANDING_OF:
            instr.arg = landing
        flow = build_flow(cc)
        region = flow.region[index]
        entry, end = Label(f"embedded{index}"), Label(f"embedded{index}.end")
        self._tail.append(entry)
        if instead:
            self._tail += [Instr(each.op, each.arg, instr.pos) for each in instead]
        elif instr.op == "CALL_KW":  # up to 3.12 the names belong to the instruction: load them again
            self._tail += (Instr("POP_TOP"), Instr("LOAD_CONST", keyword_names(instrs, index)))
        self._tail += (end,) if instead else (instr, end)
        if not row.terminator:
            self._tail.append(Instr("JUMP", tail_label, instr.pos))
        if instr.op in LANDING_OF:
            self._tail += (
                landing,
                Instr(LANDING_OF[instr.op], None, instr.pos),
                Instr("JUMP", jump_label, instr.pos),
            )
        if region is None:
            return entry
        leaves = leaves or {}
        kept = reachable(cc, flow.place[region.handler], flow, leaves)
        place = len(self._tail_regions)
        entries = self.embed_part(cc, kept, leaves, {})
        handler = entries[flow.place[region.handler]]
        self._tail_regions.insert(place, TryRegion(entry, end, handler, region.depth, region.lasti))
        return entry

    def embed_part(
        self, cc: CanonicalCode, kept: Set[int], leaves: Mapping[int, Label], exits: Mapping[int, Label]
    ) -> dict[int, Label]:
        """Add a copy of the instructions `kept` with their regions; returns their labels.

        Control leaves the copy after the instructions in `leaves` and before those in `exits`, by jumping to the labels
        given there. All other successors must be in `kept`. The caller must ensure that this frame's locals and cells
        are those of `cc`.
        """
        flow = build_flow(cc)
        body, regions, entries = copy_body(cc, set(kept))
        for at in kept:
            here = body.index(entries[at]) + 1
            copied, row = body[here], OPS[flow.instrs[at].op]
            assert isinstance(copied, Instr)
            if row.jump and flow.place[flow.instrs[at].arg] in exits:
                copied.arg = exits[flow.place[flow.instrs[at].arg]]
            behind = leaves.get(at) or (None if row.terminator else exits.get(at + 1))
            if behind is not None:
                body.insert(here + 1, Instr("JUMP", behind, copied.pos))
        self._tail += body
        self._tail_regions += regions
        for name in cc.cellvars:
            if name not in self.original.freevars:
                self.make_cell(name)
        for name in cc.varnames:
            self._locals.setdefault(name)
        return entries

    # The result

    def to_canonical(self, name: str | None = None) -> CanonicalCode:
        """The finished canonical code, not yet verified."""
        original = self.original
        cells = tuple(self._cells)
        prologue: list[Instr | Label] = [Instr("MAKE_CELL", cell) for cell in cells]
        if original.freevars:
            prologue.append(Instr("COPY_FREE_VARS", len(original.freevars)))
        begin = (each.pos for each in original.instrs if isinstance(each, Instr) and each.op == "RESUME")
        start = next(begin, Position(original.firstlineno))
        prologue.append(Instr("RESUME", 0, start))
        mentioned = local_names((*self._instrs, *self._tail))
        params = self.params if self._graph is None else (*self.params, self._graph)
        plain = [
            local
            for local in self._locals
            if local not in params and local not in cells and local in mentioned
        ]
        cc = CanonicalCode(
            instrs=[*prologue, *self._instrs, *self._tail],
            regions=[*self._regions, *self._tail_regions],
            argcount=len(params),
            varnames=(*params, *plain),
            cellvars=cells,
            freevars=original.freevars,
            flags=CO_OPTIMIZED | CO_NEWLOCALS | (CO_NESTED if original.freevars else 0),
            name=name or original.name,
            qualname=name or original.qualname,
            filename=original.filename,
            firstlineno=original.firstlineno,
        )
        drop_empty_regions(cc)
        return cc

    def finish(self, name: str | None = None) -> types.CodeType:
        """Verify and materialize the code; raises VerifyError if it is malformed. `name` defaults to the original's."""
        cc = self.to_canonical(name)
        verify(cc)
        self._let_go(cc)
        return materialize(cc)

    def _let_go(self, cc: CanonicalCode) -> None:
        """Unbind temporaries after their last use, so that objects are freed when they are in the original frame."""
        last = last_loads(cc, self._temps)
        kept: list[Instr | Label] = []
        for item, following in zip(cc.instrs, [*cc.instrs[1:], None], strict=True):
            before = kept[-1] if kept else None
            if item in last and item.op == "STORE_FAST" and isinstance(before, Instr) and before.op == "COPY":
                kept.pop()  # the stored copy has no later use
                continue
            kept.append(item)
            leaves = isinstance(following, Instr) and following.op == "RETURN_VALUE"
            if item in last and item.op == "LOAD_FAST" and not leaves:
                kept.append(Instr("DELETE_FAST", item.arg, item.pos))
        cc.instrs = kept


def call_moving_arguments(
    asm: Assembler, move_args: Callable[..., Any], function: list[Instr], loads: list[Instr]
) -> None:
    """Call `function` with the values that `loads` push, without keeping the arguments on this frame's stack.

    `move_args`: `_C.move_args`.
    """
    count = sum(OPS[item.op].pushes(item.arg) - OPS[item.op].pops(item.arg) for item in loads)
    asm.call([Instr("LOAD_CONST", move_args)], [*function, *loads, Instr("BUILD_LIST", count)], 2)
