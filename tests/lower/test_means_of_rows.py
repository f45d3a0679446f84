"""`index_reduce` with means of rows as loops on the CPU."""

import pytest
import torch
from kernel_groups import check, run

import pyframe

pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS = {"measure": False, "cache": False}


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32], ids=str)
def test_means(dtype, include_self):
    x, at, y = (torch.randn(9, 19) * 20).to(dtype), torch.randint(0, 7, (40,)), (torch.randn(40, 19) * 20).to(dtype)

    def fn(x, at, y):
        return x.index_reduce(0, at, y, "mean", include_self=include_self)

    assert run(fn, x, at, y)[0]
    check(fn, x, at, y)
    check(lambda x, at, y: x[None].index_reduce(1, at, y[None], "mean", include_self=include_self), x, at, y)


def test_other_reductions_and_columns():
    x, at, y = torch.randn(9, 19), torch.randint(0, 9, (40,)), torch.randn(40, 19)
    for reduce in ("amax", "prod"):
        check(lambda x, at, y, reduce=reduce: x.index_reduce(0, at, y, reduce), x, at, y)
    check(lambda x, at, y: x.t().index_reduce(1, at, y.t(), "mean"), x, at, y)
    check(lambda x, at, y: x.index_reduce(1, at[:5], y[:9, :5], "mean"), x, at, y)
    half = x.bfloat16()
    check(lambda x, at, y: x.index_reduce(0, at, y, "mean"), half, at, y.bfloat16())


def test_indices_out_of_range_and_none():
    x, y = torch.randn(9, 16), torch.randn(2, 16)
    fn = pyframe.compile(lambda x, at, y: x.index_reduce(0, at, y, "mean"), options=SETTINGS)
    for bad in (9, -1):
        with pytest.raises((IndexError, RuntimeError)):
            fn(x, torch.tensor([0, bad]), y)
    assert torch.equal(fn(x, torch.tensor([], dtype=torch.int64), y[:0]), x)
