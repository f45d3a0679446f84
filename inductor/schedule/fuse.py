"""Decides whether two groups of loop nests can become one kernel.

`fuse` finds a common iteration space and checks that no access conflicts. It returns `Fuse` with the combined group,
or `WhyNot` with the reason as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.body import walk
from ..ir.ops import EXPENSIVE
from ..ir.size import AnySize, hint, quotient, same
from . import score
from .index import Affine, refine, split_variables
from .node import Group, Member


@dataclass(frozen=True)
class Fuse:
    """The combined group."""

    group: Group


@dataclass(frozen=True)
class WhyNot:
    """Why two groups cannot be fused."""

    reason: str


def fuse(first: Group, second: Group) -> Fuse | WhyNot:
    """A group that runs `first` and then `second` at each point, if that is correct and the group is not too big.

    `first` must come earlier in the program.
    """
    if not (first.fusible and second.fusible):
        return WhyNot("a member does not store by plain assignment")
    if first.device != second.device:
        return WhyNot("they run on different devices")
    if len(first.scans | second.scans) > 1:
        return WhyNot("they scan in opposite directions")
    if _one_by_one(first, second):
        return WhyNot("operations that take long would not be computed in vectors")
    names = first.read_names() | second.read_names() | first.written_names() | second.written_names()
    ops = sum(len(m.node.unnamed_ops) for m in (*first.members, *second.members))
    if score.too_big(len(first.members) + len(second.members), len(names), ops):
        return WhyNot("the group would be too big")
    apart = first.reduces and second.reduces and not first.written_names() & second.read_names()
    reason = "different iteration spaces"
    one_loop = first.device.type == "cpu" and (first.scans or second.scans)  # of C++, in which a sum is carried along
    for outer, inner, env1, env2 in _common_spaces(first, second):
        if one_loop and len(inner) != 1:
            continue
        left = [m.moved(env1) for m in first.members]
        right = [m.moved(env2) for m in second.members]
        clash = _clash(left, right, Group(outer, inner, []))
        if clash is None and apart and first.device.type == "cpu" and _across(left, inner) != _across(right, inner):
            clash = "they read memory along different loops"
        if clash is None:
            return Fuse(Group(outer, inner, left + right))
        reason = clash
    return WhyNot(reason)


def _one_by_one(first: Group, second: Group) -> bool:
    """Whether C++ would compute operations that take long for one result of a product after the other, if `second` was
    fused: the vectors of such a kernel are along the terms of the sums."""
    if first.device.type != "cpu" or not first.reduces or second.reduces:
        return False
    results = math.prod(map(hint, first.outer))
    if second.work() != results or results < score.MANY_RESULTS or not first.multiplies:
        return False
    return any(op.name in EXPENSIVE for m in second.members for op in walk(m.node.unnamed_ops))


Space = tuple[list[AnySize], list[AnySize], dict[str, Affine], dict[str, Affine]]


def _common_spaces(a: Group, b: Group) -> Iterator[Space]:
    if a.reduces and b.reduces and (a.bounded or b.bounded):
        return
    if a.reduces and b.reduces or not (a.reduces or b.reduces):
        outer, inner = refine(a.outer, b.outer), refine(a.inner, b.inner)
        if outer is not None and inner is not None:
            yield from _renamed(a, b, outer, inner)
    elif a.reduces:
        yield from _pointwise_in(a, b)
    else:
        yield from ((o, i, eb, ea) for o, i, ea, eb in _pointwise_in(b, a))


def _named(outer: list[AnySize], inner: list[AnySize]) -> list[tuple[str, AnySize]]:
    return [(f"o{i}", s) for i, s in enumerate(outer)] + [(f"r{i}", s) for i, s in enumerate(inner)]


def _renamed(a: Group, b: Group, outer: list[AnySize], inner: list[AnySize]) -> Iterator[Space]:
    target = _named(outer, inner)
    env1 = split_variables(a.outer_vars() + a.inner_vars(), target)
    env2 = split_variables(b.outer_vars() + b.inner_vars(), target)
    if env1 is not None and env2 is not None:
        yield outer, inner, env1, env2


def _pointwise_in(red: Group, point: Group) -> Iterator[Space]:
    """Common iteration spaces of a reducing and a pointwise group.

    In the pointwise group's space the reduced dimensions may be at any position among the others.
    """
    rows = refine(red.outer, point.outer)
    if rows is not None:
        target = _named(rows, red.inner)
        env1 = split_variables(red.outer_vars() + red.inner_vars(), target)
        env2 = split_variables(point.outer_vars(), target[: len(rows)])
        if env1 is not None and env2 is not None:
            yield rows, red.inner, env1, env2
    if red.bounded:  # does not visit all points
        return
    for at in range(len(red.outer), -1, -1):
        whole = red.outer[:at] + red.inner + red.outer[at:]
        fine = refine(whole, point.outer)
        if fine is None:
            continue
        # Dimensions of `fine` that refine the reduced ones become inner; the others become outer, in order.
        spans = _spans(whole, fine)
        inner_dims = [d for k in range(at, at + len(red.inner)) for d in spans[k]]
        outer_dims = [d for k in range(len(whole)) if not at <= k < at + len(red.inner) for d in spans[k]]
        outer, inner = [fine[d] for d in outer_dims], [fine[d] for d in inner_dims]
        label = {d: f"o{i}" for i, d in enumerate(outer_dims)} | {d: f"r{i}" for i, d in enumerate(inner_dims)}
        env2 = split_variables(point.outer_vars(), [(label[d], s) for d, s in enumerate(fine)])
        env1 = split_variables(red.outer_vars() + red.inner_vars(), _named(outer, inner))
        if env1 is not None and env2 is not None:
            yield outer, inner, env1, env2


def _spans(whole: list[AnySize], fine: list[AnySize]) -> list[list[int]]:
    spans, d = [], 0
    for size in whole:
        span: list[int] = []
        left: AnySize | None = size
        while left is not None and not same(left, 1):  # `fine` refines `whole`
            span.append(d)
            left = quotient(left, fine[d])
            d += 1
        spans.append(span)
    return spans


def _clash(left: list[Member], right: list[Member], space: Group) -> str | None:
    """Why running both sides at the same point of `space` would be wrong, or None.

    The right side must read a buffer that the left writes at the same index, which must depend on the point alone. It
    must not write a buffer that the left accesses, unless each point reads there only the element that it writes
    itself: the kernel then loads before it stores.
    """
    written = {a.buf: a.index for m in left for a in m.writes()}
    partial = frozenset[str]().union(*(m.node.partial for m in left))
    names = {name for name, _ in space.outer_vars() + space.inner_vars()}
    for m in right:
        for access in m.reads():
            at = written.get(access.buf)
            if access.buf in partial:
                return f"{access.buf} is written at some points only"
            if at is not None and (at != access.index or not at.names() <= names):
                return f"{access.buf} is read at another index than it is written"
    later = {a.buf: a.index for m in right for a in m.writes()}
    if later.keys() & written.keys():
        return "a buffer is written twice"
    read = {(a.buf, a.index) for m in left for a in m.reads() if a.buf in later}
    if any(index != later[buf] or not space.distinct(index) for buf, index in read):
        return "a buffer is overwritten in place after it was read"
    if _overwrites_row(left + right, {name for name, _ in space.inner_vars()}):
        return "a row may be read again after a part of it was overwritten in place"
    return None


def _across(members: list[Member], inner: list[AnySize]) -> bool:
    """Whether the members read matrices, and none is contiguous in memory along the last of the `inner` loops, as where
    they sum over the rows of a matrix."""
    last = f"r{len(inner) - 1}"
    terms = [dict(a.index.terms) for m in members for a in m.reads() if isinstance(a.index, Affine)]
    steps = [t[last] for t in terms if last in t and any(v.startswith("o") for v in t)]
    return bool(steps) and 1 not in steps


def _overwrites_row(members: list[Member], inner: set[str]) -> bool:
    """Whether elements along the `inner` variables are written after they were read, by the same member or a later one.
    """
    read: set[str] = set()
    written: set[str] = set()
    for m in members if inner else ():
        read |= {a.buf for a in m.node.reads} - written
        now = {a.buf: a.index for a in m.writes()}
        written |= now.keys()
        if any(buf in read and index.names() & inner for buf, index in now.items()):
            return True
    return False
