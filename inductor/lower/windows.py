"""A window that slides over the last dimensions, used by pooling and depthwise convolution, and the windows that
contain an element of the input, used by their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import TensorValue
from ..ir.size import known
from ..ir.symbolic import Index, bounds

_INT = torch.int64
Test = Callable[[], Any]  # emits a comparison


def for_each_dim(value: Any, dims: int) -> tuple[int, ...]:
    """Expands one number, or a list of one, to a number for each of `dims` dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * dims if len(values) == 1 else values)


def pair(value: Any) -> tuple[int, ...]:
    """Expands one number, or a list of one or two, to a pair."""
    return for_each_dim(value, 2)


@dataclass(frozen=True)
class Window:
    """A window of `kernel` taps per dimension that moves by `stride` over the last dimensions of an input, which have
    `size`, with padding and dilation."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def dims(self) -> int:
        """The number of dimensions over which the window moves."""
        return len(self.size)

    def taps(self) -> Iterator[tuple[int, ...]]:
        """All positions inside the window."""
        yield from itertools.product(*map(range, self.kernel))

    @property
    def area(self) -> int:
        """The number of taps."""
        return math.prod(self.kernel)

    def at(self, index: Sequence[Index], tap: Sequence[Index]) -> list[Index]:
        """The input index that a tap reads for output position `index`. In the padding it is outside the input."""
        places = zip(index[-self.dims :], self.stride, tap, self.dilation, self.padding)
        return [*index[: -self.dims], *(i * s + k * d - p for i, s, k, d, p in places)]

    def number(self, place: Sequence[Index]) -> Index:
        """The position of a place among all elements of the input, counted row by row."""
        found: Index = 0
        for i, n in zip(place, self.size):
            found = found * n + i
        return found

    def within(self, place: Sequence[Index]) -> Any:
        """A mask for whether an index is inside the input, or None if the ranges of its variables say that it is."""
        limits = [(i, n, *bounds(i)) for i, n in zip(place[-self.dims :], self.size)]
        return _all([test for i, n, low, high in limits for test in self._bounds(i, high, n, low)])

    def inside(self, index: Sequence[Index], tap: Sequence[int], out: Sequence[int]) -> Any:
        """A mask for whether a tap of output position `index` is inside the input, or None if it always is. `out` is
        the size of the output."""
        tests = []
        for d, place in enumerate(self.at(index, tap)[-self.dims :]):
            low = tap[d] * self.dilation[d] - self.padding[d]
            tests += self._bounds(place, low + (out[d] - 1) * self.stride[d], self.size[d], low)
        return _all(tests)

    def load(
        self, x: TensorValue, index: Sequence[Index], tap: Sequence[int], out: Sequence[int],
        outside: float, prepare: Callable[[Any], Any] = lambda v: v,
    ) -> Any:
        """`prepare(element under the tap)`, or the constant `outside` in the padding."""
        place, mask = self.at(index, tap), self.inside(index, tap, out)
        if mask is None:
            return prepare(x.load(place))
        return ops.masked(mask, lambda: prepare(x.load(place)), outside)

    def readers(self, pixel: Sequence[Index], out: Sequence[int]) -> Iterator[tuple[list[Index], list[Index], Any]]:
        """The taps that may read the element of the input at `pixel` (its last coordinates), out of all output
        positions: (output position, tap, mask for whether there is such a tap, or None). `out` is the size of the
        output."""
        for along in itertools.product(*(list(self._along(d, pixel[d], out[d])) for d in range(self.dims))):
            positions, taps, tests = zip(*along)
            yield list(positions), list(taps), _all([test for of_dim in tests for test in of_dim])

    def _along(self, d: int, place: Index, out: int) -> Iterator[tuple[Index, Index, list[Test]]]:
        """`readers` along one dimension: (output coordinate, tap, tests that must all be true)."""
        step, taps, spread, padding = self.stride[d], self.kernel[d], self.dilation[d], self.padding[d]
        place, last = place + padding, self.size[d] - 1 + padding
        if step == 1 or spread > 1:
            for k in range(taps):
                before = -(-k * spread // step)  # keeps the dividend nonnegative
                reached = place - k * spread + before * step
                tests = self._bounds(reached // step - before, (last - k * spread) // step, out, padding - k * spread)
                exact = [] if step == 1 else [_test("eq", reached % step, 0)]
                yield reached // step - before, k, tests + exact
            return
        # Every step-th tap reads the element, the first one being the remainder.
        for k in range(-(-taps // step)):
            position, tap = place // step - k, place % step + k * step
            tests = self._bounds(position, last // step - k, out, padding // step - k)
            yield position, tap, tests + ([_test("lt", tap, taps)] if (k + 1) * step > taps else [])

    @staticmethod
    def _bounds(position: Index, highest: int, out: int, lowest: int) -> list[Test]:
        """The tests for whether a coordinate between `lowest` and `highest` is one of `out` places. Where that depends
        on sizes, such as on whether one is even, it is tested, not assumed."""
        low = [] if known(lowest, ">=", 0) else [_test("ge", position, 0)]
        return low if known(highest, "<", out) else [*low, _test("lt", position, out)]


def _test(name: str, a: Index, b: int) -> Test:
    return lambda: getattr(ops, name)(ops.index_expr(a, _INT), ops.constant(b, _INT))


def _all(tests: Iterable[Test]) -> Any:
    """A mask that is true where all tests are; None without tests."""
    mask = None
    for test in tests:
        mask = test() if mask is None else ops.logical_and(mask, test())
    return mask
