"""Division of integers by tensors in C++ loops."""

import operator

import pytest
import torch
from kernel_groups import check

import pyframe

SETTINGS = {"measure": False, "cache": False}
DTYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
OPERATORS = [
    operator.floordiv, operator.mod, torch.fmod, lambda x, y: torch.div(x, y, rounding_mode="trunc")
]  # fmt: skip


def arguments(dtype):
    limits = torch.iinfo(dtype)
    x = torch.randint(max(limits.min, -(2**60)), min(limits.max, 2**60), (7, 37)).to(dtype)
    x[2] = x[2] % 100
    return x, torch.where(x[1] % 13 == 0, 1, x[1] % 13), torch.arange(-18, 37)[::1][:37].to(dtype) * 2 + 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("divide", OPERATORS, ids=["floordiv", "mod", "fmod", "trunc"])
def test_quotients(divide, dtype):
    x, y, z = arguments(dtype)
    (group,) = check(divide, x, y, kernels=1)
    assert group.members
    check(lambda x, z: divide(x, z) + 1, x[:, :37], z, kernels=1)
    check(lambda x, y: divide(x.t(), y[:, None]), x, y, kernels=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("divide", OPERATORS, ids=["floordiv", "mod", "fmod", "trunc"])
def test_zero(divide, dtype):
    x, y, _ = arguments(dtype)
    fn = pyframe.compile(lambda x, y: divide(x, y) * 2, options=SETTINGS)
    for place in (0, 15, 16, 36):
        bad = y.clone()
        bad[place] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fn(x, bad)
        assert torch.equal(fn(x, y), divide(x, y) * 2)


def test_zero_beside_a_write():
    """What the call wrote before the error is what eager writes before it."""

    def fn(x, y):
        x.add_(1)
        return x // y

    x, y = torch.arange(40), torch.arange(40)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pyframe.compile(fn, options=SETTINGS)(x, y)
    assert torch.equal(x, torch.arange(1, 41))


def test_sizes_that_vary():
    fn = pyframe.compile(lambda x, y: x // y + x % y, dynamic=True, options=SETTINGS)
    for rows, columns in [(3, 5), (4, 33), (0, 7), (16, 16)]:
        x, y = torch.randint(-99, 99, (rows, columns)), torch.randint(1, 9, (columns,))
        assert torch.equal(fn(x, y), x // y + x % y)
