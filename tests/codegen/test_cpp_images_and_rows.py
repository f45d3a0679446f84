"""C++ kernels that repeat the pixels of images, add rows at indices, and count classes."""

import pytest
import torch
import torch.nn.functional as F
from kernel_groups import check
from test_cpp_axes import source_of

import pyframe


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("size", [(16, 16), (5, 7), (3, 40)])
@pytest.mark.parametrize("factor", [2, 4, (2, 1), (3, 5), (8, 16), 1.5, (2, 2.5)])
def test_nearest_neighbours(dtype, size, factor):
    x = (torch.randn(2, 3, *size) * 9).to(dtype)
    check(lambda x: F.interpolate(x, scale_factor=factor), x)
    check(lambda x: F.interpolate(x, scale_factor=factor), x.to(memory_format=torch.channels_last))
    check(lambda x: F.interpolate(x, size=(size[0] * 7, size[1] * 2)), x)


def test_nearest_neighbours_are_loaded_once():
    assert "ld_repeat" in source_of(lambda x: F.interpolate(x, scale_factor=2.0), torch.randn(1, 3, 8, 32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("columns", [64, 37, 8])
def test_rows_that_are_added(dtype, columns):
    x, base = ((torch.randn(n, columns) * 9).to(dtype) for n in (50, 7))
    at = torch.randint(0, 7, (50,))
    fn = lambda base, at, x: base.index_add(0, at, x * 2)  # noqa: E731
    assert "st(b0" in source_of(fn, base, at, x)
    check(fn, base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.scatter_add(0, at[:, None].expand(-1, columns), x), base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.index_put((at - 3,), x, accumulate=True), base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.index_add(1, at[:5] % columns, x[:7, :5]), base, at, x, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [7, -1])
def test_rows_added_out_of_bounds(bad):
    base, x, at = torch.zeros(7, 64), torch.randn(5, 64), torch.tensor([0, 3, bad, 2, 6])
    kept = base.clone()
    with pytest.raises((IndexError, RuntimeError)):
        pyframe.compile(lambda base, at, x: base.index_add_(0, at, x) + 1)(base, at, x)
    assert torch.equal(base, kept)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_added_in_order(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, at = torch.randn(4000, 300) * 1e4, torch.randint(0, 3, (4000,))
        want = x.new_zeros(3, 300).index_add(0, at, x)
        compiled = pyframe.compile(lambda at, x: x.new_zeros(3, 300).index_add(0, at, x), options={"measure": False})
        assert torch.equal(compiled(at, x), want)
    finally:
        torch.set_num_threads(before)


def test_classes_that_are_counted():
    classes = torch.randint(0, 64, (5000,))
    fn = lambda c: (F.one_hot(c, 64).float().mean(0), F.one_hot(c, 64).sum(0), F.one_hot(c[:9], 70))  # noqa: E731
    check(fn, classes)
    compiled = pyframe.compile(lambda c: F.one_hot(c, 64).float().mean(0))
    torch.testing.assert_close(compiled(classes), fn(classes)[0])
    for bad in (64, -1):
        with pytest.raises(RuntimeError, match="Class values"):
            compiled(torch.cat([classes[1:], torch.tensor([bad])]))
