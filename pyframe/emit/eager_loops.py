"""Chooses the instructions to copy for a loop that runs eagerly because tracing it would take too long.

The code that replaces the frame contains this copy, and continues in resume functions where control leaves it;
`loop_break` emits the copy and the calls of these functions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..bytecode import CanonicalCode
from ..bytecode.flow import FlowGraph
from .handlers import worth_capturing

# Instructions on the way out of a loop, which belong to it.
_CLEANUP = ("END_FOR", "JUMP", "POP_TOP")


@dataclass(frozen=True, slots=True)
class PlainLoop:
    """How to copy a loop that runs eagerly.

    `kept`: ordinals of the instructions to copy. `exits`: ordinals at which execution continues outside the copy.
    `handlers`: ordinals of the PUSH_EXC_INFO instructions after which it leaves the copy, each with the number of
    exceptions being handled before it.
    """

    kept: frozenset[int]
    exits: frozenset[int]
    handlers: dict[int, int]


def plan_plain_loop(
    cc: CanonicalCode, flow: FlowGraph, start: int, inside: Collection[int], handled: int, may_handle: bool
) -> PlainLoop:
    """Plan the copy of the loop with the instructions `inside`.

    The loop is entered at `start` (its head, or the GET_ITER before it) while `handled` exceptions are being handled;
    `may_handle`: whether exception handlers may continue in resume functions.

    While the loop itself handles an exception, that exception exists only as the thread's current one, so code is
    copied until the handler has finished.
    """
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
