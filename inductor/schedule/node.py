"""Scheduler nodes and groups. A `Node` states what a ComputedBuffer reads, writes and iterates over; a `Group` is a
set of nodes that becomes one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..ir.body import LoopBody, Op, walk
from ..ir.buffer import ComputedBuffer
from ..ir.renamed import RenamedBody
from ..ir.size import AnySize, hint, known, same
from .index import Affine, Index, from_ir, variable

_NODE = "_scheduler_node"  # the attribute of loops that holds their node


@dataclass(frozen=True)
class Access:
    """One load or store: the buffer and the index."""

    buf: str
    index: Index


@dataclass(eq=False)
class Node:
    """One loop nest. `outer` and `inner` list its loops as (variable, size); `inner` is empty unless it reduces or
    scans."""

    name: str
    body: LoopBody
    outer: list[tuple[str, AnySize]]
    inner: list[tuple[str, AnySize]]
    origins: tuple[Any, ...]
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    counted: list[Index] = field(default_factory=list)  # indices that index_expr ops compute, also in masked bodies
    partial: frozenset[str] = frozenset()  # buffers that only some points store, as a condition says
    plain: bool = True  # all its stores are assignments; only such nodes are fused
    device: torch.device = torch.device("cpu")  # where it runs

    @staticmethod
    def of(buffer: ComputedBuffer) -> Node:
        """The node of a ComputedBuffer."""
        body = buffer.body
        if isinstance(body, RenamedBody):
            return Node._renamed(buffer, body)
        return Node(
            buffer.name,
            body,
            [(v.name, v.size) for v in body.iter_vars],
            [(v.name, v.size) for v in body.reduce_vars],
            buffer.origins,
            [Access(dep.buf, from_ir(dep.index)) for dep in body.reads],
            [Access(dep.buf, from_ir(dep.index)) for dep in body.writes],
            [from_ir(op.args[0]) for op in walk(body.ops) if op.name == "index_expr"],
            frozenset(op.args[0] for op in body.ops if op.name == "store" and len(op.args) > 4),
            all(op.args[3] is None for op in body.ops if op.name == "store"),
            buffer.layout.device,
        )

    @staticmethod
    def _renamed(buffer: ComputedBuffer, body: RenamedBody) -> Node:
        """The node of a buffer whose loops are those of another one with other names."""
        known: Node | None = vars(body.template).get(_NODE)
        if known is None:  # kept with the loops, of which there are many copies
            template = ComputedBuffer(buffer.name, buffer.layout, body.template)
            known = vars(body.template)[_NODE] = Node.of(template)
        names = body.names
        reads = known.reads
        if body.positions:
            reads = [Access(a.buf, from_ir(dep.index)) for a, dep in zip(reads, body.reads)]
        partial = frozenset([names[name] for name in known.partial]) if known.partial else known.partial
        return Node(
            buffer.name, body, known.outer, known.inner, buffer.origins,
            [Access(names[a.buf], a.index) for a in reads], [Access(names[a.buf], a.index) for a in known.writes],
            known.counted, partial, known.plain, buffer.layout.device,
        )  # fmt: skip

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operations of the loops."""
        return self.body.ops

    @property
    def unnamed_ops(self) -> tuple[Op, ...]:
        """The same operations, perhaps on other buffers."""
        return self.body.template.ops if isinstance(self.body, RenamedBody) else self.body.ops


@dataclass(eq=False)
class Member:
    """A node inside a group; `env` expresses the node's variables in those of the group."""

    node: Node
    env: dict[str, Affine]
    _reads: list[Access] | None = field(default=None, init=False, repr=False)
    _writes: list[Access] | None = field(default=None, init=False, repr=False)

    def moved(self, env: Mapping[str, Affine]) -> Member:
        """The same member after the variables of the group were renamed or split as `env` says. It does not change
        otherwise, so groups may share it."""
        if all(value.is_variable(name) for name, value in env.items()):
            return self
        return Member(self.node, {v: a.substitute(env) for v, a in self.env.items()})

    def reads(self) -> list[Access]:
        """The node's reads, in the group's variables."""
        if self._reads is None:
            self._reads = [Access(a.buf, a.index.substitute(self.env)) for a in self.node.reads]
        return self._reads

    def writes(self) -> list[Access]:
        """The node's writes, in the group's variables."""
        if self._writes is None:
            self._writes = [Access(a.buf, a.index.substitute(self.env)) for a in self.node.writes]
        return self._writes

    def indices(self) -> list[Index]:
        """All indices that the node computes, for memory accesses or as values, in the group's variables."""
        own = [a.index for a in (*self.node.reads, *self.node.writes)] + self.node.counted
        return [index.substitute(self.env) for index in own]


