"""The values of one kernel: every member's loop body merged into one hash-consed DAG.

Buffers that stay inside the group turn into edges here: a load of what an earlier member stored is that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..schedule.index import Affine, Index, Opaque, add, read, scale, variable
from ..schedule.node import Group, Member

KIND = {
    "float32": "f", "bfloat16": "f", "float16": "f", "float64": "d", "bool": "m",
    "int64": "l", "int32": "i", "int16": "i", "int8": "i", "uint8": "i",
}  # compute type of a dtype: f(loat) d(ouble) m(ask) i(nt32) l(ong)


class Unsupported(Exception):
    """Code generation has no form for this op or dtype; the message names it."""


def dtype_text(dtype: Any) -> str:
    """ "float32" for torch.float32 (or for that text)."""
    return str(dtype).removeprefix("torch.")


def kind_of(dtype: Any) -> str:
    """The compute type of a dtype. Unsupported for complex and the like."""
    name = dtype_text(dtype)
    if name not in KIND:
        raise Unsupported(f"dtype {name}")
    return KIND[name]


@dataclass(eq=False)
class Val:
    """One value. `args` are Vals; `attrs` whatever else the op needs. `loop`: varies along the inner variables.

    `phase` counts the reductions that must be complete before it: it is computed in the loop of that number.
    """

    id: int
    op: str
    args: tuple[Val, ...]
    attrs: tuple[Any, ...]
    dtype: str
    kind: str
    loop: bool
    phase: int


@dataclass(eq=False)
class Store:
    """A store that reaches memory."""

    buf: str
    index: Index
    value: Val
    mode: str
    symbols: tuple[tuple[str, Val], ...]
    loop: bool

    @property
    def phase(self) -> int:
        """The loop in which all it needs is known."""
        return max([self.value.phase, *(v.phase for _, v in self.symbols)])


class Values:
    """Builds the DAG of a group. `inner` names the inner variables (after merging of dimensions)."""

    def __init__(self, group: Group, renames: Mapping[str, Affine], inner: set[str], dtypes: Mapping[str, str]) -> None:
        self.inner, self.dtypes, self.renames = inner, dtypes, renames
        self.table: dict[Any, Val] = {}
        self.stores: list[Store] = []
        self.reductions: list[Val] = []
        self._known: dict[str, Val] = {}
        for member in group.members:
            self._member(member, group.stored)

    def make(self, op: str, args: tuple[Val, ...], attrs: tuple[Any, ...], dtype: Any, loop: bool = False) -> Val:
        """The value of an op, shared with any equal one."""
        key = (op, tuple(a.id for a in args), attrs, dtype_text(dtype))
        if key not in self.table:
            reduces = op == "reduction"
            phase = max((a.phase for a in args), default=0) + reduces
            loop = not reduces and (loop or any(a.loop for a in args))
            name = dtype_text(dtype)
            self.table[key] = Val(len(self.table), op, args, attrs, name, kind_of(name), loop, phase)
            if reduces:
                self.reductions.append(self.table[key])
        return self.table[key]

    def _member(self, member: Member, stored: set[str]) -> None:
        env = {v: a.substitute(self.renames) for v, a in member.env.items()}
        node = member.node
        values: list[Any] = []
        symbols: dict[str, Val] = {}

        def index_of(expr: Any) -> tuple[Index, tuple[tuple[str, Val], ...]]:
            index = read(expr).substitute(env)
            return index, tuple((n, symbols[n]) for n in sorted(index.names() & symbols.keys()))

        def value(arg: Any) -> Val:
            return values[ref_number(arg)]

        for position, op in enumerate(node.ops):
            out: Any = None
            if op.name == "load":
                out = self._load(op, *index_of(op.args[1]))
            elif op.name == "store":
                index, used = index_of(op.args[1])
                mode = (op.args[3] if len(op.args) > 3 else None) or "assign"
                self._store(op.args[0], index, value(op.args[2]), mode, used, stored)
            elif op.name == "reduction":
                out = self._reduction(op, value, node.inner, env)
            elif op.name == "constant":
                out = self.make("constant", (), (_hashable(op.args[0]),), op.dtype)
            elif op.name == "index_expr":
                index, used = index_of(op.args[0])
                out = self.make("index", tuple(v for _, v in used), (index, tuple(n for n, _ in used)), op.dtype,
                                bool(index.names() & self.inner))
            elif op.name == "indirect":
                symbols[symbol_name(op, position)] = value(op.args[0])
            else:
                refs = tuple(value(a) for a in op.args if is_ref(a))
                attrs = tuple(_hashable(a) for a in op.args if not is_ref(a))
                out = self.make(op.name, refs, attrs, op.dtype)
            values.append(out)

    def _load(self, op: Any, index: Index, used: tuple[tuple[str, Val], ...]) -> Val:
        buf = op.args[0]
        if buf in self._known:
            return self._known[buf]
        attrs = (buf, index, tuple(n for n, _ in used))
        return self.make("load", tuple(v for _, v in used), attrs, self.dtypes[buf], bool(index.names() & self.inner))

    def _store(self, buf: str, index: Index, value: Val, mode: str, used: tuple[tuple[str, Val], ...],
               stored: set[str]) -> None:
        target = self.dtypes[buf]
        if kind_of(target) != value.kind:
            value = self.make("to_dtype", (value,), (target,), target)
        if buf in stored or mode != "assign":
            loop = bool(index.names() & self.inner) or value.loop or any(v.loop for _, v in used)
            self.stores.append(Store(buf, index, value, mode, used, loop))
        self._known[buf] = value

    def _reduction(self, op: Any, value: Any, inner: list[tuple[str, int]], env: Mapping[str, Affine]) -> Val:
        reduce_kind = next(a for a in op.args if isinstance(a, str))
        arg = value(next(a for a in reversed(op.args) if is_ref(a)))
        position, stride = Affine(), 1
        for var, size in reversed(inner):
            position = add(position, scale(env.get(var, variable(var)), stride))
            stride *= size
        attrs = (reduce_kind, position) if reduce_kind.startswith("arg") else (reduce_kind,)
        return self.make("reduction", (arg,), attrs, op.dtype)


def is_ref(arg: Any) -> bool:
    """Whether an op's argument names an earlier value of the body."""
    return type(arg).__name__ == "Ref"


def ref_number(arg: Any) -> int:
    """The position that a Ref names."""
    for field in ("index", "i", "id", "n"):
        if hasattr(arg, field) and not callable(getattr(arg, field)):
            return getattr(arg, field)
    return int(arg)


def symbol_name(op: Any, position: int) -> str:
    """The name under which indices use the result of an `indirect` op."""
    return next((a for a in op.args if isinstance(a, str)), f"indirect{position}")


def _hashable(x: Any) -> Any:
    return tuple(map(_hashable, x)) if isinstance(x, list) else x


def opaque_names(index: Index) -> set[str]:
    """Variables whose role in the index is not known."""
    return index.names() if isinstance(index, Opaque) else set()
