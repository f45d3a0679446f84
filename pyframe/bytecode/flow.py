"""Dataflow analyses of canonical code: reachability, stack depth, live locals and definitely bound locals.

Every instruction inside a try region counts as able to reach its handler, `may_raise` or not: any of them can run out
of memory, and a handler that an analysis leaves out would be removed, or entered with a wrong stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from .isa import OPS, CanonicalCode, Instr, Label, TryRegion

_READS = frozenset(("LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"))
_WRITES = frozenset(("STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"))


@dataclass(slots=True)
class FlowGraph:
    """The control-flow graph of single instructions; an index is an ordinal among the instructions, labels apart."""

    instrs: list[Instr]
    place: dict[Label, int]  # ordinal of the instruction that follows the label
    region: list[TryRegion | None]  # the innermost region of each instruction

    def normal_successors(self, index: int) -> Iterator[tuple[int, bool]]:
        """(successor, whether the jump leads there); exception handlers apart."""
        instr = self.instrs[index]
        row = OPS[instr.op]
        if row.jump:
            yield self.place[instr.arg], True
        if not row.terminator and (not row.jump or row.conditional):
            yield index + 1, False


def build_flow(cc: CanonicalCode) -> FlowGraph:
    """Index labels and regions; KeyError for a region or jump whose label is not in the code."""
    instrs: list[Instr] = []
    place: dict[Label, int] = {}
    for item in cc.instrs:
        if isinstance(item, Label):
            place[item] = len(instrs)
        else:
            instrs.append(item)
    region: list[TryRegion | None] = [None] * len(instrs)
    for candidate in reversed(cc.regions):  # outer regions first, inner ones overwrite them
        for index in range(place[candidate.start], place[candidate.end]):
            region[index] = candidate
    return FlowGraph(instrs, place, region)


def reachable(
    cc: CanonicalCode, start: int = 0, flow: FlowGraph | None = None, leaves: Collection[int] = ()
) -> set[int]:
    """Ordinals of the instructions that can run from ordinal `start` on; control does not continue after `leaves`."""
    flow = flow or build_flow(cc)
    seen: set[int] = set()
    todo = [start]
    while todo:
        index = todo.pop()
        if index in seen or index >= len(flow.instrs):
            continue
        seen.add(index)
        if index not in leaves:
            todo.extend(successor for successor, _ in flow.normal_successors(index))
        region = flow.region[index]
        if region is not None:
            todo.append(flow.place[region.handler])
    return seen


def exit_copies(cc: CanonicalCode) -> dict[int, int]:
    """Instructions that run exactly as an earlier one: the same operations, lines and handlers up to the end of the
    frame, without a jump; ordinal -> that of the first. CPython 3.12 compiles a short block that ends the frame, such
    as `return self.head(x)` after an `if`, once for each branch that leads to it."""
    flow = build_flow(cc)
    numbers: dict[tuple[Any, ...], int] = {}  # what runs from an instruction on -> a number
    number: int | None = None
    found = [-1] * len(flow.instrs)
    for index in reversed(range(len(flow.instrs))):
        instr, region = flow.instrs[index], flow.region[index]
        row = OPS[instr.op]
        if row.jump or number is None and not row.terminator:
            number = None
            continue
        handler = region and (region.handler, region.depth, region.lasti)
        rest = None if row.terminator else number
        # Arguments by identity: 1 and 1.0 are equal, and some constants have no hash.
        number = numbers.setdefault((instr.op, id(instr.arg), instr.pos, handler, rest), index)
        found[index] = number
    first = {number: index for index, number in reversed([*enumerate(found)]) if number >= 0}
    return {index: first[number] for index, number in enumerate(found) if number >= 0 and first[number] != index}


class StackConflict(ValueError):
    """Two paths reach one instruction with different stack depths, or one pops too much."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def stack_depths(cc: CanonicalCode, flow: FlowGraph | None = None) -> list[int | None]:
    """Stack depth before each instruction (None where unreachable); StackConflict if inconsistent."""
    return _depths_and_maximum(flow or build_flow(cc))[0]


