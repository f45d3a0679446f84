"""Loop bodies that equal another one but for the buffers that they access, as those of equal layers of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from .body import Dep, LoopBody, Op, SubBody

_ACCESSES = ("load", "store")
# A fixed element of a buffer, and the one that takes its place.
Positions = Mapping[tuple[str, Any], int]


class RenamedBody(LoopBody):
    """`template`, with the buffer `names[name]` in the place of each buffer, and other elements of buffers at fixed
    positions. Its operations are made when they are read."""

    def __init__(self, template: LoopBody, names: Mapping[str, str], positions: Positions) -> None:
        values = vars(self)  # a frozen dataclass
        values["template"], values["names"], values["positions"] = template, names, positions
        values["iter_vars"], values["iter_sizes"] = template.iter_vars, template.iter_sizes
        values["reduce_vars"], values["reduce_sizes"] = template.reduce_vars, template.reduce_sizes

    template: LoopBody
    names: Mapping[str, str]
    positions: Positions

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The operations of the template on the other buffers."""
        return renamed_ops(self.template.ops, self.names, self.positions)

    @cached_property
    def reads(self) -> tuple[Dep, ...]:
        """As in LoopBody."""
        return self._moved(self.template.reads)

    @cached_property
    def writes(self) -> tuple[Dep, ...]:
        """As in LoopBody."""
        return self._moved(self.template.writes)

    def _moved(self, deps: Sequence[Dep]) -> tuple[Dep, ...]:
        names, positions = self.names, self.positions
        return tuple([Dep(names[dep.buf], position_of(dep.buf, dep.index, positions)) for dep in deps])


def with_names(body: LoopBody, names: Mapping[str, str]) -> LoopBody:
    """The same loops on other buffers."""
    return RenamedBody(body, names, {})


def position_of(buf: str, index: Any, positions: Positions) -> Any:
    """The index of an access to a buffer of the template, in the copy."""
    return positions.get((buf, index), index) if type(index) is int else index


def renamed_ops(ops: Sequence[Op], names: Mapping[str, str], positions: Positions) -> tuple[Op, ...]:
    """Operations on other buffers."""
    return tuple([_renamed(op, names, positions) for op in ops])


def _renamed(op: Op, names: Mapping[str, str], positions: Positions) -> Op:
    args = op.args
    if op.name in _ACCESSES:
        return Op(op.name, (names[args[0]], position_of(args[0], args[1], positions), *args[2:]), op.dtype)
    if op.name == "masked":
        args = tuple([
            SubBody(renamed_ops(arg.ops, names, positions), arg.result, arg.start) if isinstance(arg, SubBody) else arg
            for arg in args
        ])  # fmt: skip
        return Op(op.name, args, op.dtype)
    return op
