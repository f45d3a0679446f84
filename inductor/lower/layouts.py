"""Layouts of the values of a graph: of fake tensors, and checks of views."""

from __future__ import annotations

from typing import Any, cast

import torch

from ..errors import Unsupported
from ..ir.buffer import Buffer, Layout
from ..ir.size import Size, hint
from ..ir.sized import AnyTensor, SizedTensor

OPAQUE = "opaque"  # in the metadata of a placeholder: as in InputBuffer


def outermost_first(layout: Layout) -> list[int]:
    """The dimensions of a view, by descending stride."""
    return sorted(range(len(layout.size)), key=lambda d: -hint(layout.stride[d]))


def check_within(view: Layout, buffer: Buffer) -> None:
    """Raises Unsupported if a view exceeds its buffer. In eager the storage may be larger, or the view is an error."""
    if view.numel and (view.offset < 0 or view.extent > buffer.layout.extent):
        raise Unsupported("a view of more memory than its source covers")


def same_strides(layout: Layout, stride: tuple[int, ...]) -> bool:
    """Whether the strides are those of the layout, but for dimensions of at most one element."""
    return all(n <= 1 or a == b for n, a, b in zip(layout.size, layout.stride, stride))


def check_static(val: Any) -> None:
    """Raises Unsupported if the size of a result is unknown or it has no strides."""
    for v in val if isinstance(val, tuple | list) else (val,):
        if is_tensor(v):
            _check_layout(v)


def is_tensor(val: Any) -> bool:
    """Whether the metadata of a node describes a tensor."""
    return isinstance(val, torch.Tensor | SizedTensor)


def static_layout(tensor: AnyTensor) -> Layout:
    """The layout of a (fake) tensor. Raises Unsupported for unknown sizes and for layouts without strides."""
    _check_layout(tensor)
    return Layout.of(cast(torch.Tensor, tensor))  # a SizedTensor has Sizes in place of ints


def _check_layout(tensor: AnyTensor) -> None:
    if tensor.layout != torch.strided:
        raise Unsupported(f"a tensor of layout {tensor.layout}")
    if isinstance(tensor, torch.Tensor) and not tensor._has_symbolic_sizes_strides:
        return
    if any(type(n) not in (int, Size) for n in (*tensor.shape, *tensor.stride())):
        raise Unsupported("a size that is not known at compile time")
