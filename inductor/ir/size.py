"""Symbolic sizes: polynomials over symbols whose values are computed from the inputs at run time.

A `Size` can be used in place of an int: lowerings and code generation compute with both alike. If the ranges of the
symbols do not decide a comparison, the values that the graph is compiled for (the hints) decide it, and the outcome is
recorded as an assumption. The compiled code is valid wherever all recorded assumptions hold (`Program.serves`).
Heuristics, for which either answer is correct, call `hint` and record nothing. Operations that need the concrete
number, such as `int(size)` or true division, raise Unsupported.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import Unsupported

Monomial: TypeAlias = tuple[str, ...]  # the symbols of a product, sorted; () is the constant's
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "//": operator.floordiv, "%": operator.mod, "floor*": lambda a, b: math.floor(a * b),
}  # fmt: skip


class Size:
    """`sum(coefficient * product of symbols)` in which at least one term has a symbol. Immutable."""

    __slots__ = ("_hash", "env", "terms")

    def __init__(self, env: SizeEnv | None, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.env, self.terms = env, terms
        self._hash = hash(terms)

    def __reduce__(self) -> Any:
        return Size, (None, self.terms)

    def __hash__(self) -> int:
        return self._hash

    # ---- arithmetic

    def __add__(self, other: AnySize) -> AnySize:
        if not isinstance(other, int | Size):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coef in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coef
        return _size(self.env, terms)

    __radd__ = __add__

    def __neg__(self) -> AnySize:
        return self * -1

    def __sub__(self, other: AnySize) -> AnySize:
        return self + -other if isinstance(other, int | Size) else NotImplemented

    def __rsub__(self, other: int) -> AnySize:
        return -self + other

    def __mul__(self, other: AnySize) -> AnySize:
        if not isinstance(other, int | Size):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for m, a in self.terms:
            for n, b in _terms(other):
                monomial = tuple(sorted(m + n))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _size(self.env, terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: AnySize) -> AnySize:
        return floor_of(self, other) if isinstance(other, int | Size) else NotImplemented

    def __rfloordiv__(self, other: int) -> AnySize:
        return floor_of(other, self)

    def __mod__(self, other: AnySize) -> AnySize:
        return rest_of(self, other) if isinstance(other, int | Size) else NotImplemented

    def __rmod__(self, other: int) -> AnySize:
        return rest_of(other, self)

    def __abs__(self) -> AnySize:
        return self if self >= 0 else -self

    # ---- comparison: decided by the symbols' ranges, otherwise by the hints, which records an assumption

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, int | Size):
            return NotImplemented
        return self.terms == other.terms if isinstance(other, Size) and self.env is None else self._holds("==", other)

    def __ne__(self, other: object) -> Any:
        return not self == other if isinstance(other, int | Size) else NotImplemented

    def __lt__(self, other: AnySize) -> bool:
        return self._holds("<", other)

    def __le__(self, other: AnySize) -> bool:
        return self._holds("<=", other)

    def __gt__(self, other: AnySize) -> bool:
        return self._holds(">", other)

    def __ge__(self, other: AnySize) -> bool:
        return self._holds(">=", other)

    def __bool__(self) -> bool:
        return self != 0

    def _holds(self, relation: str, other: Any) -> bool:
        if isinstance(other, float):
            if not math.isinf(other):
                raise _unknown("a comparison with a float")
            return _OPERATORS[relation](0, other)
        known = _known(self, relation, other)
        if known is not None:
            return known
        if self.env is None:
            raise _unknown("a comparison")
        return self.env.assume(relation, self, other)

    # ---- operations that need a concrete number: Unsupported

    def __index__(self) -> int:
        raise _unknown(str(self))

    __int__ = __float__ = __index__

    def __truediv__(self, other: Any) -> Any:
        raise _unknown(f"{self} / {other}")

    def __rtruediv__(self, other: Any) -> Any:
        raise _unknown(f"{other} / {self}")

    __pow__ = __truediv__

    # ---- text and values

    def __str__(self) -> str:
        """The expression as text that is valid in both C and Python."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return "(" + " + ".join("*".join([*([str(c)] if c != 1 or not m else []), *m]) for m, c in self.terms) + ")"

    __repr__ = __str__

    def symbols(self) -> set[str]:
        """The names of the symbols that occur."""
        return {name for monomial, _ in self.terms for name in monomial}

    def at(self, values: Mapping[str, int]) -> int:
        """The value of the size, given the values of its symbols."""
        return sum(coef * math.prod(values[name] for name in monomial) for monomial, coef in self.terms)


