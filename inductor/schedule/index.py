"""Index expressions in the form that the scheduler compares and code generation prints: affine where possible.

An index with a floor division or a modulus is kept as C text together with a substitution of its variables (`Opaque`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.size import AnySize, quotient, same
from ..ir.symbolic import Expr, Sym
from ..ir.symbolic import Index as IRIndex

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Affine:
    """`const + sum(coefficient * variable)`, sorted by variable name and without zero coefficients."""

    terms: tuple[tuple[str, AnySize], ...] = ()
    const: AnySize = 0

    def coef(self, var: str) -> AnySize:
        """The coefficient of `var`; 0 if it does not occur."""
        return next((c for v, c in self.terms if v == var), 0)

    def names(self) -> set[str]:
        """The variables that occur."""
        return {v for v, _ in self.terms}

    def substitute(self, env: Mapping[str, Affine]) -> Affine:
        """The index with each variable that is in `env` replaced by its value there."""
        out = Affine((), self.const)
        for var, coef in self.terms:
            out = add(out, scale(env.get(var, Affine(((var, 1),))), coef))
        return out

    def text(self) -> str:
        """C text, without outer parentheses."""
        parts = [v if same(c, 1) else f"{c}*{v}" for v, c in self.terms]
        if not same(self.const, 0) or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


@dataclass(frozen=True)
class Opaque:
    """A non-affine index: C text, and the affine values of its variables. Names that are not in `env` are kept."""

    source: str
    env: tuple[tuple[str, Affine], ...] = ()

    def names(self) -> set[str]:
        """The variables that occur after the substitution."""
        env = dict(self.env)
        found: set[str] = set()
        for name in _NAME.findall(self.source):
            found |= env[name].names() if name in env else {name}
        return found

    def substitute(self, env: Mapping[str, Affine]) -> Opaque:
        """The index with each variable that is in `env` replaced by its value there."""
        mine = {v: a.substitute(env) for v, a in self.env}
        for name in _NAME.findall(self.source):
            if name not in mine and name in env:
                mine[name] = env[name]
        return Opaque(self.source, tuple(sorted(mine.items())))

    def text(self) -> str:
        """C text, without outer parentheses."""
        env = dict(self.env)
        return _NAME.sub(lambda m: f"({env[m[0]].text()})" if m[0] in env else m[0], self.source)


Index = Affine | Opaque


def add(a: Affine, b: Affine) -> Affine:
    """The sum."""
    terms = dict(a.terms)
    for var, coef in b.terms:
        terms[var] = terms.get(var, 0) + coef
    return Affine(tuple(sorted((v, c) for v, c in terms.items() if not same(c, 0))), a.const + b.const)


def scale(a: Affine, k: AnySize) -> Affine:
    """`k` times the index."""
    return Affine() if same(k, 0) else Affine(tuple((v, c * k) for v, c in a.terms), a.const * k)


def variable(name: str) -> Affine:
    """The index consisting of one variable."""
    return Affine(((name, 1),))


def read(expr: IRIndex) -> Index:
    """Converts an index of the loop IR: Affine if it has no floor division or modulus, else Opaque."""
    if not isinstance(expr, Expr):
        return Affine((), expr)
    if all(isinstance(atom, Sym) for atom, _ in expr.terms):
        return Affine(tuple(sorted((atom.name, c) for atom, c in expr.terms if isinstance(atom, Sym))), expr.const)
    return Opaque(expr.to_c())


def split_variables(
    variables: list[tuple[str, AnySize]], target: list[tuple[str, AnySize]]
) -> dict[str, Affine] | None:
    """Expresses the variables of a row-major space in those of `target`, a finer factorization of the same space.

    None if `target` does not refine the space.
    """
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
