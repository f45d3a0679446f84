"""The scheduler's heuristics as pure functions of plain numbers: size limits of a group, the order in which fusions
are tried, and when a loop is worth running in parallel."""

from __future__ import annotations

MAX_MEMBERS = 64
MAX_BUFFERS = 48
MAX_OPS = 1024
PARALLEL_MIN_WORK = 32 * 1024
MANY_RESULTS = 128  # of a product, from which on another kernel computes an operation that takes long sooner


def too_big(members: int, buffers: int, ops: int) -> bool:
    """Whether a group with this many nodes, buffers and operations would spill registers or compile too slowly."""
    return members > MAX_MEMBERS or buffers > MAX_BUFFERS or ops > MAX_OPS


def fusion_score(shared_bytes: int, produced_bytes: int, distance: int) -> tuple[int, int]:
    """Sort key of a possible fusion, greater is better: memory traffic saved, then nearness in program order."""
    return (shared_bytes + 2 * produced_bytes, -distance)


def parallel(work: int, cost: int = 1) -> bool:
    """Whether a loop of `work` points with `cost` operations each is long enough to run on several threads."""
    return work >= parallel_work(cost)


def parallel_work(cost: int) -> int:
    """The least number of points, with `cost` operations each, for which several threads are faster than one."""
    return -(-PARALLEL_MIN_WORK // max(1, cost // 16))
