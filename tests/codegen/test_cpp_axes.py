"""Which loops C++ kernels have, as far as speed depends on it, and that their results are right."""

import pytest
import torch
import torch.nn.functional as F
from kernel_groups import check
from op_samples import lowered

import pyframe
from inductor.codegen import codegen
from inductor.schedule import schedule


def source_of(fn, *args):
    graph = lowered(fn, *args)
    source, _ = codegen(schedule(graph), graph)
    return "".join(source.texts())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("width", [16, 24, 40])
def test_a_tensor_read_in_another_shape_is_loaded_in_vectors(dtype, width):
    x = torch.randn(3, 5, 7, width).to(dtype)
    heads = lambda x: x.transpose(1, 2).reshape(3, 7, -1) * 2  # noqa: E731
    assert "setlane" not in source_of(heads, x)
    check(heads, x)
    check(lambda x: (x.transpose(1, 2).reshape(3, 7, -1).sum(-1), x.permute(2, 0, 3, 1).reshape(7, -1) + 1), x, rtol=1e-2)


def test_dimensions_that_are_not_divided():
    x = torch.randn(4, 6, 10)
    check(lambda x: x.transpose(0, 1).reshape(-1, 5) + 1, x)
    check(lambda x: (x.transpose(0, 1).reshape(-1), x.reshape(8, 30).t().reshape(-1)), x)


def test_short_rows_are_reduced_in_columns():
    points = torch.randn(33, 3), torch.randn(50, 3)
    distances = lambda a, b: (a[:, None] - b[None]).pow(2).sum(-1)  # noqa: E731
    assert "hsum" not in source_of(distances, *points)
    check(distances, *points)
    check(lambda x: (x.sum(-1), x.amax(-1), x.argmax(-1)), torch.randn(37, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16, torch.bool])
def test_gathers(dtype):
    x, at = (torch.randn(9, 41) * 50).to(dtype), torch.randint(-41, 41, (9, 67))
    check(lambda x, at: x[torch.arange(9)[:, None], at], x, at)
    if dtype.is_floating_point:
        check(lambda x, at: x.gather(1, at % 41).sum(-1), x, at, rtol=2e-2)


@pytest.mark.parametrize("bad", [41, -42, 2**40, -(2**40)])
@pytest.mark.parametrize("place", [0, 7, 15, 16, 66])
def test_an_index_out_of_bounds_in_any_lane(bad, place):
    at = torch.zeros(67, dtype=torch.int64)
    at[place] = bad
    with pytest.raises(IndexError):
        check(lambda x, at: x[at] + 1, torch.randn(41), at)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_of_64_bits(dtype):
    x, y = torch.randint(-(2**31), 2**31 - 1, (2, 77)).to(dtype)
    check(lambda x, y: (x + y, x * y, x - y, -x, x.abs(), x & y, x | y, x ^ y, ~x), x, y, rtol=0, atol=0)
    check(lambda x, y: (x < y, x >= y, x == y, torch.where(x > y, x, y), x.clamp(-5, 9), x.sign()), x, y, rtol=0, atol=0)
    check(lambda x, y: (x.float(), x.double(), x.to(torch.int32), x.bool(), x // 7, x % 7), x, y, rtol=0, atol=0)
    check(lambda x, y: (x << 3, y >> 2, x.sum(), x.max(), x.min(), x.argmax()), x, y, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(37, 64), (20, 200), (3, 5, 130)])
def test_several_passes_over_blocks_of_columns(shape):
    x, scale = torch.randn(shape), torch.randn(shape[-1])
    dims = tuple(range(len(shape) - 1))
    softmax = lambda x, s: (x * s).flatten(0, -2).softmax(0) + s  # noqa: E731
    assert source_of(softmax, x, scale).count("GCC unroll") == 3
    check(softmax, x, scale)
    check(lambda x, s: ((x - x.mean(dims)) / (x.std(dims) + 1) * s, x.flatten(0, -2).argmax(0) * 2, x.amin(dims)), x, scale)
    check(lambda x, s: (x.sum(dims) / x.flatten(0, -2).max(0).values).relu() * x, x, scale, rtol=1e-4)
    check(lambda i: i.flatten(0, -2).sum(0) % (i.flatten(0, -2).amax(0) + 1) + i, (x * 9).long().abs())
    nan = x.clone()
    nan[0, ..., 3] = float("nan")
    check(lambda x: (x.flatten(0, -2).softmax(0).nan_to_num(7.0), x.flatten(0, -2).amax(0).nan_to_num(5.0)), nan)
    check(lambda x, s: F.pad(x.flatten(0, -2).sum(0), (2, 3)) + 1, x, scale)


def test_several_passes_over_columns_of_sizes_that_vary():
    compiled = pyframe.compile(lambda x: x.softmax(0), dynamic=True, options={"measure": False})
    for shape in [(30, 100), (17, 64), (2, 77), (50, 300), (40, 20)]:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), x.softmax(0))
