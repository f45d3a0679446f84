"""Keys of groups: two groups with equal keys have the same kernels, which differ only in the names of their buffers.

A network of equal layers has the same few groups again and again. Their kernels are generated once, from the first
group with a key; a later one only passes other buffers (`Source.kernel`, `TritonSource.group`).

Groups may also read other elements of a buffer at fixed positions: all random numbers of a graph for a GPU have their
seeds in one tensor, so that each layer reads other ones. Kernels for a GPU take such positions as arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..ir.body import LoopBody, Op, Ref, SubBody
from ..ir.renamed import RenamedBody, position_of
from ..ir.size import Size
from ..ir.symbolic import Expr
from ..schedule.index import Affine
from ..schedule.node import Group, Member
from .emitter import HostNumber

_ACCESSES = ("load", "store")  # ops whose first argument is the name of a buffer
_LOOPS = "_key_of_loops"  # the attribute of loops that holds their `_Loops`
_WITH_VALUE = ("constant", "masked")  # ops with an argument that is a number of the program


# An argument of a kernel: the number of a buffer, with the position of an element if that is passed by value; or the
# name of memory that is none of the group's buffers
Numbered: TypeAlias = int | tuple[int, int] | str


LARGEST_POSITION = 2**31 - 1  # kernels take positions as 32-bit integers
Position: TypeAlias = tuple[str, int]  # a buffer, and a fixed element of it that is not its first


class _Varying(Exception):
    """The group has a symbolic size: whether two of them are equal may be an assumption."""


@dataclass(frozen=True)
class GroupKey:
    """`key`: all that code generation reads of a group, with numbers in place of the names of buffers and of fixed
    positions in them. `names`: the buffers by number. `positions`: the positions by number."""

    key: tuple[Any, ...]
    names: tuple[str, ...]
    positions: tuple[Position, ...] = ()

    @property
    def exact(self) -> tuple[Any, ...]:
        """A key of groups that also read and write the same elements at fixed positions."""
        return self.key, tuple([element for _, element in self.positions])

    def numbered(self, bufs: Sequence[str | HostNumber]) -> tuple[Numbered, ...]:
        """Arguments of a kernel, with numbers in place of the names of the group's buffers."""
        number = {name: n for n, name in enumerate(self.names)}
        return tuple([
            (number[b.buf], b.position) if isinstance(b, HostNumber) else number.get(b, b) for b in bufs
        ])  # fmt: skip

    def named(self, numbered: Sequence[Numbered]) -> list[Any]:
        """The arguments that these are for the buffers of this group."""
        names = self.names
        return [
            HostNumber(names[b[0]], b[1]) if isinstance(b, tuple) else b if isinstance(b, str) else names[b]
            for b in numbered
        ]


def group_key(group: Group, dtypes: Mapping[str, str], unaligned: Collection[str] = ()) -> GroupKey | None:
    """The key of a group of loops. `dtypes`: of the elements of all buffers; `unaligned`: buffers whose addresses need
    not be multiples of 16 bytes. None for another kind of group, and for sizes that are not numbers."""
    if type(group) is not Group:
        return None
    numbers = _Numbers(group.by_value)
    try:
        space = _all_known((*group.outer, *group.inner))
        members = tuple([_member(member, numbers) for member in group.members])
    except _Varying:
        return None
    buffers = tuple([
        (dtypes[name], name in group.stored, name in group.by_value, name in group.settled, name in unaligned)
        for name in numbers.buffers
    ])  # fmt: skip
    key = len(group.outer), space, group.fusible, members, buffers
    return GroupKey(key, tuple(numbers.buffers), tuple(numbers.positions))


