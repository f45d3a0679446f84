"""`SizedTensor`: the metadata of a fake tensor with Sizes in place of SymInts.

It has the methods and attributes of a tensor that lowerings read, so that they need not distinguish the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .size import AnySize, same


@dataclass(frozen=True, eq=False)
class SizedTensor:
    """The metadata of a fake tensor, with Sizes in place of SymInts."""

    shape: tuple[AnySize, ...]
    strides: tuple[AnySize, ...]
    offset: AnySize
    device: torch.device
    dtype: torch.dtype
    layout: torch.layout

    @staticmethod
    def of(x: torch.Tensor, number: Callable[[Any], AnySize]) -> SizedTensor:
        """The metadata of a fake tensor; `number` converts each of its ints and SymInts."""
        size, stride = tuple(map(number, x.shape)), tuple(map(number, x.stride()))
        return SizedTensor(size, stride, number(x.storage_offset()), x.device, x.dtype, x.layout)

    def stride(self) -> tuple[AnySize, ...]:
        """The strides, in elements."""
        return self.strides

    def storage_offset(self) -> AnySize:
        """The offset into the storage, in elements."""
        return self.offset

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numel(self) -> AnySize:
        """The number of elements."""
        return math.prod(self.shape)

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """Like `Tensor.is_contiguous`; False if contiguity is not certain for all values of the symbols."""
        if memory_format is torch.contiguous_format:
            order = range(len(self.shape))
        elif memory_format is torch.channels_last and len(self.shape) == 4:
            order = (0, 2, 3, 1)  # type: ignore[assignment]
        else:
            return False
        expected: AnySize = 1
        for d in reversed(order):
            if not same(self.shape[d], 1):
                if not same(self.strides[d], expected):
                    return False
                expected = expected * self.shape[d]
        return True