AnySize: TypeAlias = int | Size


def named(name: str, env: SizeEnv | None = None) -> Size:
    """The size that consists of one symbol."""
    return Size(env, (((name,), 1),))


def _unknown(what: str) -> Unsupported:
    return Unsupported(f"{what} of sizes that are known only at run time")


def _terms(x: AnySize) -> Iterable[tuple[Monomial, int]]:
    return x.terms if isinstance(x, Size) else (((), x),)


def _size(env: SizeEnv | None, terms: Mapping[Monomial, int]) -> AnySize:
    kept = sorted(((m, c) for m, c in terms.items() if c), key=lambda t: (-len(t[0]), t[0]))
    if not kept:
        return 0
    return kept[0][1] if kept[0][0] == () else Size(env, tuple(kept))


# ---- what follows from the symbols' ranges alone, without hints -------------------------------------------


def range_of(x: AnySize) -> tuple[float, float]:
    """Lower and upper bound of `x` by the ranges of its symbols. The bounds need not be tight."""
    if not isinstance(x, Size):
        return x, x
    shared = set(x.terms[0][0]).intersection(*(m for m, _ in x.terms[1:]))
    if shared and len(x.terms) > 1:  # a * b - b is b * (a - 1)
        name = min(shared)
        low, high = range_of(_size(x.env, {_without(m, (name,)) or (): c for m, c in x.terms}))
        least, most = x.env.ranges[name] if x.env is not None else (0, math.inf)
        return min(_times(low, least), _times(low, most)), max(_times(high, least), _times(high, most))
    low = high = 0
    for monomial, coef in x.terms:
        ranges = [x.env.ranges[name] if x.env is not None else (0, math.inf) for name in monomial]
        least, most = math.prod(r[0] for r in ranges), 0 if (0, 0) in ranges else math.prod(r[1] for r in ranges)
        low += coef * (least if coef > 0 else most)
        high += coef * (most if coef > 0 else least)
    least, most = _range_by_quotient(x)
    return max(low, least), min(high, most)


def _range_by_quotient(x: Size) -> tuple[float, float]:
    """Bounds of `x` by the definition of the last quotient `a // b` in it, which is `(a - r) / b` for some r from 0 to
    b - 1. So `2 * (n // 2) - n` is known to be -1 or 0."""
    quotients = {} if x.env is None or len(x.terms) == 1 else x.env.quotients
    found = [(list(quotients).index(m[0]), m[0], c) for m, c in x.terms if len(m) == 1 and m[0] in quotients]
    if not found:
        return -math.inf, math.inf
    _, name, coef = max(found)
    a, b = quotients[name]
    low, high = range_of((x - coef * named(name, x.env)) * b + coef * a)
    rest = -coef * (b - 1)
    low, high = low + min(rest, 0), high + max(rest, 0)
    return math.ceil(low / b) if math.isfinite(low) else low, math.floor(high / b) if math.isfinite(high) else high


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _known(a: AnySize, relation: str, b: AnySize) -> bool | None:
    """Whether a relation holds for all values of the symbols; None if the ranges do not decide it."""
    low, high = range_of(a - b)
    if relation in ("==", "!="):
        if low == high == 0:
            return relation == "=="
        return relation == "!=" if low > 0 or high < 0 else None
    truth = {_OPERATORS[relation](low, 0), _OPERATORS[relation](high, 0)}
    return truth.pop() if len(truth) == 1 else None


