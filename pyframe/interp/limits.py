"""Limits the number of instructions that one trace may execute, and picks the loop or call that runs eagerly when the
limit is reached."""

from __future__ import annotations

import types
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.files import our_file
from ..errors import Restart

if TYPE_CHECKING:
    from .trace import Trace

KIND = "instruction-limit"
LOOP = "a long loop"
NODES = 20  # a graph that grows by fewer nodes before the limit counts as not growing
MAX_TURNS = 8  # how often the limit may be reached while the graph grows


class LongParts:
    """What took too many instructions in captures of one `compile()`: loops, by code and head, which run eagerly from
    then on, and functions, which are then called instead of traced."""

    def __init__(self) -> None:
        self.loops: weakref.WeakKeyDictionary[types.CodeType, set[int]] = weakref.WeakKeyDictionary()
        self.functions: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


class Arrival(NamedTuple):
    """When a trace reached a loop: its root step, and the instructions spent and graph nodes made before it."""

    step: int
    spent: int
    nodes: int


class Budget:
    """Counts the instructions of one trace, over all frames. Code that does the work decrements `left`."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self.turns = 0
        self.nodes = 0  # graph nodes when the limit was last reached

    @property
    def spent(self) -> int:
        return self.turns * self.limit + self.limit - self.left

    def renew(self, nodes: int) -> bool:
        """Refill the budget; False once that has happened MAX_TURNS times."""
        self.turns, self.left, self.nodes = self.turns + 1, self.limit, nodes
        return self.turns < MAX_TURNS

    def grew(self, nodes: int) -> bool:
        return nodes - self.nodes >= NODES

    def is_long(self, since: int) -> bool:
        """Whether what started when `since` instructions were spent took at least half the limit."""
        return self.spent - since >= self.limit // 2

    def long_loop(self, around: Mapping[int, Arrival], nodes: int) -> int | None:
        """The loop, by its head, that should run eagerly, of those in `around` that took at least half the limit: the
        outermost that added no graph node, or else the innermost that added few."""
        long = sorted((arrival, head) for head, arrival in around.items() if self.is_long(arrival.spent))
        for arrival, head in long:
            if arrival.nodes == nodes:
                return head
        for arrival, head in reversed(long):
            if (nodes - arrival.nodes) * self.limit < NODES * (self.spent - arrival.spent):
                return head
        return None


def longest(frames: list[Any], budget: Budget) -> Any:
    """The innermost frame that took at least half the limit, including its callees; by default the root frame."""
    return next(frame for frame in reversed(frames) if frame is frames[0] or budget.is_long(frame.began))


def too_long(tx: Trace) -> None:
    """Called when the limit is reached; returns if the trace may go on."""
    budget, root, nodes = tx.budget, tx.frames[0], tx.graph.size()
    if budget.grew(nodes):
        if budget.renew(nodes):
            return
        tx.graph_break(KIND, f"{nodes:,} graph operations were traced without reaching the end")
    frame = longest(tx.frames, budget)
    if frame is not root:
        if not our_file(frame.file):
            tx.long.functions.add(frame.code)
        tx.graph_break(KIND, f"a long call of {frame.code.co_name}()")
    head = budget.long_loop(tx.breaks.loops_around(root.at), nodes)
    if head is None and budget.renew(nodes):
        return
    if head is not None and not tx.breaks_are_errors:
        tx.long.loops.setdefault(root.code, set()).add(head)
        raise Restart
    tx.graph_break(KIND, LOOP)
