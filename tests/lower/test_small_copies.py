"""`cat` of a few short parts that are in memory, on the CPU."""

import pytest
import torch
from kernel_groups import check, run

import pyframe

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [8, 16, 37])
def test_parts(dtype, columns):
    x, y = (torch.randn(6, columns) * 3).to(dtype), (torch.randn(6, 21) * 3).to(dtype)
    check(lambda x, y: torch.cat((x, y), 1), x, y, kernels=1)
    check(lambda x, y: torch.cat((x, y, x), -1), x, y, kernels=1)
    check(lambda x: torch.cat((x, x[1:4])), x, kernels=1)
    check(lambda x, y: torch.cat((x[:, ::2], y), 1), x, y)
    check(lambda x, y: torch.cat((x.t(), y.t())), x, y)


def test_shapes_and_memory_formats():
    x, y = torch.randn(2, 8, 5, 7), torch.randn(2, 3, 5, 7)
    check(lambda x, y: torch.cat((x, y), 1), x, y, kernels=1)
    last = [t.to(memory_format=torch.channels_last) for t in (x, y)]
    check(lambda x, y: torch.cat((x, y), 1), *last)
    assert pyframe.compile(lambda x, y: torch.cat((x, y), 1))(*last).is_contiguous(memory_format=torch.channels_last)
    check(lambda x: torch.cat((x, torch.empty(0))), x)
    check(lambda x: torch.cat((x, x[:0])), x)


def test_only_empty_parts():
    check(lambda x: torch.cat((x[:0] * 2, x[:0])), torch.randn(3))


def test_long_or_narrow_parts_are_copied_by_aten():
    for x in (torch.randn(300, 200), torch.randn(50, 2)):
        assert not run(lambda x, y: torch.cat((x, y), 1), x, x + 0)[0]


def test_the_result_is_a_copy():
    x = torch.randn(4, 16)
    out = pyframe.compile(lambda x: torch.cat((x,), 1))(x)
    out.zero_()
    assert x.any()
