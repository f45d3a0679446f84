"""Linear interpolation of signals, images and volumes, element by element as ATen's kernels compute it.

torch's decomposition computes `v0 + (v1 - v0) * w`. Where one neighbour is infinite that gives NaN for ATen's
`v0 * (1 - w) + v1 * w`, and where the neighbours differ much in size the smaller one is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
# Overloads that take output sizes or one list of scale factors, and those that take one scale per dimension.
LINEAR_VEC = (aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
LINEAR = (aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)


def linear_vec(
    x: torch.Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> torch.Tensor:
    """The overloads `vec` of `upsample_linear1d`, `upsample_bilinear2d` and `upsample_trilinear3d`."""
    sizes = upsample_compute_output_size(x.shape, output_size, scale_factors)
    return linear(x, sizes, align_corners, *(scale_factors or ()))


def linear(
    x: torch.Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> torch.Tensor:
    """Interpolates the dimensions of `x` from the third on to `output_size`. `scales` has the factor of each of these
    dimensions; without one, the ratio of the sizes is used. `x` has a floating-point dtype."""
    wide = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    sizes = x.shape[2:]
    factors = scales or (None,) * len(sizes)
    copied = [size == out for size, out in zip(sizes, output_size)]
    if x.is_cuda and not all(copied):  # its kernels treat equal sizes differently only if all dimensions have them
        copied = [False] * len(sizes)
    memory_format = suggest_memory_format(x)
    if x.is_cuda:
        if all(copied):
            return x.clone(memory_format=memory_format)
        if x.shape[1] < 16:  # noqa: PLR2004  fewer channels than its channels-last kernels take
            memory_format = torch.contiguous_format
    lower, upper, weights = [], [], []
    for d, (size, out, factor) in enumerate(zip(sizes, output_size, factors)):
        shape = [out] + [1] * (len(sizes) - 1 - d)
        first, second, weight = _neighbours(x.device, wide, size, out, align_corners, factor, copied[d])
        lower.append(first.reshape(shape))
        upper.append(second.reshape(shape))
        weights.append(weight.reshape(shape))
    source = x.to(wide)  # before the indexing, so that gradients are summed in the wide dtype and rounded once
    values = [
        aten._unsafe_index(source, [None, None, *(pair[side] for pair, side in zip(zip(lower, upper), sides))])
        for sides in itertools.product((0, 1), repeat=len(sizes))
    ]
    for weight in reversed(weights):
        values = [v0 * (1 - weight) + v1 * weight for v0, v1 in zip(values[::2], values[1::2])]
    return values[0].to(x.dtype).contiguous(memory_format=memory_format)


def _neighbours(
    device: torch.device, dtype: torch.dtype, size: int, out: int, align_corners: bool, factor: float | None,
    copied: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """For each of `out` positions along a dimension of `size` elements: the indices of its two neighbours, and the
    weight of the second."""
    positions = torch.arange(out, device=device)
    if copied:
        return positions, positions, torch.zeros_like(positions, dtype=dtype)
    if align_corners:
        at = positions.to(dtype) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        scale = 1.0 / factor if factor is not None and factor > 0 else size / out
        at = ((positions.to(dtype) + 0.5) * scale - 0.5).clamp(min=0)
    first = at.to(torch.int64).clamp(max=size - 1)
    second = (first + 1).clamp(max=size - 1)
    return first, second, (at - first).clamp(0, 1)