def max_stack_depth(cc: CanonicalCode) -> int:
    """The deepest stack that any reachable instruction needs, itself included."""
    return max(1, _depths_and_maximum(build_flow(cc))[1])


def _depths_and_maximum(flow: FlowGraph) -> tuple[list[int | None], int]:
    depths: list[int | None] = [None] * len(flow.instrs)
    maximum = 0
    todo: list[int] = []
    place = flow.place

    def reach(index: int, depth: int, origin: int) -> None:
        if index >= len(depths):
            raise StackConflict("control runs off the end", origin)
        known = depths[index]
        if known is None:
            depths[index] = depth
            todo.append(index)
        elif known != depth:
            raise StackConflict(f"stack depth {known} from one path, {depth} from another", index)

    if depths:
        reach(0, 0, 0)
    seen_regions: set[int] = set()
    while todo:
        index = todo.pop()
        instr = flow.instrs[index]
        row = OPS[instr.op]
        depth = depths[index]
        assert depth is not None
        base = depth - row.pops(instr.arg)
        if base < 0:
            raise StackConflict(f"{instr.op} pops {row.pops(instr.arg)} of {depth} slots", index)
        after = base + row.pushes(instr.arg)
        maximum = max(maximum, depth, after)
        if row.jump:
            assert row.jump_pushes is not None
            reach(place[instr.arg], base + row.jump_pushes(instr.arg), index)
        if not row.terminator and (not row.jump or row.conditional):
            reach(index + 1, after, index)
        region = flow.region[index]
        if region is None:
            continue
        if depth < region.depth:
            raise StackConflict(f"handler keeps {region.depth} slots of {depth}", index)
        if id(region) not in seen_regions:
            seen_regions.add(id(region))
            entry = region.depth + region.lasti + 1
            maximum = max(maximum, entry)
            reach(place[region.handler], entry, index)
    return depths, maximum


def live_locals(cc: CanonicalCode, instr: Instr | int, flow: FlowGraph | None = None) -> frozenset[str]:
    """Names of local slots whose value may still be read when `instr` (or its ordinal) is about to run.

    Cells and free variables are not locals here.  Reads through `locals()` or a debugger are not seen.
    """
    flow = flow or build_flow(cc)
    if isinstance(instr, int):
        index = instr
    else:
        index = next(i for i, item in enumerate(flow.instrs) if item is instr)
    return liveness(flow, frozenset(cc.cellvars) | frozenset(cc.freevars))[index]


def liveness(flow: FlowGraph, cells: frozenset[str]) -> list[frozenset[str]]:
    """Live local slots before each instruction.

    LOAD_FAST_AND_CLEAR of a name in `cells` saves the cell of an outer variable and does not count as a read.
    """
    count = len(flow.instrs)
    live: list[frozenset[str]] = [frozenset()] * (count + 1)
    preds: list[list[int]] = [[] for _ in range(count + 1)]
    for index in range(count):
        for successor, _ in flow.normal_successors(index):
            preds[successor].append(index)
        region = flow.region[index]
        if region is not None:
            preds[flow.place[region.handler]].append(index)
    todo = list(range(count))
    pending = set(todo)
    while todo:
        index = todo.pop()
        pending.discard(index)
        instr = flow.instrs[index]
        after: frozenset[str] = frozenset()
        for successor, _ in flow.normal_successors(index):
            after |= live[successor]
        if instr.op in _WRITES:
            after -= {instr.arg}
        if instr.op in _READS and (instr.op != "LOAD_FAST_AND_CLEAR" or instr.arg not in cells):
            after |= {instr.arg}
        region = flow.region[index]
        if region is not None:  # an exception leaves the slots as they were
            after |= live[flow.place[region.handler]]
        if after != live[index]:
            live[index] = after
            for pred in preds[index]:
                if pred not in pending:
                    pending.add(pred)
                    todo.append(pred)
    return live[:count]


