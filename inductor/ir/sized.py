"""`SizedTensor`: the metadata of a fake tensor with Sizes in place of SymInts.

It has the methods and attributes of a tensor that lowerings read (`AnyTensor`), so that they need not distinguish the
two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, overload

import torch

from .size import AnySize, same


class AnyTensor(Protocol):
    """What lowerings read of the value of a node, which is a fake tensor or a `SizedTensor`: mypy checks that they read
    nothing that only one of the two has. Sizes are typed as ints, as everywhere in lowerings."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def layout(self) -> torch.layout: ...
    def size(self, dim: int, /) -> int: ...
    @overload
    def stride(self) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int, /) -> int: ...
    def dim(self) -> int: ...
    def numel(self) -> int: ...
    def is_contiguous(self, memory_format: torch.memory_format = ...) -> bool: ...


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

    def size(self, dim: int) -> AnySize:
        """The size of a dimension."""
        return self.shape[dim]

    @overload
    def stride(self) -> tuple[AnySize, ...]: ...
    @overload
    def stride(self, dim: int) -> AnySize: ...
    def stride(self, dim: int | None = None) -> Any:
        """The strides, in elements, or that of one dimension."""
        return self.strides if dim is None else self.strides[dim]

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