@dataclass(eq=False)
class Group:
    """Nodes that become one kernel, which loops over `inner` for each point of `outer`. `inner` is empty if no member
    reduces or scans.

    The variables are o0, o1 ... and r0, r1 ... of sizes `outer` and `inner`.
    """

    outer: list[AnySize]
    inner: list[AnySize]
    members: list[Member]
    fusible: bool = True
    stored: set[str] = field(default_factory=set)  # written buffers that must reach memory; set by `schedule`
    # Buffers on the CPU that a group on a GPU reads: kernels get their elements as arguments. Set by `schedule`.
    by_value: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()  # buffers that it reads and no kernel of the graph writes; by `mark_settled`

    @staticmethod
    def of(node: Node) -> Group:
        """A group with one member."""
        env: dict[str, Affine] = {}
        sizes: list[list[AnySize]] = []
        for prefix, space in (("o", node.outer), ("r", node.inner)):
            kept = [(v, s) for v, s in space if not same(s, 1)]
            env |= {v: variable(f"{prefix}{i}") for i, (v, _) in enumerate(kept)}
            env |= {v: Affine() for v, s in space if same(s, 1)}
            sizes.append([s for _, s in kept])
        return Group(sizes[0], sizes[1], [Member(node, env)], node.plain)

    @property
    def reduces(self) -> bool:
        """Whether a member reduces over, or scans, more than one element."""
        return bool(self.inner)

    @property
    def multiplies(self) -> bool:
        """Whether some elements that it reads count in several results of a reduction, as in a matrix product."""
        inner = {name for name, _ in self.inner_vars()}
        outer = {name for name, size in self.outer_vars() if not same(size, 1)}
        read = (access.index.names() for m in self.members if m.node.inner for access in m.reads())
        return any(inner and inner <= names and outer - names for names in read)

    @property
    def scans(self) -> frozenset[bool]:
        """The directions of the members' scans: True for those that start at the end."""
        return frozenset(op.args[2] for m in self.members for op in walk(m.node.unnamed_ops) if op.name == "scan")

    @property
    def bounded(self) -> bool:
        """Whether a member reduces over a part of the inner points only, which depends on the outer point."""
        return any(op.name == "reduction" and len(op.args) > 2 for m in self.members for op in m.node.unnamed_ops)

    @property
    def sorts(self) -> bool:
        """Whether a member sorts rows, which one program must hold whole."""
        return any(op.name == "sort" for m in self.members for op in walk(m.node.unnamed_ops))

    @property
    def device(self) -> torch.device:
        """The device on which the members run."""
        return self.members[0].node.device

    def outer_vars(self) -> list[tuple[str, AnySize]]:
        """The outer variables and their sizes."""
        return [(f"o{i}", s) for i, s in enumerate(self.outer)]

    def inner_vars(self) -> list[tuple[str, AnySize]]:
        """The inner variables and their sizes."""
        return [(f"r{i}", s) for i, s in enumerate(self.inner)]

    def distinct(self, index: Index) -> bool:
        """Whether it is certain that no two points have the same value of `index`, and that the group does not reduce.
        """
        sizes = dict(self.outer_vars())
        if self.reduces or not isinstance(index, Affine) or index.names() - sizes.keys():
            return False
        reach: AnySize = 0
        for name, stride in sorted(index.terms, key=lambda term: hint(term[1])):
            if not known(stride, ">", reach):
                return False
            reach += stride * (sizes[name] - 1)
        return all(same(size, 1) for name, size in sizes.items() if name not in index.names())

    def work(self) -> int:
        """The number of points of the iteration space, computed with hints."""
        return math.prod(map(hint, self.outer)) * math.prod(map(hint, self.inner))

    def read_names(self) -> set[str]:
        """Buffers that a member reads."""
        return {a.buf for m in self.members for a in m.node.reads}

    def streamed_names(self) -> set[str]:
        """Buffers of which points read different elements. Reading the same number, such as a learning rate, is no
        reason to compute two results in one kernel."""
        if not self.outer and not self.inner:
            return self.read_names()
        return {a.buf for m in self.members for a in m.reads() if a.index.names()}

    def written_names(self) -> set[str]:
        """Buffers that a member writes."""
        return {a.buf for m in self.members for a in m.node.writes}