def last_loads(cc: CanonicalCode, names: Collection[str]) -> set[Instr]:
    """The LOAD_FAST and STORE_FAST instructions of a name in `names` after which its slot is not read again."""
    flow = build_flow(cc)
    bit = {name: 1 << index for index, name in enumerate(names)}
    live = [0] * (len(flow.instrs) + 1)
    after = live.copy()
    changed = True
    while changed:  # once more than loops are nested
        changed = False
        for index in range(len(flow.instrs) - 1, -1, -1):
            instr = flow.instrs[index]
            now = 0
            for successor, _ in flow.normal_successors(index):
                now |= live[successor]
            after[index] = now
            mine = bit.get(instr.arg, 0) if instr.op in _READS or instr.op in _WRITES else 0
            now = now & ~mine if instr.op in _WRITES else now
            now = now | mine if instr.op in _READS else now
            region = flow.region[index]
            if region is not None:
                now |= live[flow.place[region.handler]]
            changed |= now != live[index]
            live[index] = now
    return {
        instr
        for instr, then in zip(flow.instrs, after, strict=False)
        if instr.op in ("LOAD_FAST", "STORE_FAST") and instr.arg in bit and not then & bit[instr.arg]
    }


def definitely_bound(cc: CanonicalCode) -> set[Instr]:
    """The LOAD_FAST instructions whose slot is bound on every path (so that no check is needed).

    A slot that LOAD_FAST_AND_CLEAR uses anywhere counts as unbound: the STORE_FAST that restores it may store NULL.  So
    does a slot to which a resume function stores the NULL that it has pushed for such a value.
    """
    flow = build_flow(cc)
    nargs = cc.argcount + cc.kwonlyargcount + bool(cc.flags & 0x04) + bool(cc.flags & 0x08)
    unsafe = {instr.arg for instr in flow.instrs if instr.op == "LOAD_FAST_AND_CLEAR"} | _given_null(cc, flow)
    universe = {name for name in cc.varnames if name not in unsafe}
    bit = {name: 1 << index for index, name in enumerate(cc.varnames) if name in universe}
    count = len(flow.instrs)
    full = -1
    state = [full] * (count + 1)
    entry = 0
    for name in cc.varnames[:nargs]:
        entry |= bit.get(name, 0)
    if not count:
        return set()
    state[0] = entry
    todo = [0]
    visited = [False] * count
    while todo:
        index = todo.pop()
        visited[index] = True
        instr = flow.instrs[index]
        before = state[index]
        after = before
        if instr.op == "STORE_FAST":
            after |= bit.get(instr.arg, 0)
        elif instr.op == "DELETE_FAST":
            after &= ~bit.get(instr.arg, 0)
        edges = [(successor, after) for successor, _ in flow.normal_successors(index)]
        region = flow.region[index]
        if region is not None:
            edges.append((flow.place[region.handler], before & after))
        for successor, bits in edges:
            merged = state[successor] & bits
            if successor < count and (merged != state[successor] or not visited[successor]):
                state[successor] = merged
                visited[successor] = True
                todo.append(successor)
    return {
        instr
        for index, instr in enumerate(flow.instrs)
        if instr.op == "LOAD_FAST" and visited[index] and state[index] & bit.get(instr.arg, 0)
    }


