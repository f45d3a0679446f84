"""Orders kernels and ATen calls so that communication overlaps with computation.

A functional collective is two calls: one that starts it and one that waits for its result (`wait_tensor`). In a traced
graph they follow each other. `overlapped` moves what a collective needs, and then its start, as early as possible, and
the wait to the first use of the result; what depends on no collective that is under way is computed between the two.

Collectives keep their order. Ranks may run different graphs, for example because only one of them has a graph break,
and each of them must start the collectives of a group in the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..ir.buffer import Buffer, ExternKernel
from ..ir.size import hint
from .node import Group

Item = Group | ExternKernel
# The buffers that an item reads and writes.
Accesses = Callable[[Item], tuple[set[str], set[str]]]

# Operators that start a collective. Those that are True read their argument until they are waited for; the others work
# on a copy.
_STARTS = {
    "all_reduce": False, "all_reduce_coalesced": False, "broadcast": False, "all_gather_into_tensor": True,
    "all_gather_into_tensor_coalesced": True, "reduce_scatter_tensor": True, "reduce_scatter_tensor_coalesced": True,
    "all_to_all_single": True,
}  # fmt: skip
MAX_BYTES = 256 << 20  # results of collectives that are started ahead of other work, which occupy memory meanwhile


_found: dict[object, bool] = {}  # by operator that starts a collective, once all of them are registered


def _packets() -> dict[object, bool]:
    if _found:
        return _found
    ops = getattr(torch.ops, "_c10d_functional", None)
    packets = {getattr(ops, name): flag for name, flag in _STARTS.items() if hasattr(ops, name)}
    if len(packets) == len(_STARTS):
        _found.update(packets)
    return packets


def is_start(item: Item) -> bool:
    """Whether an item starts a collective."""
    return isinstance(item, ExternKernel) and getattr(item.target, "overloadpacket", None) in _packets()


def is_wait(item: Item) -> bool:
    """Whether an item waits for a collective."""
    waits = getattr(getattr(torch.ops, "_c10d_functional", None), "wait_tensor", None)
    return isinstance(item, ExternKernel) and getattr(item.target, "overloadpacket", ...) is waits


def in_flight(items: Sequence[Item], accesses: Accesses) -> dict[int, set[str]]:
    """For each wait, by position: the buffers that its collective may read until then, although no call names them."""
    read_by: dict[str, set[str]] = {}  # by result of a start
    found: dict[int, set[str]] = {}
    packets = _packets()
    for place, item in enumerate(items):
        if is_start(item):
            assert isinstance(item, ExternKernel)
            reads, writes = accesses(item)
            held = reads if packets[item.target.overloadpacket] else set()
            read_by |= dict.fromkeys(writes, held)
        elif is_wait(item):
            found[place] = set().union(*(read_by.get(name, set()) for name in accesses(item)[0]))
    return found


def overlapped(items: Sequence[Item], accesses: Accesses) -> list[Item]:
    """The items in an order with as much work as possible between the start of each collective and its wait."""
    if not any(map(is_wait, items)):
        return list(items)
    return _Overlap(items, accesses).order()


class _Overlap:
    """`before[k]`: the items that must come before item k."""

    def __init__(self, items: Sequence[Item], accesses: Accesses) -> None:
        self.items = items
        starts = [k for k, item in enumerate(items) if is_start(item)]
        self.starts = dict.fromkeys(starts)
        self.waits = {k for k, item in enumerate(items) if is_wait(item)}
        self.before = _dependencies(items, accesses)
        for earlier, later in zip(starts, starts[1:]):
            self.before[later].add(earlier)
        self.done: dict[int, None] = {}
        self.under_way = 0  # bytes

    def order(self) -> list[Item]:
        self._not_started = list(self.starts)[::-1]
        pending = [k for k in range(len(self.items)) if k not in self.waits]
        while pending:
            blocked = self._blocked()
            self._start(blocked)
            for k in pending:
                if k not in self.done and k not in blocked and k not in self.starts:
                    self._emit(k)
                    self._start(blocked)
            pending = [k for k in pending if k not in self.done]
            if pending:  # it waits for a collective, or is a start that limited memory has delayed
                self._emit(pending[0])
        for k in sorted(self.waits):
            self._emit(k)
        return [self.items[k] for k in self.done]

    def _blocked(self) -> set[int]:
        """The items that cannot run before another wait."""
        found: set[int] = set()
        for k, before in enumerate(self.before):
            if k not in self.done and (k in self.waits or not found.isdisjoint(before)):
                found.add(k)
        return found

    def _start(self, blocked: set[int]) -> None:
        """Start collectives ahead of what precedes them, where they wait for no other and memory allows it."""
        waiting = self._not_started
        while waiting and waiting[-1] not in blocked:
            if waiting[-1] not in self.done:
                if self.under_way and self.under_way + _bytes(self.items[waiting[-1]]) > MAX_BYTES:
                    break
                self._emit(waiting[-1])
            waiting.pop()

    def _needed(self, k: int) -> list[int]:
        """The items that are not done yet and must be done before item k, itself included, in order."""
        found, stack = {k}, [k]
        while stack:
            for j in self.before[stack.pop()]:
                if j not in self.done and j not in found:
                    found.add(j)
                    stack.append(j)
        return sorted(found)

    def _emit(self, k: int) -> None:
        for j in self._needed(k) if k not in self.done else ():
            self.done[j] = None
            if j in self.waits:
                self.under_way -= _bytes(self.items[j])
            elif is_start(self.items[j]):
                self.under_way += _bytes(self.items[j])


def _bytes(item: Item) -> int:
    """The size of the results of an ATen call."""
    outputs = [x for x in item.outputs if isinstance(x, Buffer)] if isinstance(item, ExternKernel) else []
    return sum(hint(x.layout.numel) * x.dtype.itemsize for x in outputs)


def _dependencies(items: Sequence[Item], accesses: Accesses) -> list[set[int]]:
    """For each item, those that must come before it: a buffer is read after it was written, and written after it was
    read before, by collectives that are under way as well."""
    held = in_flight(items, accesses)
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    before: list[set[int]] = []
    for k, item in enumerate(items):
        reads, writes = accesses(item)
        reads = reads | held.get(k, set())
        mine = {writer[name] for name in reads | writes if name in writer}
        for name in writes:
            mine.update(readers.pop(name, ()))
            writer[name] = k
        for name in reads:
            readers.setdefault(name, []).append(k)
        before.append(mine - {k})
    return before
