"""Index expressions: integers, loop variables, and `+ - * // %` over them, simplified while they are built.

An expression is an affine sum over atoms. An atom is a `Sym` (a loop variable or an indirect index, with its range), or
a `FloorDiv` or `Mod` of an expression by a positive number. An expression without atoms is a plain number: an int or a
symbolic Size (`size.py`). The operand of every FloorDiv and Mod is kept nonnegative, so that the truncating `/` and `%`
of C give the same results as Python's `//` and `%`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from ..errors import Unsupported
from .size import AnySize, Size, hint, known, quotient, same, whole_part

Bounds: TypeAlias = tuple[Any, Any]  # AnySize or an infinity


@dataclass(frozen=True)
class Sym:
    """A variable that takes the values 0 .. size - 1."""

    name: str
    size: AnySize

    @property
    def bounds(self) -> Bounds:
        """Least and greatest value."""
        return 0, self.size - 1 if isinstance(self.size, Size) else max(self.size - 1, 0)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FloorDiv:
    """`base // divisor`; base is nonnegative."""

    base: Expr
    divisor: AnySize

    @cached_property
    def bounds(self) -> Bounds:
        """Lower and upper bound; for symbolic sizes they need not be tight."""
        lo, hi = self.base.bounds
        return _below(lo, self.divisor, False), _below(hi, self.divisor, True)

    def __str__(self) -> str:
        return f"(({self.base}) // {self.divisor})"


@dataclass(frozen=True)
class Mod:
    """`base % divisor`; base is nonnegative."""

    base: Expr
    divisor: AnySize

    @property
    def bounds(self) -> Bounds:
        """Least and greatest value."""
        return 0, self.divisor - 1

    def __str__(self) -> str:
        return f"(({self.base}) % {self.divisor})"


Atom: TypeAlias = Sym | FloorDiv | Mod


@dataclass(frozen=True)
class Expr:
    """`const + sum(coefficient * atom)` with at least one atom; atoms are in order of first use."""

    terms: tuple[tuple[Atom, AnySize], ...]
    const: AnySize = 0

    @cached_property
    def bounds(self) -> Bounds:
        """Lower and upper bound by the ranges of the atoms."""
        return _bounds(self.terms, self.const)

    @cached_property
    def is_static(self) -> bool:
        """Whether it has no symbolic size."""
        if isinstance(self.const, Size):
            return False
        for atom, coef in self.terms:
            if isinstance(coef, Size):
                return False
            if isinstance(atom, Sym):
                if isinstance(atom.size, Size):
                    return False
            elif isinstance(atom.divisor, Size) or not atom.base.is_static:
                return False
        return True

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.const))

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Index) -> Index:
        if not isinstance(other, Expr):
            return Expr(self.terms, self.const + other) if not same(other, 0) else self
        terms = dict(self.terms)
        for atom, coef in other.terms:
            terms[atom] = terms.get(atom, 0) + coef
        return _rejoined(_make(terms.items(), self.const + other.const))

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index) -> Index:
        return self + -other

    def __rsub__(self, other: AnySize) -> Index:
        return -self + other

    def __mul__(self, other: Index) -> Index:
        if isinstance(other, Expr):
            raise TypeError("the product of two index variables is not an index expression")
        return self if same(other, 1) else _make([(a, c * other) for a, c in self.terms], self.const * other)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: AnySize) -> Index:
        return floordiv(self, divisor)

    def __mod__(self, divisor: AnySize) -> Index:
        return mod(self, divisor)

    def symbols(self) -> set[Sym]:
        """Every variable in the expression."""
        out: set[Sym] = set()
        for atom, _ in self.terms:
            out |= {atom} if isinstance(atom, Sym) else atom.base.symbols()
        return out

    def __str__(self) -> str:
        parts = [str(a) if same(c, 1) else f"{c}*{a}" for a, c in self.terms]
        return " + ".join(parts + ([] if same(self.const, 0) else [str(self.const)]))


Index: TypeAlias = int | Size | Expr


def _rejoined(expr: Index) -> Index:
    """The expression with `e` for each `d * (e // d) + e % d`: what was divided in two, as by a view, and put together
    again."""
    if not isinstance(expr, Expr):
        return expr
    for atom, coef in expr.terms:
        if isinstance(atom, Mod):
            parts = _div_atom(atom.base, atom.divisor)
            coefs = dict(expr.terms)
            if isinstance(parts, Expr) and all(
                a in coefs and same(coefs[a], c * coef * atom.divisor) for a, c in parts.terms
            ):
                gone = {atom, *(a for a, _ in parts.terms)}
                rest = _make([(a, c) for a, c in expr.terms if a not in gone], expr.const)
                return rest + (atom.base - parts.const * atom.divisor) * coef
    return expr


def symbol(sym: Sym) -> Index:
    """The expression consisting of one variable; 0 if 0 is its only value."""
    single = sym.size <= 1 if type(sym.size) is int else known(sym.size, "<=", 1)
    return 0 if single else Expr(((sym, 1),))


def combined(expressions: Sequence[Index], factors: Sequence[AnySize], const: AnySize) -> Index:
    """`const` plus the sum of the expressions times their factors."""
    found = _combined_numbers(expressions, factors, const)
    if found is not None:
        return found
    total: Index = const
    for expr, factor in zip(expressions, factors):
        total = total + expr * factor
    return total


def _combined_numbers(expressions: Sequence[Index], factors: Sequence[AnySize], const: AnySize) -> Index | None:
    """`combined` in one step; None if a factor or coefficient is no number, or if terms cancel out, which changes the
    order of the others."""
    terms: dict[Atom, AnySize] = {}
    for expr, factor in zip(expressions, factors):
        if type(factor) is not int:
            return None
        if isinstance(expr, Expr) and factor:
            for atom, coef in expr.terms:
                total = terms.get(atom, 0) + coef * factor
                if type(total) is not int or not total:
                    return None
                terms[atom] = total
            const = const + expr.const * factor
        elif not isinstance(expr, Expr):
            const = const + expr * factor
    return _rejoined(Expr(tuple(terms.items()), const)) if terms else const


def bounds(expr: Index) -> Bounds:
    """Lower and upper bound by the ranges of the variables."""
    return expr.bounds if isinstance(expr, Expr) else (expr, expr)


def symbols(expr: Index) -> set[Sym]:
    """Every variable in an index."""
    return expr.symbols() if isinstance(expr, Expr) else set()


def evaluate(expr: Index, env: Mapping[str, Any]) -> Any:
    """The value of an index, with the variables' values (ints or integer tensors) taken from `env` by name."""
    if not isinstance(expr, Expr):
        return expr
    total: Any = expr.const
    for atom, coef in expr.terms:
        if isinstance(atom, Sym):
            value = env[atom.name]
        else:
            base = evaluate(atom.base, env)
            value = base // atom.divisor if isinstance(atom, FloorDiv) else base % atom.divisor
        total = total + value * coef
    return total