def _given_null(cc: CanonicalCode, flow: FlowGraph) -> set[str]:
    """Names of the slots to which a STORE_FAST may store the NULL of a PUSH_NULL."""
    if not any(instr.op == "PUSH_NULL" for instr in flow.instrs):
        return set()
    depths = stack_depths(cc, flow)
    names: set[str] = set()
    nulls: list[int | None] = [None] * len(flow.instrs)  # before each instruction, one bit for each stack slot
    nulls[0] = 0
    todo = [0]
    while todo:
        index = todo.pop()
        instr, before, depth = flow.instrs[index], nulls[index], depths[index]
        assert before is not None and depth is not None
        if instr.op == "STORE_FAST" and before >> (depth - 1) & 1:
            names.add(instr.arg)
        after = _move_nulls(instr, before, depth)
        edges = [(successor, after) for successor, _ in flow.normal_successors(index)]
        region = flow.region[index]
        if region is not None:
            edges.append((flow.place[region.handler], before & ((1 << region.depth) - 1)))
        for successor, bits in edges:
            known = nulls[successor]
            if known is None or bits & ~known:
                nulls[successor] = bits | (known or 0)
                todo.append(successor)
    return names


def _move_nulls(instr: Instr, bits: int, depth: int) -> int:
    """Which stack slots may hold NULL after `instr`: bit 0 is the lowest slot."""
    if instr.op == "SWAP":
        top, other = depth - 1, depth - instr.arg
        if bits >> top & 1 != bits >> other & 1:
            bits ^= 1 << top | 1 << other
        return bits
    if instr.op == "COPY":
        return bits | (bits >> (depth - instr.arg) & 1) << depth
    row = OPS[instr.op]
    base = depth - row.pops(instr.arg)
    return bits & ((1 << base) - 1) | (1 << base if instr.op == "PUSH_NULL" else 0)


def displaced_cells(cc: CanonicalCode, flow: FlowGraph | None = None) -> list[frozenset[str]]:
    """Names of the cells that are saved on the stack instead of being in their slot, before each instruction.

    An inlined comprehension (3.12 and later) whose variable shares its name with a cell keeps that cell on the
    stack, from LOAD_FAST_AND_CLEAR to the STORE_FAST that puts it back.  A comprehension variable that is a cell
    itself fills the slot again (MAKE_CELL).
    """
    flow = flow or build_flow(cc)
    count = len(flow.instrs)
    cells = frozenset(cc.cellvars) | frozenset(cc.freevars)
    hidden = {i.arg for i in flow.instrs if i.op == "LOAD_FAST_AND_CLEAR" and i.arg in cells}
    if not hidden:
        return [frozenset()] * count
    depths = stack_depths(cc, flow)
    saved: list[dict[str, tuple[int, bool]] | None] = [
        None
    ] * count  # name -> (stack slot, slot is a cell again)
    saved[0] = {}
    todo = [0]
    while todo:
        index = todo.pop()
        state, depth = saved[index], depths[index]
        assert state is not None and depth is not None
        after = _move_saved(flow.instrs[index], state, depth, hidden)
        edges = [(successor, after) for successor, _ in flow.normal_successors(index)]
        region = flow.region[index]
        if region is not None:
            kept = {name: entry for name, entry in state.items() if entry[0] < region.depth}
            edges.append((flow.place[region.handler], kept))
        for successor, reached in edges:
            if saved[successor] is None:
                saved[successor] = reached
                todo.append(successor)
    return [frozenset(name for name, (_, is_cell) in (state or {}).items() if not is_cell) for state in saved]


def _move_saved(
    instr: Instr, state: dict[str, tuple[int, bool]], depth: int, hidden: set[str]
) -> dict[str, tuple[int, bool]]:
    """The saved cells after `instr`: name -> (stack slot, whether the local slot holds a cell again)."""
    after = dict(state)
    if instr.op == "SWAP":
        top, other = depth - 1, depth - instr.arg
        exchange = {top: other, other: top}
        after = {name: (exchange.get(slot, slot), is_cell) for name, (slot, is_cell) in after.items()}
    elif instr.op == "LOAD_FAST_AND_CLEAR" and instr.arg in hidden and instr.arg not in after:
        after[instr.arg] = (depth, False)
    elif instr.op == "MAKE_CELL" and instr.arg in after:
        after[instr.arg] = (after[instr.arg][0], True)
    elif instr.op == "STORE_FAST" and after.get(instr.arg, (-1,))[0] == depth - 1:
        del after[instr.arg]
    return after
