"""Chooses the values of a C++ kernel that are computed once, before all loops, and kept in tables on the stack.

Such a value varies along the vectorized loop, is equal in all iterations of some loop around it, and takes long to
compute: an index that is checked or divided, or a transcendental function of a tensor that is broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass

from ...ir.ops import EXPENSIVE
from ...ir.size import AnySize, hint, known
from ..values import DIVISIONS, Store, Val
from .axes import Axes

MIN_REPEATS = 8  # a value is read at least so often
MAX_TABLES, MAX_ELEMENTS = 4, 16384  # of a kernel, and of a table
MAX_INDICES = 2048  # elements of a table that saves no more than checks of indices: it stays in the nearest cache
_LOCAL = ("reduction", "scan", "sort")  # computed by the loops themselves


@dataclass(frozen=True)
class Table:
    """The array `name` of a value for all points of `loops`, which are (variable, size) in nesting order."""

    name: str
    loops: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(size for _, size in self.loops)

    def place(self) -> str:
        """The C text of the address of the element at the current values of the variables."""
        text = self.loops[0][0]
        for var, size in self.loops[1:]:
            text = f"({text}) * {size} + {var}"
        return f"{self.name} + {text}"


class _Chooser:
    """`written`: the buffers that the kernel stores."""

    def __init__(self, axes: Axes, written: Set[str]) -> None:
        self.axes, self.written = axes, written
        self.sizes: dict[str, AnySize] = dict((*axes.outer, *axes.inner))
        self._found: dict[Val, tuple[frozenset[str] | None, bool]] = {}

    def facts(self, value: Val) -> tuple[frozenset[str] | None, bool]:
        """The variables that a value depends on, None if it cannot be moved; and whether it takes long to compute."""
        stack = [value]
        while stack:
            top = stack[-1]
            missing = [a for a in top.args if a not in self._found]
            if missing:
                stack.extend(missing)
            else:
                self._found[stack.pop()] = self._facts(top)
        return self._found[value]

    def _facts(self, value: Val) -> tuple[frozenset[str] | None, bool]:
        found = [self._found[a] for a in value.args]
        slow = value.op in EXPENSIVE or (value.op in DIVISIONS and value.kind in "il") or any(s for _, s in found)
        if value.op in _LOCAL or any(names is None for names, _ in found):
            return None, slow
        names = frozenset().union(*(names for names, _ in found if names is not None))
        if value.op in ("load", "masked_load"):
            buf, index, _ = value.attrs
            if buf in self.written:
                return None, slow
            names |= index.names() & self.sizes.keys()
        elif value.op == "index":
            names |= value.attrs[0].names() & self.sizes.keys()
        return names, slow

    def loops(self, value: Val) -> tuple[tuple[str, int], ...] | None:
        """The loops of the table of a value; None if it is computed where it is used."""
        names, slow = self.facts(value)
        if names is None or self.axes.vector not in names or not (slow or value.op == "wrap"):
            return None
        used = [(v, size) for v, size in self.sizes.items() if v in names]
        others = [size for v, size in self.sizes.items() if v not in names]
        if not all(known(n, ">", 0) for n in others) or math.prod(map(hint, others)) < MIN_REPEATS:
            return None
        loops = tuple((v, size) for v, size in used if type(size) is int)
        if len(loops) < len(used) or math.prod(n for _, n in loops) > (MAX_ELEMENTS if slow else MAX_INDICES):
            return None
        return loops


def chosen(axes: Axes, stores: Iterable[Store], reductions: Iterable[Val]) -> dict[Val, tuple[tuple[str, int], ...]]:
    """The values with tables, and the loops of each."""
    stores = list(stores)
    if axes.vector_outer or axes.vector is None or not axes.outer:
        return {}
    chooser = _Chooser(axes, {store.buf for store in stores})
    found: dict[Val, tuple[tuple[str, int], ...]] = {}
    stack = [v for store in stores for v in store.operands()] + [a for r in reductions for a in r.args]
    seen = set(stack)
    while stack:
        value = stack.pop()
        loops = chooser.loops(value) if value.loop else None
        if loops is not None and len(found) < MAX_TABLES:
            found[value] = loops
            continue
        new = [a for a in value.args if a not in seen]
        seen.update(new)
        stack.extend(new)
    return found