def substitute(expr: Index, env: Mapping[Sym, Index]) -> Index:
    """The expression with variables replaced, simplified again."""
    if not isinstance(expr, Expr):
        return expr
    total: Index = expr.const
    for atom, coef in expr.terms:
        value: Index
        if isinstance(atom, Sym):
            value = env.get(atom, Expr(((atom, 1),)))
        else:
            base = substitute(atom.base, env)
            value = base // atom.divisor if isinstance(atom, FloorDiv) else base % atom.divisor
        total = total + value * coef
    return total


def floordiv(expr: Index, divisor: AnySize) -> Index:
    """`expr // divisor` for a positive divisor."""
    if not isinstance(expr, Expr) or same(divisor, 1):
        return expr if isinstance(expr, Expr) else expr // divisor
    shares = [(a, c, quotient(c, divisor)) for a, c in expr.terms]
    whole_const, const = whole_part(expr.const, divisor)
    whole = _make([(a, q) for a, _, q in shares if q is not None], whole_const)
    high, low_scale = _split([(a, c) for a, c, q in shares if q is None], const, divisor)
    if high is None or not isinstance(high, Expr):
        return whole + (high or 0)
    if same(low_scale, divisor):
        return whole + high
    if not same(low_scale, 1):
        left = quotient(divisor, low_scale)
        assert left is not None
        return whole + floordiv(high, left)
    shift = _shift(high.bounds[0], divisor)
    atom = _div_atom(high + shift * divisor, divisor)
    return whole - shift + atom