class _Numbers:
    """The buffers and the fixed positions of a group, or of the loops of a member, in the order in which they are used.
    `by_value`: the buffers of which kernels take elements, not the address."""

    def __init__(self, by_value: Collection[str] = ()) -> None:
        self.buffers: dict[str, int] = {}
        self.positions: dict[Position, int] = {}
        self.by_value = by_value

    def of_access(self, buf: str, index: Any) -> tuple[Any, ...]:
        """What a key holds of an access to an element of a buffer."""
        number = self.of_buffer(buf)
        if type(index) is not int or not 0 < index <= LARGEST_POSITION or buf in self.by_value:
            return number, index
        return number, "at", self.of_position((buf, index))

    def of_buffer(self, buf: str) -> int:
        """The number of a buffer."""
        return self.buffers.setdefault(buf, len(self.buffers))

    def of_position(self, position: Position) -> int:
        """The number of a fixed position."""
        return self.positions.setdefault(position, len(self.positions))


class _Hashed:
    """A part of keys whose hash is computed once."""

    def __init__(self, key: tuple[Any, ...]) -> None:
        self._key, self._hash = key, hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Hashed) and self._hash == other._hash and self._key == other._key)


@dataclass(frozen=True)
class _Loops:
    """`key`: the operations of loops, with numbers in place of the names of `buffers` and of `positions` in them."""

    key: _Hashed
    buffers: tuple[str, ...]
    positions: tuple[Position, ...]


def _loops(body: LoopBody) -> _Loops:
    """The operations of loops whose buffers are all in memory of the device. Those of copies are found once."""
    if isinstance(body, RenamedBody):
        of = _loops(body.template)
        names, moved = body.names, body.positions
        positions = [(names[buf], position_of(buf, index, moved)) for buf, index in of.positions]
        if len(set(positions)) == len(positions) and all(0 < index <= LARGEST_POSITION for _, index in positions):
            return _Loops(of.key, tuple([names[buf] for buf in of.buffers]), tuple(positions))
        numbers = _Numbers()
        return _Loops(_Hashed(_ops(body.ops, numbers)), tuple(numbers.buffers), tuple(numbers.positions))
    found: _Loops | None = vars(body).get(_LOOPS)
    if found is None:
        numbers = _Numbers()
        key = _Hashed(_ops(body.ops, numbers))
        found = vars(body)[_LOOPS] = _Loops(key, tuple(numbers.buffers), tuple(numbers.positions))
    return found


def _all_known(sizes: Sequence[Any]) -> tuple[Any, ...]:
    for size in sizes:
        if type(size) is Size:
            raise _Varying
    return tuple(sizes)


def _member(member: Member, numbers: _Numbers) -> tuple[Any, ...]:
    node = member.node
    loops = tuple([*node.outer, ("", len(node.outer)), *node.inner])
    _all_known([size for _, size in loops])
    env = tuple([(name, _affine(index)) for name, index in member.env.items()])
    if numbers.by_value:
        return loops, env, node.plain, node.device, _ops(node.ops, numbers)
    ops = _loops(node.body)
    buffers = tuple([numbers.of_buffer(buf) for buf in ops.buffers])
    return loops, env, node.plain, node.device, ops.key, buffers, tuple(map(numbers.of_position, ops.positions))


def _affine(index: Affine) -> Affine:
    _all_known([index.const, *[coef for _, coef in index.terms]])
    return index


def _ops(ops: Sequence[Op], numbers: _Numbers) -> tuple[Any, ...]:
    return tuple([_op(op, numbers) for op in ops])


def _op(op: Op, numbers: _Numbers) -> tuple[Any, ...]:
    args: Any = op.args
    for arg in args:
        cls = type(arg)
        if cls is Ref or cls is str:
            continue
        if cls is Size or (cls is Expr and not arg.is_static):
            raise _Varying
    if op.name in _ACCESSES:
        args = (numbers.of_access(args[0], args[1]), *args[2:])
    elif op.name in _WITH_VALUE:  # 1, 1.0 and True are equal, as are 0.0 and -0.0
        args = tuple([_sub_body(arg, numbers) if isinstance(arg, SubBody) else repr(arg) for arg in args])
    return op.name, args, op.dtype


def _sub_body(body: SubBody, numbers: _Numbers) -> tuple[Any, ...]:
    return _ops(body.ops, numbers), body.result, body.start
