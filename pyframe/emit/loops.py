"""Finds the loops of a code object, and turns a loop that contains a graph break into a *body function* that runs one
iteration.

With resume functions alone, each iteration would nest one more call. Instead the code that replaces the frame keeps the
loop and calls the body function in each iteration: `loop_break` emits that code, this module cuts the body out of the
original instructions, and `resume` adds its parameters. The body function is captured like any other function, breaks
included. It starts where the loop body starts. Where the original jumps back to the loop head, it returns
`(carried, None)`: the values that the next iteration needs, first those of locals, then those of stack slots. Nothing
else holds these values while the body runs, so a `break` frees the iterator. Where the original returns, after a
`break` or from code behind the loop, it returns `(None, value)`.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..bytecode import OPS, CanonicalCode, Instr, Label, TryRegion, canonicalize
from ..bytecode.flow import FlowGraph, build_flow, live_locals, reachable
from ..core.per_code import per_code

_WRITES = ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")
UNBINDS = ("DELETE_FAST", "LOAD_FAST_AND_CLEAR")


class Unbound(enum.Enum):
    """Marks an unbound local where values are passed between functions."""

    UNBOUND = 0


UNBOUND = Unbound.UNBOUND


@per_code
def decoded(code: types.CodeType) -> tuple[CanonicalCode, FlowGraph]:
    """The canonical code and flow graph of `code`, shared: do not modify them."""
    cc = canonicalize(code)
    return cc, build_flow(cc)


@per_code
def loops_of(code: types.CodeType) -> dict[int, frozenset[int]]:
    """The loops of a code object: each head's ordinal, mapped to the ordinals on a cycle through it."""
    cc, flow = decoded(code)
    heads = {flow.place[i.arg] for at, i in enumerate(flow.instrs) if OPS[i.op].jump and flow.place[i.arg] <= at}
    loops = {head: _cycle(cc, flow, head) for head in sorted(heads)}
    return {head: members for head, members in loops.items() if members}


def _cycle(cc: CanonicalCode, flow: FlowGraph, head: int) -> frozenset[int]:
    """The ordinals on a cycle through `head`; empty if it is not a loop head."""
    forward: set[int] = set().union(*(reachable(cc, after, flow) for after in _successors(flow, head)))
    return frozenset(forward & _reaching(flow, head)) if head in forward else frozenset()


def _successors(flow: FlowGraph, index: int) -> Iterator[int]:
    yield from (after for after, _ in flow.normal_successors(index))
    region = flow.region[index]
    if region is not None:
        yield flow.place[region.handler]


def _reaching(flow: FlowGraph, target: int) -> set[int]:
    """The ordinals from which control can reach `target`, including `target`."""
    before: list[list[int]] = [[] for _ in range(len(flow.instrs) + 1)]
    for index in range(len(flow.instrs)):
        for after in _successors(flow, index):
            before[after].append(index)
    seen = {target}
    todo = [target]
    while todo:
        fresh = set(before[todo.pop()]) - seen
        seen |= fresh
        todo += fresh
    return seen


def starts_at_iterator(flow: FlowGraph, before: int, head: int) -> bool:
    """Whether a loop whose head is reached from the instruction `before` starts there, because that makes its iterator.
    Otherwise it starts at its head."""
    return before == head - 1 and flow.instrs[before].op == "GET_ITER" and flow.instrs[head].op == "FOR_ITER"


@dataclass(frozen=True, slots=True)
class LoopBodySpec:
    """All that a body function of the loop at `head` depends on. `carried`: the locals that an iteration may change and
    a later one (or the code after the loop) may read; those in `maybe` may be unbound. `nulls`: which stack slots at
    the head hold NULL."""

    head: int
    carried: tuple[str, ...]
    maybe: tuple[str, ...]
    nulls: tuple[bool, ...]


