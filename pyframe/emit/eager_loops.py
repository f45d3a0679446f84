"""Plans the eager execution of a loop that would take too long to trace. The code that replaces the frame contains a
copy of the loop's instructions and continues in resume functions where control leaves the copy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..bytecode import CanonicalCode
from ..bytecode.flow import FlowGraph
from .handlers import worth_capturing

# They go with the way out of a loop.
_CLEANUP = ("END_FOR", "JUMP", "POP_TOP")


@dataclass(frozen=True, slots=True)
class PlainLoop:
    """`kept`: the ordinals of the instructions that are copied.  `exits`: where control goes on that leaves the copy.
    `handlers`: the PUSH_EXC_INFOs behind which it leaves the copy, with the number of exceptions being handled before
    each."""

    kept: frozenset[int]
    exits: frozenset[int]
    handlers: dict[int, int]


def plan_plain_loop(
    cc: CanonicalCode, flow: FlowGraph, start: int, inside: Collection[int], handled: int, may_handle: bool
) -> PlainLoop:
    """What to copy of the loop with the instructions `inside`, entered at `start` (its head, or the GET_ITER in front)
    while `handled` exceptions are being handled; `may_handle`: whether handlers may go on elsewhere.

    An exception that the loop itself handles is known only by being the thread's current one: code is copied until
    that has been dealt with."""
    kept: set[int] = set()
    exits: set[int] = set()
    handlers: dict[int, int] = {}
    todo = [(start, handled)]
    while todo:
        at, count = todo.pop()
        if at in kept or at in exits:
            continue
        op = flow.instrs[at].op
        ours = at == start or at in inside or op in _CLEANUP or count != handled
        if not ours and op != "PUSH_EXC_INFO" and worth_capturing(cc, at, flow):
            exits.add(at)
            continue
        kept.add(at)
        region = flow.region[at]
        if region is not None:
            todo.append((flow.place[region.handler], count))
        leaves = may_handle and op == "PUSH_EXC_INFO" and at not in inside and count <= handled
        if leaves and worth_capturing(cc, at, flow):
            handlers[at] = count
            continue
        count += (op == "PUSH_EXC_INFO") - (op == "POP_EXCEPT")
        todo += [(after, count) for after, _ in flow.normal_successors(at)]
    return PlainLoop(frozenset(kept), frozenset(exits), handlers)
