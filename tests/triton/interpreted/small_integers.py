"""Sums and products of integers of fewer than 32 bits wrap around as in eager, also where they stay in registers."""

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_results_of_rows(dtype):
    def fn(x):
        rows = x.sum(1, dtype=dtype)
        return rows.sum(), rows.to(torch.float32) / 2, x.prod(0, dtype=dtype).amax(), rows + 1 > rows

    x = torch.randint(-100, 100, (5, 900))
    got = Runner(fn, x, graph=lowered(fn, x, prepare=lambda gm: on_gpu(gm))).run(x)
    torch.testing.assert_close(tuple(got), fn(x))