def known(a: Any, relation: str, b: Any) -> bool:
    """Whether a relation is certain to hold. Accepts ints and infinities too, and never records an assumption."""
    if isinstance(a, Size) or isinstance(b, Size):
        if isinstance(a, float) or isinstance(b, float):
            return bool(_OPERATORS[relation](a if isinstance(a, float) else 0, b if isinstance(b, float) else 0))
        return _known(a, relation, b) is True
    return bool(_OPERATORS[relation](a, b))


def same(a: AnySize, b: AnySize) -> bool:
    """Whether two sizes are certain to be equal. Records no assumption."""
    if type(a) is int and type(b) is int:
        return a == b
    return known(a, "==", b) if isinstance(a, Size) or isinstance(b, Size) else a == b


def hint(x: AnySize) -> int:
    """The value of a size for the inputs that the graph is compiled for. Only for choices that affect speed alone."""
    if not isinstance(x, Size):
        return x
    if x.env is None:
        raise _unknown("a value")
    return x.at(x.env.hints)


def quotient(a: AnySize, b: AnySize) -> AnySize | None:
    """a / b if that is certain to be an integer for all values of the symbols, else None."""
    if not isinstance(b, Size):
        if not isinstance(a, Size):
            return a // b if b and a % b == 0 else None
        if b == 0 or any(coef % b for _, coef in a.terms):
            return None
        return _size(a.env, {monomial: coef // b for monomial, coef in a.terms})
    if not isinstance(a, Size):
        return 0 if a == 0 else None
    (lead, scale), rest, result = b.terms[0], a, 0
    while isinstance(rest, Size):
        monomial, coef = rest.terms[0]
        over = _without(monomial, lead)
        if over is None or coef % scale:
            return None
        part = _size(a.env, {over: coef // scale})
        result, rest = result + part, rest - part * b  # type: ignore[assignment]
    return result if rest == 0 else None


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in part:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def whole_part(a: AnySize, b: AnySize) -> tuple[AnySize, AnySize]:
    """(q, r) with a == q * b + r, where q takes every term of `a` that is certain to be a multiple of `b`."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return divmod(a, b)
    whole: AnySize = quotient(a, b) or 0
    if whole:
        return whole, 0
    if not isinstance(b, Size) or len(b.terms) == 1:
        assert isinstance(a, Size) or isinstance(b, Size)
        for monomial, coef in _terms(a):
            env = a.env if isinstance(a, Size) else b.env  # type: ignore[union-attr]
            term = _size(env, {monomial: coef})
            if monomial == () and not isinstance(b, Size):
                whole = whole + coef // b
            else:
                whole = whole + (quotient(term, b) or 0)
    return whole, a - whole * b


def ceil_of(a: AnySize, b: AnySize) -> AnySize:
    """a / b rounded up, for a nonnegative a."""
    return (a + b - 1) // b


def floor_of(a: AnySize, b: AnySize) -> AnySize:
    """a // b for a positive b."""
    whole, rest = whole_part(a, b)
    if known(rest, ">=", 0) and known(rest, "<", b):
        return whole
    if known(rest, "<=", 0):
        return whole - ceil_of(-rest, b)
    return whole + _env(a, b).derived("//", rest, b)


def rest_of(a: AnySize, b: AnySize) -> AnySize:
    """a % b for a positive b."""
    _, rest = whole_part(a, b)
    if known(rest, ">=", 0) and known(rest, "<", b):
        return rest
    if known(rest, "<", 0):
        low = rest_of(-rest, b)
        return b - low if known(low, ">", 0) else rest_of(b - low, b)
    return _env(a, b).derived("%", rest, b)


def scaled(a: AnySize, factor: float) -> AnySize:
    """`math.floor(a * factor)`, of the product in float64, for a positive factor."""
    return _env(a).derived("floor*", a, factor) if isinstance(a, Size) else math.floor(a * factor)


def _env(*sizes: AnySize) -> SizeEnv:
    for x in sizes:
        if isinstance(x, Size) and x.env is not None:
            return x.env
    raise _unknown("arithmetic")


# ---- the symbols of a graph -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """The symbolic sizes of a graph that is compiled once for many sizes, as plain data.

    `definitions` are derived symbols as (name, operator, a, b), each computed from symbols before it; the operator is
    `//`, `%` or `floor*`, whose b is a float. `assumed` are the relations (a, operator, b) on which the compiled code
    depends.
    """

    definitions: tuple[tuple[str, str, AnySize, AnySize | float], ...]
    assumed: tuple[tuple[AnySize, str, AnySize], ...]

    def values(self, given: Mapping[str, int]) -> dict[str, int]:
        """The values of all symbols, derived ones included, from those of the input symbols."""
        values = dict(given)
        for name, op, a, b in self.definitions:
            values[name] = _OPERATORS[op](at(a, values), b if isinstance(b, float) else at(b, values))
        return values

    def serves(self, values: Mapping[str, int]) -> bool:
        """Whether the compiled code is valid for these values of all symbols."""
        return all(_OPERATORS[op](at(a, values), at(b, values)) for a, op, b in self.assumed)


def at(x: AnySize, values: Mapping[str, int]) -> int:
    """The value of a size or int, given the values of the symbols."""
    return x.at(values) if isinstance(x, Size) else x


class SizeEnv:
    """The symbols of a graph during compilation: their hints and ranges, and the assumptions recorded so far."""

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        self.quotients: dict[str, tuple[AnySize, int]] = {}  # (a, b) of symbols that are a // b
        self._definitions: dict[tuple[str, AnySize, AnySize | float], str] = {}
        self._assumed: dict[tuple[AnySize, str, AnySize], None] = {}

    def symbol(self, name: str, value: int, least: int = 0) -> Size:
        """A new symbol with hint `value` and range `least` to infinity."""
        self.hints[name], self.ranges[name] = value, (least, math.inf)
        return named(name, self)

    def all(self) -> list[Size]:
        """Every symbol."""
        return [named(name, self) for name in self.hints]

    def derived(self, op: str, a: AnySize, b: AnySize | float) -> Size:
        """The symbol defined as `a // b`, `a % b` or, for a float b, `floor(a * b)`. Unsupported unless a >= 0 and
        b > 0 are certain."""
        if not (known(a, ">=", 0) and known(b, ">", 0)):
            raise _unknown(f"{a} {op} {b}, of either sign,")
        name = self._definitions.get((op, a, b))
        if name is None:
            name = self._definitions[op, a, b] = f"part{len(self._definitions)}"
            self.hints[name] = _OPERATORS[op](hint(a), b if isinstance(b, float) else hint(b))
            of = range_of(a)
            if isinstance(b, float):
                low, high = (n if math.isinf(n) else math.floor(n * b) for n in of)
                self.ranges[name] = low, high
                return named(name, self)
            low, high = range_of(b)
            if op == "//":
                if not isinstance(b, Size):
                    self.quotients[name] = a, b
                self.ranges[name] = of[0] // high if high < math.inf else 0, of[1] // low if of[1] < math.inf else of[1]
            else:
                self.ranges[name] = 0, min(high - 1, of[1])
        return named(name, self)

    def assume(self, relation: str, a: AnySize, b: AnySize) -> bool:
        """Whether a relation holds for the hints. Records the relation, or its inverse, as an assumption."""
        if relation == "!=":
            return not self.assume("==", a, b)
        truth = bool(_OPERATORS[relation](hint(a), hint(b)))
        inverse = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!="}[relation]
        self._assumed[a, relation if truth else inverse, b] = None
        return truth

    def program(self) -> Program:
        """The definitions and assumptions recorded so far."""
        definitions = tuple((name, *definition) for definition, name in self._definitions.items())
        return Program(definitions, tuple(self._assumed))
