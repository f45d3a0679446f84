"""`scatter_reduce`, `index_reduce`, `searchsorted` and `bucketize` as kernels for a GPU: no call of ATen, and the results
and gradients are those of eager."""

# ruff: noqa: E402
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tools.fuzz_graphs import fake_cuda

fake_cuda.install()

import pytest
import torch
from recorded_plans import PLANS, calls
from torch.testing._internal.common_methods_invocations import op_db

import pyframe

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
INF, NAN = float("inf"), float("nan")


def compared(fn, *args, exact=None):
    """Compares with eager, in float64 if the numbers are `exact` or wide; checks that ATen is not called."""
    PLANS.clear()
    want = fn(*args) if exact is None else exact
    got = pyframe.compile(fn, options={"strict": True, "cache": False})(*args)
    tolerance = 2e-2 if args[0].dtype.itemsize == 2 and args[0].is_floating_point() else 1e-5
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert calls() == []


def numbers(dtype, *size):
    if dtype.is_floating_point:
        return torch.randn(size).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 5, size).to(dtype)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_scatter_reduce(dtype, reduce, include_self):
    if dtype in INTEGERS[2:] and reduce in ("sum", "mean"):
        pytest.skip("ATen: no atomic addition to narrow integers")

    def fn(x, at, y):
        return (x * 1).scatter_reduce(1, at, y + y, reduce, include_self=include_self) + 1

    x, y, at = numbers(dtype, 5, 30), numbers(dtype, 4, 20), torch.randint(7, (4, 20))
    wide = [t.double() if dtype.is_floating_point else t for t in (x, y)]
    compared(fn, x, at, y, exact=fn(wide[0], at, wide[1]).to(dtype))


@pytest.mark.parametrize("reduce", ["mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_index_reduce(dtype, reduce):
    if dtype == torch.uint8 and reduce == "mean":
        pytest.skip("ATen: no atomic addition to narrow integers")
    x, y, at = numbers(dtype, 3, 9, 4), numbers(dtype, 3, 12, 4), torch.randint(5, (12,))
    wide = [t.double() if dtype.is_floating_point else t for t in (x, y)]
    for include_self in (True, False):

        def fn(x, at, y):
            return x.index_reduce(1, at, y, reduce, include_self=include_self).relu()  # noqa: B023

        compared(fn, x, at, y, exact=fn(wide[0], at, wide[1]).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_of_special_numbers(dtype):
    x = torch.tensor([1.0, NAN, -INF, INF, -0.0, 0.0, 3.0, -2.0]).to(dtype)
    at = torch.tensor([0, 0, 1, 2, 2, 3, 4, 4, 6, 6, 7])
    y = torch.tensor([NAN, 5, 2, -3, -INF, NAN, -1, -2, -INF, INF, -1e-7]).to(dtype)
    for reduce in ("amax", "amin"):
        for include_self in (True, False):
            compared(lambda x, at, y: x.scatter_reduce(0, at, y, reduce, include_self=include_self), x, at, y)  # noqa: B023


def test_many_equal_positions():
    x, at, y = torch.ones(3), torch.zeros(3000, dtype=torch.long), torch.ones(3000)
    y[1234:1240] = 3.0
    for reduce in ("sum", "mean", "prod", "amax", "amin"):
        compared(lambda x, at, y: x.scatter_reduce(0, at, y, reduce), x, at, y)  # noqa: B023


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
def test_gradients(reduce, include_self):
    def fn(x, at, y):
        return x.sin().scatter_reduce(0, at, y.exp(), reduce, include_self=include_self) * 3

    def gradients(call, x, y):
        leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        out = call(leaves[0], at, leaves[1])
        return out, torch.autograd.grad((out * torch.arange(1, out.numel() + 1).view(out.shape)).sum(), leaves)

    x, y, at = torch.randn(6, 4), torch.randn(9, 4), torch.randint(4, (9, 4))
    PLANS.clear()
    want, got = gradients(fn, x.double(), y.double()), gradients(pyframe.compile(fn, options={"strict": True}), x, y)
    torch.testing.assert_close(got[0].double(), want[0], rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(got[1], want[1]):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)
    assert calls() == []


def test_sums_into_an_input():
    def fn(x, at, y):
        x.scatter_reduce_(0, at, y, "sum")

    at, y = torch.randint(4, (9,)), torch.randn(9)
    x = torch.randn(5)
    want = x.scatter_reduce(0, at, y, "sum")
    PLANS.clear()
    pyframe.compile(fn, options={"strict": True, "cache": False})(x, at, y)
    torch.testing.assert_close(x, want)
    assert calls() == []


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_searches(dtype, right):
    values = numbers(dtype, 40) * 2
    row = (numbers(dtype, 7) * 2).sort().values
    values[:3] = row[[0, 3, 6]]
    if dtype.is_floating_point:
        values[3:6] = torch.tensor([NAN, INF, -INF]).to(dtype)
        row[-1] = NAN
    compared(lambda x, b: torch.bucketize(x * 1, b, right=right) * 2, values, row)
    rows = numbers(dtype, 4, 9).sort(-1).values
    side = "right" if right else "left"
    compared(lambda x, b: torch.searchsorted(b, x, out_int32=True, side=side), values.view(4, 10), rows)


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", ["scatter_reduce", "index_reduce", "searchsorted", "bucketize"])
def test_samples_of_the_operator_database(name, dtype):
    """All samples of a dtype as one graph; of those with gradients every gradient."""
    infos = [op for op in op_db if op.name == name and dtype in op.supported_dtypes("cpu")]
    samples = [(op, s) for op in infos for s in op.sample_inputs("cpu", dtype) if 0 not in s.input.shape]
    leaves = [s.input.detach().clone() for _, s in samples]
    trains = dtype.is_floating_point and infos[0].supports_autograd

    def fn(inputs):
        return [r for (op, s), x in zip(samples, inputs) for r in tensors(op(x * 1, *s.args, **s.kwargs))]

    def outcome(call):
        given = [x.clone().requires_grad_(trains) for x in leaves]
        out = call(given)
        return out, torch.autograd.grad([r.sum() for r in out], given, allow_unused=True) if trains else None

    want, got = outcome(fn), outcome(pyframe.compile(fn, options={"strict": True, "cache": False}))
    # eager rounds to half precision at each step
    torch.testing.assert_close(got, want, **({"rtol": 8e-3, "atol": 8e-3} if dtype == torch.float16 else {}))


@pytest.mark.parametrize("count", [4, 300])
def test_each_element_counts_where_neither_the_value_nor_the_position_varies(count):
    """Elements of expanded tensors: all lanes of a program change the same element by the same number."""
    index, value = torch.tensor([1]).expand(count), torch.tensor([1.5]).expand(count)
    compared(lambda x, i, y: x.scatter_add(0, i, y), torch.zeros(4), index, value)
    compared(lambda x, i, y: x.scatter_reduce(0, i, y[:20], "prod"), torch.ones(4), index[:20], value[:20])
    compared(lambda x, i, y: x.index_add(0, i, y), torch.zeros(4), index, value)
    compared(lambda x, i: x.index_put((i,), x.new_ones(()), accumulate=True), torch.zeros(4, 3), index)