def plan_cut(code: types.CodeType, head: int, bound: Sequence[str], nulls: Sequence[bool]) -> LoopBodySpec:
    """The LoopBodySpec of the loop at `head`, if the locals in `bound` are bound on entry."""
    cc, flow = decoded(code)
    alive = live_locals(cc, head, flow)
    inside = [flow.instrs[index] for index in loops_of(code)[head]]
    assigned = {instr.arg for instr in inside if instr.op in _WRITES}
    unbound = {instr.arg for instr in inside if instr.op in UNBINDS}
    carried = tuple(name for name in cc.varnames if name in alive and name in assigned and name not in cc.cellvars)
    maybe = tuple(name for name in carried if name in unbound or name not in bound)
    return LoopBodySpec(head, carried, maybe, tuple(nulls))


def extract_loop_body(cc: CanonicalCode, cut: LoopBodySpec) -> tuple[CanonicalCode, int]:
    """Turn `cc` into the code of a body function, still without parameters, and return it with the ordinal where it
    starts."""
    flow = build_flow(cc)
    inside = _cycle(cc, flow, cut.head)
    head = flow.instrs[cut.head]
    start = flow.instrs[cut.head + 1] if head.op == "FOR_ITER" else head
    next_item = Label("next")
    instrs: list[Instr | Label] = []
    index = -1
    for item in cc.instrs:
        if isinstance(item, Label):
            instrs.append(item)
            continue
        index += 1
        if index == cut.head and index - 1 in inside and not OPS[flow.instrs[index - 1].op].terminator:
            instrs.append(Instr("JUMP", next_item, item.pos))
        if item.op == "RETURN_VALUE":
            wrap = (("LOAD_CONST", None), ("SWAP", 2), ("BUILD_TUPLE", 2))
            instrs += (Instr(op, arg, item.pos) for op, arg in wrap)
        if isinstance(item.arg, Label) and flow.place[item.arg] == cut.head:
            item.arg = next_item
        instrs.append(item)
    block, regions, names = _next_iteration(cut, next_item)
    cc.instrs = instrs + block
    cc.regions = [*cc.regions, *regions]
    cc.varnames += tuple(name for name in names if name not in cc.varnames)  # a body inside a body already has them
    for instr in cc.real_instrs():
        if instr.pos.lineno is None:
            instr.pos = head.pos
    return cc, next(i for i, instr in enumerate(cc.real_instrs()) if instr is start)


def _next_iteration(cut: LoopBodySpec, next_item: Label) -> tuple[list[Instr | Label], list[TryRegion], list[str]]:
    """Code that empties the stack and returns `(carried, None)`, its exception regions, and the locals it needs."""
    block: list[Instr | Label] = [next_item]
    tail: list[Instr | Label] = []
    regions = []
    slots = [None if null else f"__slot_{at}" for at, null in enumerate(cut.nulls)]
    block += [Instr("STORE_FAST", slot or "__null") for slot in reversed(slots)]
    kept = [slot for slot in slots if slot is not None]
    for name in cut.maybe:
        start, end, handler, after = (Label(f"{name}.{part}") for part in ("start", "end", "unbound", "bound"))
        block += (start, Instr("LOAD_FAST", name), end, Instr("POP_TOP"), after)
        tail += (handler, Instr("PUSH_EXC_INFO"), Instr("POP_TOP"), Instr("POP_EXCEPT"))
        tail += (Instr("LOAD_CONST", UNBOUND), Instr("STORE_FAST", name), Instr("JUMP", after))
        regions.append(TryRegion(start, end, handler, 0, False))
    handed = (*cut.carried, *kept)
    block += [Instr("LOAD_FAST", name) for name in handed]
    block += (Instr("BUILD_TUPLE", len(handed)), Instr("LOAD_CONST", None), Instr("BUILD_TUPLE", 2))
    block.append(Instr("RETURN_VALUE"))
    return block + tail, regions, [*kept, *["__null"] * any(cut.nulls)]
