"""Interval arithmetic on sizes: bounds of the intermediate results when an index is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..ir.size import AnySize, Size, known

Bounds: TypeAlias = tuple[AnySize, AnySize]  # lower and upper bound


class Intervals:
    """Computes with intervals. `low` and `high` are bounds of all results so far.

    `ranges` has the ranges of variables and of size symbols. Other size symbols are passed to kernels as 32-bit
    integers; if one is zero, no element is computed, so their least value is 1.
    """

    def __init__(self, ranges: Mapping[str, Bounds]) -> None:
        self.ranges = ranges
        self.low: AnySize = 0
        self.high: AnySize = 0

    def seen(self, bounds: Bounds) -> Bounds:
        """Includes an interval in `low` and `high`, and returns it."""
        self.low, self.high = -greater(-self.low, -bounds[0]), greater(self.high, bounds[1])
        return bounds

    def size(self, x: AnySize) -> Bounds:
        """The interval of a size."""
        if not isinstance(x, Size):
            return self.seen((x, x))
        total: Bounds | None = None
        for monomial, coef in x.terms:
            value = self.seen((coef, coef)) if coef != 1 or not monomial else None
            for name in monomial:
                factor = self.seen(self.ranges.get(name, (1, 2**31 - 1)))
                value = factor if value is None else self.product(value, factor)
            assert value is not None
            total = value if total is None else self.sum(total, value)
        assert total is not None
        return total

    def sum(self, a: Bounds, b: Bounds) -> Bounds:
        """The sum of two intervals."""
        return self.seen((a[0] + b[0], a[1] + b[1]))

    def product(self, a: Bounds, b: Bounds) -> Bounds:
        """The product of two intervals."""
        ends = [x * y for x in a for y in b]
        low = high = ends[0]
        for end in ends[1:]:
            low, high = -greater(-low, -end), greater(high, end)
        return self.seen((low, high))

    @staticmethod
    def floordiv(a: Bounds, b: Bounds) -> Bounds:
        """The quotient of an interval by a divisor that is positive, although its lower bound may not be."""
        least = b[0] if isinstance(b[0], Size) else max(b[0], 1)
        return (0 if known(a[0], ">=", 0) else a[0]), a[1] // least

    @staticmethod
    def mod(a: Bounds, b: Bounds) -> Bounds:
        """The remainder of an interval after division by a positive one."""
        return 0, a[1] if known(a[1], "<", b[1]) and known(a[1], ">=", 0) else b[1] - 1


def greater(a: AnySize, b: AnySize) -> AnySize:
    """The greater of two sizes, or an upper bound of both if their order is unknown and neither is negative."""
    if known(a, ">=", b):
        return a
    if known(b, ">=", a):
        return b
    return a + b if known(a, ">=", 0) and known(b, ">=", 0) else max(a, b)
