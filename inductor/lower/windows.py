"""A window that slides over the last two dimensions, used by pooling and depthwise convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import TensorValue
from ..ir.symbolic import Index


def pair(value: Any) -> tuple[int, int]:
    """Expands one number, or a list of one or two, to a pair."""
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


@dataclass(frozen=True)
class Window:
    """A window of `kernel` taps per dimension that moves by `stride` over an input of `size`, with padding and
    dilation."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)

    def taps(self) -> Iterator[tuple[int, int]]:
        """All positions inside the window."""
        yield from ((i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1]))

    @property
    def area(self) -> int:
        """The number of taps."""
        return self.kernel[0] * self.kernel[1]

    def at(self, index: Sequence[Index], tap: tuple[int, int]) -> list[Index]:
        """The input index that a tap reads for output position `index`. In the padding it is outside the input."""
        places = zip(index[-2:], self.stride, tap, self.dilation, self.padding)
        return [*index[:-2], *(i * s + k * d - p for i, s, k, d, p in places)]

    def inside(self, index: Sequence[Index], tap: tuple[int, int], out: Sequence[int]) -> Any:
        """A mask for whether a tap of output position `index` is inside the input, or None if it always is. `out` is
        the size of the output."""
        mask = None
        for d, place in enumerate(self.at(index, tap)[-2:]):
            low = tap[d] * self.dilation[d] - self.padding[d]
            high = low + (out[d] - 1) * self.stride[d]
            tests = []
            if low < 0:
                tests.append(ops.ge(ops.index_expr(place, torch.int64), ops.constant(0, torch.int64)))
            if high >= self.size[d]:
                tests.append(ops.lt(ops.index_expr(place, torch.int64), ops.constant(self.size[d], torch.int64)))
            for test in tests:
                mask = test if mask is None else ops.logical_and(mask, test)
        return mask

    def load(
        self, x: TensorValue, index: Sequence[Index], tap: tuple[int, int], out: Sequence[int],
        outside: float, prepare: Callable[[Any], Any] = lambda v: v,
    ) -> Any:
        """`prepare(element under the tap)`, or the constant `outside` in the padding."""
        place, mask = self.at(index, tap), self.inside(index, tap, out)
        if mask is None:
            return prepare(x.load(place))
        return ops.masked(mask, lambda: prepare(x.load(place)), outside)
