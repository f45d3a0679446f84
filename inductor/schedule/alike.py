"""Repeats the scheduler's decisions for ranges of buffers that are copies of each other (`GraphIR.alike`).

Whether a buffer joins an earlier group depends on the loops and on the dependencies between what is near. When two
ranges in a row were scheduled alike, the scheduler repeats what it did for the second one: it still adds every
dependency, but asks no more which groups can be fused, and how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir.nodes import AlikeBuffers
from .node import Group, Member, Node


@dataclass(frozen=True)
class Fusion:
    """A fusion with unit `into`: of the buffer that was being placed, or of unit `of`. `group`: the result."""

    into: int
    of: int | None
    group: Group


@dataclass(frozen=True)
class Placed:
    """How a buffer was placed. `group`: it alone; None for a call. `fusions`: empty for a unit of its own."""

    group: Group | None
    fusions: list[Fusion] = field(default_factory=list)


class Decisions:
    """The decisions of one schedule, by number of the buffer."""

    def __init__(self, alike: AlikeBuffers | None) -> None:
        self._alike = alike
        self._placed: dict[int, Placed] = {}
        self._nodes: dict[int, Node] = {}
        self._numbers: dict[str, int] = {}
        self._repeats = False

    def note(self, number: int, placed: Placed, node: Node | None) -> None:
        """Note how a buffer was placed."""
        if self._alike is None:
            return
        self._placed[number] = placed
        if node is not None:
            self._nodes[number] = node
            self._numbers[node.name] = number

    def known(self, number: int, node: Node | None) -> Placed | None:
        """How to place a buffer if that is known. `node`: of its loops."""
        alike = self._alike
        if alike is None or not alike.first <= number < alike.first + alike.each * alike.count:
            return None
        k, i = divmod(number - alike.first, alike.each)
        if not i and k >= 2 and not self._repeats:
            last = range(number - alike.each, number)
            self._repeats = all(self._form(n) == self._form(n - alike.each) for n in last)
        if not self._repeats:
            return None
        if node is not None:
            self._nodes[number], self._numbers[node.name] = node, number
        before = self._placed[number - alike.each]
        group = None if before.group is None else self._moved(before.group)
        fusions = [Fusion(self._later(f.into), self._of(f.of), self._moved(f.group)) for f in before.fusions]
        return Placed(group, fusions)

    def _of(self, number: int | None) -> int | None:
        return None if number is None else self._later(number)

    def _is_near(self, number: int) -> bool:
        """Whether a number is one of the ranges, or of the range before them."""
        assert self._alike is not None
        return number >= self._alike.first - self._alike.each

    def _later(self, number: int) -> int:
        """The number of the same unit one range later."""
        assert self._alike is not None
        return number + self._alike.each if self._is_near(number) else number

    def _moved(self, group: Group) -> Group:
        """The same group one range later."""
        members = []
        for m in group.members:
            number = self._numbers[m.node.name]
            later = self._later(number)
            members.append(m if later == number else Member(self._nodes[later], m.env))
        return Group(group.outer, group.inner, members, group.fusible)

    def _form(self, number: int) -> Any:
        """How a buffer was placed, with numbers relative to its own."""
        placed = self._placed[number]

        def relative(other: int) -> Any:
            return other - number if self._is_near(other) else ("fixed", other)

        def form(group: Group | None) -> Any:
            if group is None:
                return None
            members = [(relative(self._numbers[m.node.name]), m.env) for m in group.members]
            return group.outer, group.inner, members, group.fusible

        fusions = [(relative(f.into), None if f.of is None else relative(f.of), form(f.group)) for f in placed.fusions]
        return form(placed.group), fusions
