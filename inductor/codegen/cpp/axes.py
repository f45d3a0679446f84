"""Chooses the loops of a C++ kernel: merges dimensions where every index allows it and picks the vectorized loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...ir.size import AnySize, hint, same
from ...schedule.index import Affine, Compound, FloorDiv, Index, Mod, add, scale, simplified, variable
from ...schedule.node import Group

_SHUFFLED = {2: 0.5, -1: 0.25}  # strides of vectors that are loaded and shuffled, and their cost
SHORT_ROW, SHORT_ROW_COST = 8, 2  # a row of fewer elements leaves most lanes empty; in the unit of `_misses`
MIN_PART = 8  # a dimension is divided into parts of at least so many elements


@dataclass(frozen=True)
class Axes:
    """The loops in nesting order as (variable, size). `vector` is the vectorized variable: the last of `inner`, or of
    `outer` if `vector_outer`; None for a kernel without loops. `renames` expresses the group's variables in these."""

    outer: tuple[tuple[str, AnySize], ...]
    inner: tuple[tuple[str, AnySize], ...]
    vector: str | None
    vector_outer: bool
    renames: dict[str, Affine]
    across: str | None = None  # an outer variable along which an access is contiguous that is strided along `vector`

    def variables(self) -> set[str]:
        """All variables of the loops that have more than one value."""
        return {v for v, size in (*self.outer, *self.inner) if not same(size, 1)}


def plan_axes(group: Group) -> Axes:
    """The loops of a group."""
    indices = [index for m in group.members for index in m.indices()]
    renames: dict[str, Affine] = {}
    outer = split(group.outer_vars(), indices, renames)
    inner = group.inner_vars() if group.scans else split(group.inner_vars(), indices, renames)
    indices = [simplified(i.substitute(renames), dict((*outer, *inner))) for i in indices]
    outer = merge(outer, indices, renames)
    inner = merge(inner, indices, renames)
    indices = [i.substitute(renames) for i in indices]
    if not group.reduces:
        if not outer:
            return Axes((), (), None, False, renames)
        best = min(outer, key=lambda v: (_misses(v, indices), -outer.index(v)))
        rest = [v for v in outer if v != best]
        return Axes(tuple(rest), (best,), best[0], False, renames, _across(best, rest, indices))
    best_in = min(inner, key=lambda v: (_misses(v, indices), -inner.index(v)))
    best_out = min(outer, key=lambda v: (_misses(v, indices), -outer.index(v))) if outer else None
    short = SHORT_ROW_COST * (math.prod(hint(size) for _, size in inner) < SHORT_ROW)
    columns = best_out is not None and hint(best_out[1]) >= 4 and not group.scans
    if best_out is not None and columns and _misses(best_out, indices) < _misses(best_in, indices) + short:
        return Axes((*(v for v in outer if v != best_out), best_out), tuple(inner), best_out[0], True, renames)
    return Axes(tuple(outer), (*(v for v in inner if v != best_in), best_in), best_in[0], False, renames)


def _across(vector: tuple[str, AnySize], outer: list[tuple[str, AnySize]], indices: list[Index]) -> str | None:
    for index in indices:
        if isinstance(index, Affine) and not steps(index, vector[0]):
            for name, size in outer:
                if same(index.coef(name), 1) and hint(size) >= 16 and hint(vector[1]) >= 16:
                    return name
    return None


def steps(index: Affine, name: str) -> bool:
    """Whether the stride of an index along a variable is 0 or 1."""
    coef = index.coef(name)
    return same(coef, 0) or same(coef, 1)


def _misses(var: tuple[str, AnySize], indices: Iterable[Index]) -> float:
    """The cost of vectorizing along a variable: accesses with a stride other than 0 or 1 count most, those with a
    stride of 2 (parts of complex numbers) or -1 less; fewer than 4 elements, and no access that depends on the
    variable, count against it too."""
    name, size = var
    bad = 0.0
    for i in indices:
        coef = i.coef(name)
        if coef is None or not (same(coef, 0) or same(coef, 1)):
            bad += _SHUFFLED.get(coef, 1) if type(coef) is int else 1
    constant = all(name not in i.names() for i in indices)
    return 2 * bad + (hint(size) < 4) + constant


def split(
    dims: list[tuple[str, AnySize]], indices: list[Index], renames: dict[str, Affine]
) -> list[tuple[str, AnySize]]:
    """`dims` in which a dimension of which only the quotient and the remainder by one number occur in some index, as in
    a tensor that is read in another shape, is two: then the index has strides along both. Updates `renames`."""
    out: list[tuple[str, AnySize]] = []
    for name, size in dims:
        divisors = {d for index in indices if isinstance(index, Compound) for d in _divisors(index, name)}
        divisor = divisors.pop() if len(divisors) == 1 else None
        if type(divisor) is int and type(size) is int and MIN_PART <= divisor < size and size % divisor == 0:
            renames[name] = add(scale(variable(f"{name}q"), divisor), variable(name + "r"))
            out += [(f"{name}q", size // divisor), (f"{name}r", divisor)]
        else:
            out.append((name, size))
    return out


def _divisors(index: Compound, name: str) -> Iterator[AnySize]:
    """The divisors of a variable in an index."""
    for operand, _ in index.terms:
        if isinstance(operand, FloorDiv | Mod):
            if simplified(operand.base, {}) == variable(name):
                yield operand.divisor
            yield from _divisors(operand.base, name)


def merge(
    dims: list[tuple[str, AnySize]], indices: list[Index], renames: dict[str, Affine]
) -> list[tuple[str, AnySize]]:
    """`dims` with adjacent dimensions merged where every index has matching strides. Updates `renames` accordingly."""
    out: list[tuple[str, AnySize]] = []
    for name, size in dims:
        if out and all(_contiguous(out[-1][0], name, size, i) for i in indices):
            before, extent = out.pop()
            renames[before] = Affine()
            for var, value in renames.items():
                if before in value.names():
                    renames[var] = value.substitute({before: Affine()})
            out.append((name, extent * size))
        else:
            out.append((name, size))
    return out


def _contiguous(a: str, b: str, size: AnySize, index: Index) -> bool:
    if not isinstance(index, Affine):
        return not index.names() & {a, b}
    return same(index.coef(a), index.coef(b) * size)
