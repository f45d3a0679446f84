"""Indices as the scheduler compares and code generation prints them: affine in loop variables where possible.

Everything else (floor division, modulus) stays C text with a substitution beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.symbolic import Index as IRIndex
from ..ir.symbolic import Sym

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Affine:
    """`const + sum(coefficient * variable)`; zero coefficients are never stored, variables are sorted by name."""

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    def coef(self, var: str) -> int:
        """The coefficient of `var`, 0 if it does not occur."""
        return next((c for v, c in self.terms if v == var), 0)

    def names(self) -> set[str]:
        """The variables that occur."""
        return {v for v, _ in self.terms}

    def substitute(self, env: Mapping[str, Affine]) -> Affine:
        """Each variable replaced by its value in `env`; those not in it stay."""
        out = Affine((), self.const)
        for var, coef in self.terms:
            out = add(out, scale(env.get(var, Affine(((var, 1),))), coef))
        return out

    def text(self) -> str:
        """C text, without outer parentheses."""
        parts = [v if c == 1 else f"{c}*{v}" for v, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


@dataclass(frozen=True)
class Opaque:
    """Any other index: C text over variables, each with its affine value; names outside `env` are left alone."""

    source: str
    env: tuple[tuple[str, Affine], ...] = ()

    def names(self) -> set[str]:
        """The variables that occur, after substitution."""
        env, found = dict(self.env), set()
        for name in _NAME.findall(self.source):
            found |= env[name].names() if name in env else {name}
        return found

    def substitute(self, env: Mapping[str, Affine]) -> Opaque:
        """Each variable replaced by its value in `env`; those not in it stay."""
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
    return Affine(tuple(sorted((v, c) for v, c in terms.items() if c)), a.const + b.const)


def scale(a: Affine, k: int) -> Affine:
    """`k` times the index."""
    return Affine(tuple((v, c * k) for v, c in a.terms), a.const * k) if k else Affine()


def variable(name: str) -> Affine:
    """The index that is one variable."""
    return Affine(((name, 1),))


def read(expr: IRIndex) -> Index:
    """An index of the loop IR."""
    if isinstance(expr, int):
        return Affine((), expr)
    if all(isinstance(atom, Sym) for atom, _ in expr.terms):
        return Affine(tuple(sorted((atom.name, c) for atom, c in expr.terms if isinstance(atom, Sym))), expr.const)
    return Opaque(expr.to_c())


def split_variables(variables: list[tuple[str, int]], target: list[tuple[str, int]]) -> dict[str, Affine] | None:
    """Each variable of one row-major space in those of a finer factorization of the same space, or None."""
    env: dict[str, Affine] = {}
    rest = [t for t in target if t[1] != 1]
    for var, size in variables:
        taken, product = [], 1
        while product < size and rest:
            taken.append(rest.pop(0))
            product *= taken[-1][1]
        if product != size:
            return None
        value, stride = Affine(), 1
        for name, extent in reversed(taken):
            value = add(value, scale(variable(name), stride))
            stride *= extent
        env[var] = value
    return None if rest else env


def refine(a: list[int], b: list[int]) -> list[int] | None:
    """The coarsest factorization that refines both of two factorizations of one row-major space, or None."""
    left, right, out = [s for s in a if s != 1], [s for s in b if s != 1], []
    while left and right:
        x, y = left[0], right[0]
        small = min(x, y)
        if small == 0 or x % small or y % small:
            return None
        out.append(small)
        left[0], right[0] = x // small, y // small
        left, right = [left, left[1:]][left[0] == 1], [right, right[1:]][right[0] == 1]
    return None if left or right else out
