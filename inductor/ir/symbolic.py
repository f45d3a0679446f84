"""Index expressions: integers, loop variables, and `+ - * // %` over them, simplified as they are built.

An expression is an affine sum over atoms: a `Sym` (a loop variable or an indirect index, with its range), a `FloorDiv`
or a `Mod` of an expression by a positive int. An expression without atoms is a plain int. Every atom's operand is kept
nonnegative, so the truncating `/` and `%` of C agree with Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Sym:
    """A variable with values 0 .. size - 1."""

    name: str
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        return 0, max(self.size - 1, 0)

    def to_c(self) -> str:
        """C text."""
        return self.name

    to_py = __str__ = to_c


@dataclass(frozen=True)
class FloorDiv:
    """`base // divisor`; base is nonnegative."""

    base: Expr
    divisor: int

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        lo, hi = self.base.bounds
        return lo // self.divisor, hi // self.divisor

    def to_c(self) -> str:
        """C text."""
        return f"(({self.base.to_c()}) / {self.divisor})"

    def to_py(self) -> str:
        """Python text."""
        return f"(({self.base.to_py()}) // {self.divisor})"


@dataclass(frozen=True)
class Mod:
    """`base % divisor`; base is nonnegative."""

    base: Expr
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        return 0, self.divisor - 1

    def to_c(self) -> str:
        """C text."""
        return f"(({self.base.to_c()}) % {self.divisor})"

    to_py = to_c


Atom: TypeAlias = Sym | FloorDiv | Mod


@dataclass(frozen=True)
class Expr:
    """`const + sum(coefficient * atom)`, at least one atom, in order of first use."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value that the atoms' ranges allow."""
        return _bounds(self.terms, self.const)

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.const))

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Index) -> Index:
        if isinstance(other, int):
            return Expr(self.terms, self.const + other) if other else self
        terms = dict(self.terms)
        for atom, coef in other.terms:
            terms[atom] = terms.get(atom, 0) + coef
        return _make(terms.items(), self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index) -> Index:
        return self + -other

    def __rsub__(self, other: int) -> Index:
        return -self + other

    def __mul__(self, other: Index) -> Index:
        if not isinstance(other, int):
            raise TypeError("the product of two index variables is not an index expression")
        return self if other == 1 else _make([(a, c * other) for a, c in self.terms], self.const * other)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        return floordiv(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return mod(self, divisor)

    def symbols(self) -> set[Sym]:
        """Every variable in the expression."""
        out: set[Sym] = set()
        for atom, _ in self.terms:
            out |= {atom} if isinstance(atom, Sym) else atom.base.symbols()
        return out

    def to_c(self) -> str:
        """C text, without outer parentheses."""
        return self._text(lambda a: a.to_c())

    def to_py(self) -> str:
        """Python text, without outer parentheses."""
        return self._text(lambda a: a.to_py())

    __str__ = to_py

    def _text(self, show: Callable[[Atom], str]) -> str:
        parts = [show(a) if c == 1 else f"{c}*{show(a)}" for a, c in self.terms]
        return " + ".join(parts + ([str(self.const)] if self.const else []))


Index: TypeAlias = int | Expr


def symbol(sym: Sym) -> Index:
    """The expression that is one variable; 0 if 0 is its only value."""
    return Expr(((sym, 1),)) if sym.size > 1 else 0


def bounds(expr: Index) -> tuple[int, int]:
    """Least and greatest value that the ranges allow."""
    return (expr, expr) if isinstance(expr, int) else expr.bounds


def to_c(expr: Index) -> str:
    """C text of an index."""
    return str(expr) if isinstance(expr, int) else expr.to_c()


def symbols(expr: Index) -> set[Sym]:
    """Every variable in an index."""
    return set() if isinstance(expr, int) else expr.symbols()


def evaluate(expr: Index, env: Mapping[str, Any]) -> Any:
    """The value, with variables taken from `env` by name (ints or integer tensors)."""
    if isinstance(expr, int):
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
    if isinstance(expr, int):
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


def floordiv(expr: Index, divisor: int) -> Index:
    """`expr // divisor` for a positive divisor."""
    if isinstance(expr, int) or divisor == 1:
        return expr // divisor if isinstance(expr, int) else expr
    whole = _make([(a, c // divisor) for a, c in expr.terms if c % divisor == 0], expr.const // divisor)
    terms, const = [(a, c) for a, c in expr.terms if c % divisor], expr.const % divisor
    high, low_scale = _split(terms, const, divisor)
    if high is None or isinstance(high, int):
        return whole + (high or 0)
    if low_scale == divisor:
        return whole + high
    if low_scale > 1:
        return whole + floordiv(high, divisor // low_scale)
    shift = max(0, -(high.bounds[0] // divisor))
    atom = _div_atom(high + shift * divisor, divisor)
    return whole - shift + atom


def mod(expr: Index, divisor: int) -> Index:
    """`expr % divisor` for a positive divisor."""
    if isinstance(expr, int):
        return expr % divisor
    if divisor == 1:
        return 0
    rest = _make([(a, c) for a, c in expr.terms if c % divisor], expr.const % divisor)
    lo, hi = bounds(rest)
    if isinstance(rest, int) or (lo >= 0 and hi < divisor):
        return rest
    high, low_scale = _split(rest.terms, rest.const, divisor)
    if low_scale > 1 and high is not None:
        low = rest - high * low_scale
        return mod(high, divisor // low_scale) * low_scale + low
    shifted = rest + max(0, -(lo // divisor)) * divisor
    assert isinstance(shifted, Expr)
    return Expr(((Mod(shifted, divisor), 1),))


def _div_atom(base: Index, divisor: int) -> Index:
    if isinstance(base, int):
        return base // divisor
    if len(base.terms) == 1 and not base.const and base.terms[0][1] == 1 and isinstance(base.terms[0][0], FloorDiv):
        inner = base.terms[0][0]
        return floordiv(inner.base, inner.divisor * divisor)
    return Expr(((FloorDiv(base, divisor), 1),))


def _split(terms: Iterable[tuple[Atom, int]], const: int, divisor: int) -> tuple[Index | None, int]:
    """The largest k dividing `divisor` for which the sum is `k * high + low` with 0 <= low < k: (high, k)."""
    terms = list(terms)
    for k in sorted({divisor} | {abs(c) for _, c in terms if divisor % c == 0}, reverse=True):
        if k == 1:
            break
        lo, hi = _bounds([(a, c) for a, c in terms if c % k], const % k)
        if lo >= 0 and hi < k:
            return _make([(a, c // k) for a, c in terms if c % k == 0], const // k), k
    return _make(terms, const), 1


def _bounds(terms: Iterable[tuple[Atom, int]], const: int) -> tuple[int, int]:
    low = high = const
    for atom, coef in terms:
        lo, hi = atom.bounds
        low += coef * (lo if coef > 0 else hi)
        high += coef * (hi if coef > 0 else lo)
    return low, high


def _make(terms: Iterable[tuple[Atom, int]], const: int) -> Index:
    kept = tuple((a, c) for a, c in terms if c)
    return Expr(kept, const) if kept else const
