"""Measures tensors and differences of tensors: root mean square and largest magnitude of the finite elements.

Also measures how errors are distributed: correlated with the tensor, which rounding errors are not, or in single
elements. Tensors are processed in pieces, so that a hundred million numbers need no whole copy in float64. A tensor on
the GPU that is compared with one on the CPU is moved there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

PIECE = {"cpu": 1 << 20, "cuda": 1 << 26}  # elements
TRIMMED = 1000  # the largest one in so many errors is excluded from `Outlier.rest`


class Size(NamedTuple):
    """Of the finite elements; 0 where there are none."""

    rms: float
    peak: float


def size(value: torch.Tensor) -> Size:
    return _size(_wide(x) for x in _pieces(value))


def difference(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> Size:
    """The size of `a - b`. Infinities count as the largest number of `dtype`, because rounding decides which numbers
    near it overflow; where both are the same infinity, as in masked elements, nothing is measured."""
    pairs = _pairs(a, b)
    if a.is_complex() or b.is_complex():
        return _size(x.to(torch.complex128) - y.to(torch.complex128) for x, y in pairs)
    most = torch.finfo(dtype).max
    return _size(_saturated_difference(x.double(), y.double(), most) for x, y in pairs)


def _saturated_difference(x: torch.Tensor, y: torch.Tensor, most: float) -> torch.Tensor:
    return (x.clamp(-most, most) - y.clamp(-most, most)).masked_fill(x.isinf() & (x == y), float("nan"))


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from value.detach().reshape(-1).split(PIECE[value.device.type])


def _pairs(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The pieces of two tensors, on the CPU if one of them is there."""
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    yield from zip(_pieces(a), _pieces(b), strict=True)


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


def bias(a: torch.Tensor, b: torch.Tensor) -> float:
    """The part of the error `a - b` that is a multiple of `b`, as root mean square: what a wrong factor makes."""
    along = squares = 0.0
    count = 0
    for x, y in _pairs(a, b):
        x, y = x.double(), y.double()
        finite = x.isfinite() & y.isfinite()
        x, y = x[finite], y[finite]
        along += float(((x - y) * y).sum())
        squares += float(y.square().sum())
        count += y.numel()
    return abs(along) / (squares * count) ** 0.5 if squares else 0.0


class Outlier(NamedTuple):
    """`peak`: the largest error of an element beyond `part` of the element; `rest`: the root mean square of the errors
    but for the largest thousandth of them."""

    peak: float
    rest: float


def outlier(a: torch.Tensor, b: torch.Tensor, part: float) -> Outlier:
    peak = squares = 0.0
    count = 0
    largest = torch.zeros(1, dtype=torch.float64, device=a.device if a.device == b.device else "cpu")
    most = max(1, a.numel() // TRIMMED)
    for x, y in _pairs(a, b):
        x, y = x.double(), y.double()
        error = (x - y).abs()
        finite = error.isfinite()
        error = error[finite]
        if not error.numel():
            continue
        peak = max(peak, float((error - part * y[finite].abs()).max()))
        squares += float(error.square().sum())
        count += error.numel()
        largest = torch.cat([largest, error])
        largest = largest.topk(min(most, len(largest))).values
    rest = max(0.0, squares - float(largest.square().sum()))
    return Outlier(peak, (rest / count) ** 0.5 if count else 0.0)
