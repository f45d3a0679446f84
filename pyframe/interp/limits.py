"""Limits the number of instructions that one trace may execute, and picks the loop or call that runs eagerly when the
limit is reached."""

from __future__ import annotations

import types
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.files import our_file
from ..errors import Restart

KIND = "instruction-limit"
LOOP = "a long loop"
NODES = 20  # a graph that grows by fewer of them before the limit is reached hardly grows
MAX_TURNS = 8  # how often the limit may be reached while the graph grows


class LongParts:
    """What took too many instructions in the captures of one `compile()`: loops, by code and head, which run as they
    are from then on, and functions, whose calls are made for real."""

    def __init__(self) -> None:
        self.loops: weakref.WeakKeyDictionary[types.CodeType, set[int]] = weakref.WeakKeyDictionary()
        self.functions: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


class Arrival(NamedTuple):
    """When a trace came to a loop: its root step, and how many instructions and nodes there were before it."""

    step: int
    spent: int
    nodes: int


class Budget:
    """Counts the instructions of one trace, of all its frames.  `left` is taken down by who does the work."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self.turns = 0
        self.nodes = 0  # at the start of this turn

    @property
    def spent(self) -> int:
        return self.turns * self.limit + self.limit - self.left

    def renew(self, nodes: int) -> bool:
        """Whether the trace may go on: the graph has grown, or nothing took a large part of the instructions."""
        self.turns, self.left, self.nodes = self.turns + 1, self.limit, nodes
        return self.turns < MAX_TURNS

    def grew(self, nodes: int) -> bool:
        return nodes - self.nodes >= NODES

    def is_long(self, since: int) -> bool:
        """Whether what started when `since` instructions were spent took a large part of them."""
        return self.spent - since >= self.limit // 2

    def long_loop(self, around: Mapping[int, Arrival], nodes: int) -> int | None:
        """Of the loops that the trace is in, by their heads, the one to run as it is: the outermost without a node of
        the graph, or else the innermost with few."""
        long = sorted((arrival, head) for head, arrival in around.items() if self.is_long(arrival.spent))
        for arrival, head in long:
            if arrival.nodes == nodes:
                return head
        for arrival, head in reversed(long):
            if (nodes - arrival.nodes) * self.limit < NODES * (self.spent - arrival.spent):
                return head
        return None


def longest(frames: list[Any], budget: Budget) -> Any:
    """The innermost frame that took a large part of the instructions, those it called included."""
    return next(frame for frame in reversed(frames) if frame is frames[0] or budget.is_long(frame.began))


def too_long(tx: Any) -> None:
    """The limit is reached: returns if the trace may go on."""
    budget, root, nodes = tx.budget, tx.frames[0], tx.graph.size()
    if budget.grew(nodes):
        if budget.renew(nodes):
            return
        tx.graph_break(KIND, f"{nodes:,} operations of a graph, and no end")
    frame = longest(tx.frames, budget)
    if frame is not root:
        if not our_file(frame.file):
            tx.long.functions.add(frame.code)
        tx.graph_break(KIND, f"a long call of {frame.code.co_name}()")
    around = {head: arrival for head, arrival in tx.entered.items() if root.at in tx.loops[head]}
    head = budget.long_loop(around, nodes)
    if head is None and budget.renew(nodes):
        return
    if head is not None and not tx.breaks_are_errors:
        tx.long.loops.setdefault(root.code, set()).add(head)
        raise Restart
    tx.graph_break(KIND, LOOP)
