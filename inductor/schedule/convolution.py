"""2-d convolutions in channels_last as matrix products (implicit GEMM).

Each pixel of the result is a row of the first factor: the elements of the image below the filter there, tap by tap and
channel by channel. That matrix is never in memory; the kernel computes where each of its elements is. The filters,
whose channels are contiguous, are the second factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.buffer import ExternKernel, Layout

TARGET = torch.ops.aten.convolution.default
DTYPES = (torch.bfloat16, torch.float16)  # in float32 cuDNN uses TF32, as a setting says that may change later


@dataclass(frozen=True)
class Convolution:
    """A convolution of an image [n, channels, height, width] with filters [filters, channels, taps down, taps across].

    Pairs are (down, across).
    """

    image: Layout
    filters: Layout
    result: Layout
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @staticmethod
    def of(kernel: ExternKernel) -> Convolution:
        """The convolution that a call of `aten.convolution` computes."""
        image, filters, _, stride, padding, dilation, *_ = kernel.args
        result = kernel.outputs[0]
        assert result is not None
        return Convolution(
            image.layout, filters.layout, result.layout, _pair(stride), _pair(padding), _pair(dilation)
        )

    @property
    def channels(self) -> int:
        """The channels of the image."""
        return self.filters.size[1]

    @property
    def taps(self) -> tuple[int, int]:
        """The taps of a filter."""
        return self.filters.size[2], self.filters.size[3]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The rows, the length of the sum, and the columns of the product."""
        n, filters, *pixels = self.result.size
        return n * math.prod(pixels), self.channels * math.prod(self.taps), filters

    def reaches_outside(self, dimension: int) -> tuple[bool, bool]:
        """Whether some tap lies before the first pixel, or behind the last one, along a dimension (0: down)."""
        last = (self.result.size[2 + dimension] - 1) * self.stride[dimension] - self.padding[dimension]
        last += (self.taps[dimension] - 1) * self.dilation[dimension]
        return self.padding[dimension] > 0, last >= self.image.size[2 + dimension]


def _pair(values: Any) -> tuple[int, int]:
    return values[0], values[-1]


def is_eligible(kernel: ExternKernel) -> bool:
    """Whether there is a template for this call of `aten.convolution`, given that its sizes are static and it has one
    dtype: 2-d, not transposed, without groups, and image, filters and result in channels_last."""
    _, _, _, *numbers, transposed, _, groups = kernel.args
    if transposed or groups != 1 or any(type(n) is not int for pair in numbers for n in pair):
        return False
    found = Convolution.of(kernel)
    if len(found.result.size) != 4 or found.result.dtype not in DTYPES:
        return False
    n, channels, height, width = found.result.size
    dense = (height * width * channels, 1, width * channels, channels)
    strides = zip(found.result.size, found.result.stride, dense)
    in_order = all(size == 1 or stride == own for size, stride, own in strides)
    return in_order and all(at.size[1] == 1 or at.stride[1] == 1 for at in (found.image, found.filters))