def mod(expr: Index, divisor: AnySize) -> Index:
    """`expr % divisor` for a positive divisor."""
    if not isinstance(expr, Expr):
        return expr % divisor
    if same(divisor, 1):
        return 0
    rest = _make([(a, c) for a, c in expr.terms if quotient(c, divisor) is None], whole_part(expr.const, divisor)[1])
    lo, hi = bounds(rest)
    if known(lo, ">=", 0) and known(hi, "<", divisor):
        return rest
    if not isinstance(rest, Expr):
        return rest % divisor
    high, low_scale = _split(rest.terms, rest.const, divisor)
    if not same(low_scale, 1) and high is not None:
        low = rest - high * low_scale
        left = quotient(divisor, low_scale)
        assert left is not None
        return mod(high, left) * low_scale + low
    shifted = rest + _shift(lo, divisor) * divisor
    assert isinstance(shifted, Expr)
    return Expr(((Mod(shifted, divisor), 1),))


def _shift(least: Any, divisor: AnySize) -> AnySize:
    """How many times `divisor` must be added to `least` to make it nonnegative."""
    if known(least, ">=", 0):
        return 0
    if isinstance(least, float):
        raise Unsupported("an index of unknown sign")
    if known(least + divisor, ">=", 0):
        return 1
    return -(least // divisor)


def _below(end: Any, divisor: AnySize, upper: bool) -> Any:
    """An upper bound of `end // divisor` if `upper`, else a lower bound. Exact for ints."""
    if not isinstance(end, Size) and not isinstance(divisor, Size):
        return end // divisor
    if known(end, ">=", 0) and known(end, "<", divisor):
        return 0
    if isinstance(end, float):
        return end
    whole, rest = whole_part(end, divisor)
    if known(rest, ">=", 0) and known(rest, "<", divisor):
        return whole
    if known(end, ">=", 0):
        return end if upper else 0
    return 0 if upper else end


def _div_atom(base: Index, divisor: AnySize) -> Index:
    if not isinstance(base, Expr):
        return base // divisor
    if len(base.terms) == 1 and same(base.const, 0) and same(base.terms[0][1], 1):
        inner = base.terms[0][0]
        if isinstance(inner, FloorDiv):
            return floordiv(inner.base, inner.divisor * divisor)
    return Expr(((FloorDiv(base, divisor), 1),))


def _split(
    terms: Iterable[tuple[Atom, AnySize]], const: AnySize, divisor: AnySize
) -> tuple[Index | None, AnySize]:
    """(high, k) for the largest k dividing `divisor` such that the sum equals `k * high + low` with 0 <= low < k."""
    terms = list(terms)
    scales = {divisor} | {c if isinstance(c, Size) else abs(c) for _, c in terms if quotient(divisor, c) is not None}
    for k in sorted(scales, key=hint, reverse=True):
        if same(k, 1):
            break
        parts = [(a, c, quotient(c, k)) for a, c in terms]
        high_const, low_const = whole_part(const, k)
        lo, hi = _bounds([(a, c) for a, c, q in parts if q is None], low_const)
        if known(lo, ">=", 0) and known(hi, "<", k):
            return _make([(a, q) for a, _, q in parts if q is not None], high_const), k
    return _make(terms, const), 1


def _bounds(terms: Iterable[tuple[Atom, AnySize]], const: AnySize) -> Bounds:
    low: Any = const
    high: Any = const
    for atom, coef in terms:
        lo, hi = atom.bounds
        if isinstance(lo, float) or isinstance(hi, float):
            return -math.inf, math.inf
        if known(coef, ">", 0):
            low, high = low + coef * lo, high + coef * hi
        elif known(coef, "<=", 0):
            low, high = low + coef * hi, high + coef * lo
        else:
            return -math.inf, math.inf
    return low, high


def _make(terms: Iterable[tuple[Atom, AnySize]], const: AnySize) -> Index:
    kept = tuple([(a, c) for a, c in terms if (c if type(c) is int else not same(c, 0))])
    return Expr(kept, const) if kept else const
