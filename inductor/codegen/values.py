"""The values that one kernel computes: the loop bodies of all members of a group merged into one DAG.

Equal values are shared. A load of a buffer that an earlier member of the group stored is replaced by the stored value,
so a buffer that is only used inside the group needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..dtypes import dtype_name
from ..errors import Unsupported
from ..ir import symbolic as ir
from ..ir.body import Op, Ref
from ..ir.ops import REDUCTIONS, SCANS
from ..ir.size import AnySize, same
from ..schedule.index import Affine, Index, add, from_ir, scale, simplified, variable
from ..schedule.node import Group, Member, Node

KIND = {
    "float32": "f", "bfloat16": "f", "float16": "f", "float64": "d", "bool": "m",
    "int64": "l", "int32": "i", "int16": "i", "int8": "i", "uint8": "i",
}  # the compute type of each dtype: f(loat) d(ouble) m(ask) i(nt32) l(ong)


DIVISIONS = ("floordiv", "truncdiv", "fmod", "remainder")  # ops that raise an error for an integer divisor of zero
DEEP = 60  # values deeper than this are emitted iteratively, after their operands, to bound the recursion
STATUS = "%status"  # pseudo-buffer: the word that a kernel sets when an index is out of bounds
COUNTERS = "%counters"  # pseudo-buffer: words that are 0 before and after each kernel


def kind_of(dtype: torch.dtype | str) -> str:
    """The compute type of a dtype. Raises Unsupported for dtypes that kernels lack, such as complex."""
    name = dtype_name(dtype)
    if name not in KIND:
        raise Unsupported(f"dtype {name}")
    return KIND[name]


@dataclass(eq=False)
class Val:
    """One value. `args` are its operands and `attrs` the other arguments of the op. `loop`: it varies along the inner
    variables.

    `phase` is the number of reductions on the longest path to it: it is computed in the loop with that number.
    """

    id: int
    op: str
    args: tuple[Val, ...]
    attrs: tuple[Any, ...]
    dtype: str
    kind: str
    loop: bool
    phase: int
    depth: int = 0  # the length of the longest path to a value without operands

    @property
    def position_of(self) -> str | None:
        """Of a reduction or scan that finds positions of extreme elements: which extreme, "max" or "min". None if it
        computes values."""
        return (SCANS if self.op == "scan" else REDUCTIONS)[self.attrs[0]].position_of


def deep_operands(
    value: Val, known: Callable[[Val], bool], operands: Callable[[Val], Sequence[Val]]
) -> Iterator[Val]:
    """The deep operands of a deep value, in an order in which emitting each needs no deep recursion.

    `known`: whether a value has been emitted; `operands`: the operands that emitting a value always reads.
    """
    stack = [value]
    while stack:
        missing = [a for a in operands(stack[-1]) if a.depth > DEEP and not known(a)]
        if missing:
            stack.extend(missing)
        elif (top := stack.pop()) is not value:
            yield top


_EXACT = ("neg", "abs", "relu", "maximum", "minimum", "where")  # ops whose result needs no rounding


def _is_exact(value: Val, dtype: str, levels: int = 4) -> bool:
    """Whether a value of kind f is certain to be representable in `dtype`, which is float16 or bfloat16."""
    if value.op in ("load", "masked_load"):
        return value.dtype == dtype
    if value.op == "as_stored":
        return value.attrs == (dtype,)
    if value.op == "to_dtype" and value.args[0].kind != "f":
        return value.args[0].kind == "m"
    if value.op == "constant":
        kind = getattr(torch, dtype)
        return value.attrs[1] in (0, 1) or torch.tensor(value.attrs[1], dtype=kind).item() == value.attrs[1]
    if not levels or value.op not in (*_EXACT, "to_dtype"):
        return False
    return all(_is_exact(arg, dtype, levels - 1) for arg in value.args if arg.kind == "f")


@dataclass(eq=False)
class Store:
    """A store that reaches memory."""

    buf: str
    index: Index
    value: Val
    mode: str
    symbols: tuple[tuple[str, Val], ...]
    loop: bool
    where: Val | None = None  # if given, only the points store at which it is true

    def operands(self) -> list[Val]:
        """The values that it needs."""
        return [self.value, *(v for _, v in self.symbols), *([] if self.where is None else [self.where])]

    @property
    def phase(self) -> int:
        """The number of the first loop in which its operands are available."""
        return max(v.phase for v in self.operands())


class Values:
    """Builds the DAG of a group. `inner` contains the inner variables (after dimensions were merged). `sizes`: of
    variables, with which divisions in indices are simplified."""

    def __init__(
        self, group: Group, renames: Mapping[str, Affine], inner: set[str], dtypes: Mapping[str, str],
        sizes: Mapping[str, AnySize] | None = None,
    ) -> None:  # fmt: skip
        self.inner, self.dtypes, self.renames, self.by_value = inner, dtypes, renames, group.by_value
        self.settled = group.settled
        self.sizes = sizes or {}
        self.table: dict[Any, Val] = {}
        self.stores: list[Store] = []
        self.reductions: list[Val] = []
        self.folded = False  # whether an index with variables is here a constant other than 0
        self.known: dict[str, Val] = {}  # the value that each buffer written by an earlier member holds
        for member in group.members:
            self._member(member, group.stored)

    def make(self, op: str, args: tuple[Val, ...], attrs: tuple[Any, ...], dtype: torch.dtype | str,
             loop: bool = False) -> Val:
        """The value of an op; an existing one if it is equal."""
        key = (op, tuple(a.id for a in args), attrs, dtype_name(dtype))
        if key not in self.table:
            reduces = op == "reduction"
            phase = max((a.phase for a in args), default=0) + reduces
            loop = not reduces and (loop or any(a.loop for a in args))
            name = dtype_name(dtype)
            depth = 1 + max((a.depth for a in args), default=0)
            self.table[key] = Val(len(self.table), op, args, attrs, name, kind_of(name), loop, phase, depth)
            if reduces:
                self.reductions.append(self.table[key])
        return self.table[key]

    def overwrites_loads(self) -> bool:
        """Whether there are several stores and one of them writes a buffer that is also loaded. All loads must then
        come before the first store."""
        written = {store.buf for store in self.stores}
        return len(self.stores) > 1 and any(
            value.op in ("load", "masked_load") and value.attrs[0] in written for value in self.table.values()
        )

    def _member(self, member: Member, stored: set[str]) -> None:
        env = {v: a.substitute(self.renames) for v, a in member.env.items()}
        _Member(self, member.node, env, stored).run(member.node.ops, [], None)


class _Member:
    """Converts the ops of one member to values."""

    def __init__(self, out: Values, node: Node, env: Mapping[str, Affine], stored: set[str]) -> None:
        self.out, self.node, self.env, self.stored = out, node, env, stored
        self.symbols: dict[str, Val] = {}

    def run(self, ops: Sequence[Op], values: list[Any], mask: Val | None) -> list[Any]:
        """Appends the results of `ops` to `values`. Loads are executed only where `mask` is true."""
        for op in ops:
            args = [values[a.i] if isinstance(a, Ref) else a for a in op.args]
            values.append(self._op(op, args, values, mask))
        return values

    def _op(self, op: Op, args: list[Any], values: list[Any], mask: Val | None) -> Any:
        make = self.out.make
        match op.name:
            case "load":
                return self._load(args[0], *self._index(args[1]), mask)
            case "store":
                return self._store(args[0], *self._index(args[1]), args[2], args[3] or "assign", *args[4:])
            case "reduction":
                return self._reduction(args[0], args[1:], op.dtype)
            case "scan":
                return self._scan(args[0], args[1], args[2], op.dtype)
            case "sort":
                return make("sort", (args[1],), (args[0], *args[2:]), op.dtype, loop=True)
            case "constant":
                return make("constant", (), (repr(args[0]), args[0]), op.dtype)
            case "index_expr":
                index, used = self._index(args[0])
                varies = bool(index.names() & self.out.inner)
                return make("index", tuple(v for _, v in used), (index, tuple(n for n, _ in used)), op.dtype, varies)
            case "indirect":
                value, sym, *limits = args
                masks = () if mask is None else (mask,)
                self.symbols[sym.name] = make("wrap", (value, *masks), tuple(limits), torch.int64)
                return self.symbols[sym.name]
            case "masked":
                return self._masked(op, args, values, mask)
            case "as_stored":
                value, dtype = args
                return value if _is_exact(value, dtype) else make("as_stored", (value,), (dtype,), op.dtype)
        zero = op.name in DIVISIONS and args[1].kind in "il" and not (args[1].op == "constant" and args[1].attrs[1])
        if zero and mask is not None:  # a masked zero is not an error
            one = make("constant", (), ("1", 1), args[1].dtype)
            args = [args[0], make("where", (mask, args[1], one), (), args[1].dtype)]
        return make(op.name, tuple(args), (), op.dtype)

    def _index(self, expr: ir.Index) -> tuple[Index, tuple[tuple[str, Val], ...]]:
        index: Index = from_ir(expr).substitute(self.env)
        if self.out.sizes:
            index = simplified(index, self.out.sizes)
        if type(expr) is not int and not index.names() and not (type(index.const) is int and index.const == 0):
            self.out.folded = True
        return index, tuple((n, self.symbols[n]) for n in sorted(index.names() & self.symbols.keys()))

    def _load(self, buf: str, index: Index, used: tuple[tuple[str, Val], ...], mask: Val | None) -> Val:
        known = self.out.known.get(buf)
        if known is not None:
            return known
        args = tuple(v for _, v in used) if mask is None else (mask, *(v for _, v in used))
        attrs = (buf, index, tuple(n for n, _ in used))
        varies = bool(index.names() & self.out.inner)
        return self.out.make("load" if mask is None else "masked_load", args, attrs, self.out.dtypes[buf], varies)

    def _masked(self, op: Op, args: list[Any], values: list[Any], mask: Val | None) -> Val:
        inner, sub, other = args
        if mask is not None:
            inner = self.out.make("logical_and", (mask, inner), (), torch.bool)
        own = values[: sub.start - 1] + [None] * (sub.start - len(values))
        result = self.run(sub.ops, own, inner)[sub.result.i]
        constant = self.out.make("constant", (), (repr(other), other), op.dtype)
        return self.out.make("where", (args[0], result, constant), (), op.dtype)

    def _store(
        self, buf: str, index: Index, used: tuple[tuple[str, Val], ...], value: Val, mode: str, where: Val | None = None
    ) -> None:
        target = self.out.dtypes[buf]
        if kind_of(target) != value.kind:
            value = self.out.make("to_dtype", (value,), (), target)
        if buf in self.stored or mode != "assign":
            loop = bool(index.names() & self.out.inner) or value.loop or any(v.loop for _, v in used)
            loop = loop or (where is not None and where.loop)
            self.out.stores.append(Store(buf, index, value, mode, used, loop, where))
        self.out.known[buf] = value

    def _position(self) -> Affine:
        """The position in the flattened reduction space."""
        position = Affine()
        stride: AnySize = 1
        for var, size in reversed(self.node.inner):
            position = add(position, scale(self.env.get(var, variable(var)), stride))
            stride *= size
        return position

    def _scan(self, kind: str, value: Val, reverse: bool, dtype: torch.dtype) -> Val:
        attrs = (kind, reverse) if SCANS[kind].position_of is None else (kind, reverse, self._position())
        return self.out.make("scan", (value,), attrs, dtype, loop=True)

    def _reduction(self, kind: str, args: Sequence[Val], dtype: torch.dtype) -> Val:
        """`args`: the value, and the bounds if there are any."""
        if self.node.inner and all(same(size, 1) for _, size in self.node.inner):
            raise AssertionError(f"{self.node.name} reduces over one element: its lowering should not have")
        if kind not in REDUCTIONS:
            raise Unsupported(f"reduction {kind}")
        attrs = (kind,) if REDUCTIONS[kind].position_of is None else (kind, self._position())
        value = self.out.make("reduction", tuple(args), attrs, dtype)
        # Integers of fewer than 32 bits are added up in 32 bits. Conversion to their own dtype wraps the result around.
        wraps = kind in ("sum", "prod") and value.kind == "i" and dtype != torch.int32
        return self.out.make("to_dtype", (value,), (), dtype) if wraps else value
