"""Index expressions of the scheduler and of code generation, over the variables of a group of loop nests.

An index without a floor division or a modulus is an `Affine`, whose coefficients the scheduler compares. Any other
index is a `Compound`: a sum whose operands may be divisions. Unlike the expressions of the loop IR
(`ir/symbolic.py`), variables have no ranges here, and a substitution keeps the structure of a Compound.
`codegen/printer.py` turns indices into text.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

from ..ir.size import AnySize, Size, quotient, same
from ..ir.symbolic import Expr, Sym
from ..ir.symbolic import FloorDiv as IRFloorDiv
from ..ir.symbolic import Index as IRIndex
from .interval import Bounds, Intervals


@dataclass(frozen=True)
class Affine:
    """`const + sum(coefficient * variable)`, sorted by variable name and without zero coefficients."""

    terms: tuple[tuple[str, AnySize], ...] = ()
    const: AnySize = 0

    def coef(self, var: str) -> AnySize:
        """The coefficient of `var`; 0 if it does not occur."""
        return next((c for v, c in self.terms if v == var), 0)

    def names(self) -> frozenset[str]:
        """The variables that occur."""
        return frozenset([v for v, _ in self.terms])

    def is_variable(self, name: str) -> bool:
        """Whether it is certain to be this variable."""
        return len(self.terms) == 1 and self.terms[0][0] == name and same(self.terms[0][1], 1) and same(self.const, 0)

    def substitute(self, env: Mapping[str, Affine]) -> Affine:
        """The index with each variable that is in `env` replaced by its value there."""
        terms: dict[str, AnySize] = {}
        const = self.const
        for var, coef in self.terms:
            value = env.get(var)
            if value is None:
                terms[var] = terms.get(var, 0) + coef
                continue
            for name, factor in value.terms:
                terms[name] = terms.get(name, 0) + factor * coef
            const = const + value.const * coef
        return _affine(terms, const)

    def bounds(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Lower and upper bound, given the range of each variable. Each range must start at 0."""
        low = high = self.const
        for name, coef in self.terms:
            reach = coef * max(ranges[name][1], 0)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def span(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Lower and upper bound of the index and of all intermediate results when it is computed."""
        return self.bounds(ranges)


@dataclass(frozen=True, eq=False)
class Compound:
    """`const + sum(coefficient * operand)`. Operands are variables, Affine values that have replaced a variable, and
    divisions of other Compounds. Two are equal only if they have the same structure."""

    terms: tuple[tuple[Operand, AnySize], ...]
    const: AnySize = 0

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return (*((_key(x), _key(c)) for x, c in self.terms), _key(self.const))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compound) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset().union(*((x,) if isinstance(x, str) else x.names() for x, _ in self.terms))

    def names(self) -> frozenset[str]:
        """The variables that occur."""
        return self._names

    def coef(self, var: str) -> AnySize | None:
        """The coefficient of `var`, 0 if it does not occur; None if it occurs in a division."""
        total: AnySize = 0
        for operand, coef in self.terms:
            if isinstance(operand, Affine):
                total = total + coef * operand.coef(var)
            elif operand == var:
                total = total + coef
            elif not isinstance(operand, str) and var in operand.names():
                return None
        return total

    def substitute(self, env: Mapping[str, Affine]) -> Compound:
        """The index with each variable that is in `env` replaced by its value there."""
        if self._names.isdisjoint(env):
            return self
        return Compound(
            tuple((env.get(x, x) if isinstance(x, str) else x.substitute(env), c) for x, c in self.terms), self.const
        )

    def span(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Lower and upper bound of the index and of all intermediate results when it is computed.

        `ranges` has the range of each variable, and of size symbols whose values are known to be below a bound.
        """
        intervals = Intervals(ranges)
        self.interval(intervals)
        return intervals.low, intervals.high

    def interval(self, intervals: Intervals) -> Bounds:
        """Lower and upper bound; those of intermediate results are added to `intervals`."""
        total: Bounds | None = None
        for operand, coef in self.terms:
            term = None if same(coef, 1) else intervals.size(coef)
            if isinstance(operand, str):
                value = intervals.seen(intervals.ranges[operand])
            elif isinstance(operand, Affine):
                value = intervals.seen(operand.bounds(intervals.ranges))
            else:
                value = operand.interval(intervals)
            value = value if term is None else intervals.product(term, value)
            total = value if total is None else intervals.sum(total, value)
        assert total is not None  # a Compound has at least one term
        return total if same(self.const, 0) else intervals.sum(total, intervals.size(self.const))


@dataclass(frozen=True, eq=False)
class _Division:
    """A division of a nonnegative `base` by a positive `divisor`."""

    base: Compound
    divisor: AnySize

    def names(self) -> frozenset[str]:
        """The variables that occur."""
        return self.base.names()

    def substitute(self, env: Mapping[str, Affine]) -> Self:
        """The same division of the base after the substitution."""
        return type(self)(self.base.substitute(env), self.divisor)


class FloorDiv(_Division):
    """`base // divisor`."""

    def interval(self, intervals: Intervals) -> Bounds:
        """Lower and upper bound; those of intermediate results are added to `intervals`."""
        return intervals.floordiv(self.base.interval(intervals), intervals.size(self.divisor))


class Mod(_Division):
    """`base % divisor`."""

    def interval(self, intervals: Intervals) -> Bounds:
        """Lower and upper bound; those of intermediate results are added to `intervals`."""
        return intervals.mod(self.base.interval(intervals), intervals.size(self.divisor))


Operand: TypeAlias = str | Affine | FloorDiv | Mod
Index: TypeAlias = Affine | Compound


def _key(x: Operand | AnySize) -> Any:
    """A key that is equal for operands and sizes of equal structure. (`==` of Sizes may record an assumption.)"""
    if isinstance(x, _Division):
        return type(x), x.base._key, _key(x.divisor)
    if isinstance(x, Affine):
        return (*((v, _key(c)) for v, c in x.terms), _key(x.const))
    return x.terms if isinstance(x, Size) else x


def add(a: Affine, b: Affine) -> Affine:
    """The sum."""
    terms = dict(a.terms)
    for var, coef in b.terms:
        terms[var] = terms.get(var, 0) + coef
    return _affine(terms, a.const + b.const)


def _affine(terms: Mapping[str, AnySize], const: AnySize) -> Affine:
    items = sorted(terms.items()) if len(terms) > 1 else terms.items()
    return Affine(tuple([(v, c) for v, c in items if not same(c, 0)]), const)


def scale(a: Affine, k: AnySize) -> Affine:
    """`k` times the index."""
    return Affine() if same(k, 0) else Affine(tuple((v, c * k) for v, c in a.terms), a.const * k)


def variable(name: str) -> Affine:
    """The index consisting of one variable."""
    return Affine(((name, 1),))


def from_ir(expr: IRIndex) -> Index:
    """Converts an index of the loop IR: to an Affine if it has no floor division or modulus, else to a Compound."""
    if not isinstance(expr, Expr):
        return Affine((), expr)
    if all(isinstance(atom, Sym) for atom, _ in expr.terms):
        return Affine(tuple(sorted((atom.name, c) for atom, c in expr.terms if isinstance(atom, Sym))), expr.const)
    return _compound(expr)


def _compound(expr: Expr) -> Compound:
    terms: list[tuple[Operand, AnySize]] = []
    for atom, coef in expr.terms:
        if isinstance(atom, Sym):
            terms.append((atom.name, coef))
        else:
            kind = FloorDiv if isinstance(atom, IRFloorDiv) else Mod
            terms.append((kind(_compound(atom.base), atom.divisor), coef))
    return Compound(tuple(terms), expr.const)


def simplified(index: Index, sizes: Mapping[str, AnySize]) -> Index:
    """An index in which the divisions that known sizes of variables decide are carried out: `(64*q + r) // 64` is q,
    and its remainder r, if r has at most 64 values."""
    if isinstance(index, Affine):
        return index
    total, rest = Affine((), index.const), list[tuple[Operand, AnySize]]()
    for operand, coef in index.terms:
        found = _decided(operand, sizes) if isinstance(operand, _Division) else operand
        if isinstance(found, str):
            found = variable(found)
        if isinstance(found, Affine):
            total = add(total, scale(found, coef))
        else:
            rest.append((found, coef))
    if not rest:
        return total
    return Compound((*((variable(v), c) for v, c in total.terms), *rest), total.const)


def _decided(division: FloorDiv | Mod, sizes: Mapping[str, AnySize]) -> Operand:
    """The value of a division, if the sizes of variables decide it; otherwise the division, of a simplified base."""
    base, divisor = simplified(division.base, sizes), division.divisor
    if not isinstance(base, Affine):
        assert isinstance(base, Compound)
        return type(division)(base, divisor)
    apart = _apart(base, divisor, sizes)
    if apart is None:
        return type(division)(Compound(tuple((variable(v), c) for v, c in base.terms), base.const), divisor)
    return apart[0] if isinstance(division, FloorDiv) else apart[1]


def _apart(base: Affine, divisor: AnySize, sizes: Mapping[str, AnySize]) -> tuple[Affine, Affine] | None:
    """The quotient and the remainder of a nonnegative index, if what the divisor does not divide is less than it."""
    coefs = (base.const, divisor, *(c for _, c in base.terms))
    if not all(type(c) is int and c >= 0 for c in coefs) or type(divisor) is not int:
        return None
    whole: dict[str, AnySize] = {}
    rest: dict[str, AnySize] = {}
    for var, coef in base.terms:
        if coef % divisor == 0:
            whole[var] = coef // divisor
        else:
            rest[var] = coef
    below, const = base.const // divisor, base.const % divisor
    remainder = _affine(rest, const)
    if not all(type(sizes.get(var)) is int for var in rest):
        return None
    reach = const + sum(coef * (sizes[var] - 1) for var, coef in rest.items())
    return (_affine(whole, below), remainder) if reach < divisor else None


def split_variables(
    variables: list[tuple[str, AnySize]], target: list[tuple[str, AnySize]]
) -> dict[str, Affine] | None:
    """Expresses the variables of a row-major space in those of `target`, a finer factorization of the same space.

    None if `target` does not refine the space.
    """
    if any(isinstance(size, Size) for _, size in (*variables, *target)):
        return _split_variables(variables, target)
    found = _split_known(tuple(variables), tuple(target))
    return None if found is None else dict(found)


@functools.lru_cache(4096)
def _split_known(
    variables: tuple[tuple[str, AnySize], ...], target: tuple[tuple[str, AnySize], ...]
) -> dict[str, Affine] | None:
    """`split_variables` for sizes that are numbers: equal layers ask for the same again and again."""
    return _split_variables(variables, target)


def _split_variables(
    variables: Sequence[tuple[str, AnySize]], target: Sequence[tuple[str, AnySize]]
) -> dict[str, Affine] | None:
    env: dict[str, Affine] = {}
    rest = [t for t in target if not same(t[1], 1)]
    for var, size in variables:
        taken: list[tuple[str, AnySize]] = []
        left: AnySize | None = size
        while left is not None and not same(left, 1) and rest:
            taken.append(rest.pop(0))
            left = quotient(left, taken[-1][1])
        if left is None or not same(left, 1):
            return None
        value = Affine()
        stride: AnySize = 1
        for name, extent in reversed(taken):
            value = add(value, scale(variable(name), stride))
            stride *= extent
        env[var] = value
    return None if rest else env


def refine(a: list[AnySize], b: list[AnySize]) -> list[AnySize] | None:
    """The coarsest factorization that refines both of two factorizations of one row-major space, or None."""
    if any(isinstance(size, Size) for size in (*a, *b)):
        return _refined(a, b)
    found = _refined_known(tuple(a), tuple(b))
    return None if found is None else list(found)


@functools.lru_cache(4096)
def _refined_known(a: tuple[AnySize, ...], b: tuple[AnySize, ...]) -> list[AnySize] | None:
    """`refine` for sizes that are numbers: equal layers ask for the same again and again."""
    return _refined(a, b)


def _refined(a: Sequence[AnySize], b: Sequence[AnySize]) -> list[AnySize] | None:
    left, right, out = [s for s in a if not same(s, 1)], [s for s in b if not same(s, 1)], []
    while left and right:
        x, y = left[0], right[0]
        if same(x, y):
            small, x, y = x, 1, 1
        elif (rest := quotient(x, y)) is not None:
            small, x, y = y, rest, 1
        elif (rest := quotient(y, x)) is not None:
            small, x, y = x, 1, rest
        else:
            return None
        if same(small, 0):
            return None
        out.append(small)
        left = left[1:] if same(x, 1) else [x, *left[1:]]
        right = right[1:] if same(y, 1) else [y, *right[1:]]
    return None if left or right else out
