"""Bounds of an index expression and of its intermediate results, which decide between 32- and 64-bit arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...ir.size import AnySize, Size, known
from ...schedule.index import Affine, Index
from ..values import Val

Bounds = tuple[AnySize, AnySize]
_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|[-+*/%()]")


def fits_int32(bounds: Bounds) -> bool:
    """Whether both bounds fit in 32-bit integers."""
    return -(2**31) <= bounds[0] and bounds[1] < 2**31


def span(index: Index, sizes: Mapping[str, AnySize], symbols: Mapping[str, Val]) -> Bounds:
    """Lower and upper bound of all intermediate results when an index is computed."""
    ends = {name: size - 1 for name, size in sizes.items()}
    ends |= {name: value.attrs[0] - 1 for name, value in symbols.items()}
    if isinstance(index, Affine):
        return _affine(index, ends)
    env = {name: _affine(value, ends) for name, value in index.env}
    env |= {name: (0, end) for name, end in ends.items() if name not in env}
    for symbol in {x for end in ends.values() if isinstance(end, Size) and end.env for x in end.env.all()}:
        env[str(symbol)] = symbol, symbol
    # Other names are sizes, passed as 32-bit integers. If one is zero, no element is computed, so 1 is the minimum.
    return _Reader(index.source, {name: (1, 2**31 - 1) for name in index.names()} | env).widest()


def _most(a: AnySize, b: AnySize) -> AnySize:
    """The greater of two sizes, or an upper bound of both if their order is unknown and neither is negative."""
    if known(a, ">=", b):
        return a
    if known(b, ">=", a):
        return b
    return a + b if known(a, ">=", 0) and known(b, ">=", 0) else max(a, b)


def _affine(index: Affine, ends: Mapping[str, AnySize]) -> Bounds:
    low = high = index.const
    for name, coef in index.terms:
        reach = coef * max(ends[name], 0)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


class _Reader:
    """Parses C text of integers, names, `+ - * / %` and parentheses, and evaluates it in interval arithmetic."""

    def __init__(self, text: str, env: Mapping[str, Bounds]) -> None:
        self.tokens, self.at, self.env = _TOKEN.findall(text), 0, env
        self.low: AnySize = 0
        self.high: AnySize = 0

    def widest(self) -> Bounds:
        self._sum()
        return self.low, self.high

    def _seen(self, bounds: Bounds) -> Bounds:
        self.low, self.high = -_most(-self.low, -bounds[0]), _most(self.high, bounds[1])
        return bounds

    def _take(self, choices: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in choices:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def _sum(self) -> Bounds:
        total = self._product()
        while op := self._take("+-"):
            other = self._product()
            if op == "-":
                other = (-other[1], -other[0])
            total = self._seen((total[0] + other[0], total[1] + other[1]))
        return total

    def _product(self) -> Bounds:
        value = self._factor()
        while op := self._take("*/%"):
            other = self._factor()
            if op == "*":
                ends = [a * b for a in value for b in other]
                low = high = ends[0]
                for end in ends[1:]:
                    low, high = -_most(-low, -end), _most(high, end)
                value = self._seen((low, high))
            elif op == "/":
                low = 0 if known(value[0], ">=", 0) else value[0]
                value = (low, value[1] // other[0])
            else:
                value = (0, value[1] if known(value[1], "<", other[1]) and known(value[1], ">=", 0) else other[1] - 1)
        return value

    def _factor(self) -> Bounds:
        if self._take("-"):
            low, high = self._factor()
            return self._seen((-high, -low))
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            value = self._sum()
            self._take(")")
            return value
        if token.isdigit():
            return self._seen((int(token), int(token)))
        return self._seen(self.env[token])
