"""How large tensors and differences of tensors are: root mean square and largest element, of what is finite.

In pieces, so that a hundred million numbers need no copies in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

PIECE = 1 << 20  # elements


class Size(NamedTuple):
    """Of the finite elements; 0 where there are none."""

    rms: float
    peak: float


def size(value: torch.Tensor) -> Size:
    return _size(_wide(x) for x in _pieces(value))


def difference(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> Size:
    """The size of `a - b`.  An infinite number counts as the largest of `dtype`, since rounding decides which numbers
    near that overflow; where both are infinite alike, as what is masked is, there is no difference to be measured."""
    pairs = zip(_pieces(a), _pieces(b), strict=True)
    if a.is_complex() or b.is_complex():
        return _size(x.to(torch.complex128) - y.to(torch.complex128) for x, y in pairs)
    most = torch.finfo(dtype).max
    return _size(_saturated_difference(x.double(), y.double(), most) for x, y in pairs)


def _saturated_difference(x: torch.Tensor, y: torch.Tensor, most: float) -> torch.Tensor:
    return (x.clamp(-most, most) - y.clamp(-most, most)).masked_fill(x.isinf() & (x == y), float("nan"))


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from value.detach().reshape(-1).to("cpu").split(PIECE)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _size(pieces: Iterable[torch.Tensor]) -> Size:
    squares = peak = 0.0
    count = 0
    for piece in pieces:
        x = piece.abs()
        x = x[x.isfinite()]
        if x.numel():
            squares += float(x.square().sum())
            peak = max(peak, float(x.max()))
            count += x.numel()
    return Size((squares / count) ** 0.5 if count else 0.0, peak)
