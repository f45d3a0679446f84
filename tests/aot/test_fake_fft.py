"""Fake Fourier transforms against real ones: sizes, strides and dtypes."""

from __future__ import annotations

import random

import torch

from inductor.aot.fake import fake_mode

aten = torch.ops.aten


def _layout(x):
    return tuple(x.shape), tuple(step for n, step in zip(x.shape, x.stride(), strict=True) if n > 1), x.dtype


def _call(rng):
    """An operator, a tensor of any order of dimensions, the dimensions to transform, and the last argument."""
    rank = rng.randint(1, 4)
    op = rng.choice([aten._fft_r2c, aten._fft_c2c, aten._fft_c2r])
    dtype = torch.float32 if op is aten._fft_r2c else torch.complex64
    x = torch.randn([rng.randint(2, 5) for _ in range(rank)], dtype=dtype).permute(rng.sample(range(rank), rank))
    if rng.random() < 0.2:
        x = x[..., ::2]
    dims = rng.sample(range(rank), rng.randint(1, rank))
    last = x.shape[dims[-1]] * 2 - 1 if op is aten._fft_c2r else rng.random() < 0.5
    return op.default, x, (dims, 0, last)


def test_strides_of_fourier_transforms():
    rng, mode = random.Random(0), fake_mode()
    for _ in range(200):
        op, x, rest = _call(rng)
        want = op(x, *rest)
        with mode:
            got = op(mode.from_tensor(x), *rest)
        assert _layout(got) == _layout(want), (op, x.shape, x.stride(), rest)
