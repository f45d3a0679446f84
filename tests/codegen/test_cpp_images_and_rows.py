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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("columns", [64, 37, 3])
def test_elements_that_are_added(dtype, columns):
    x, base = ((torch.randn(n, columns) * 9).to(dtype) for n in (7, 9))
    at, rows = torch.randint(0, columns, (7, columns)), torch.randint(0, 9, (7, columns))
    fn = lambda base, at, x: base.scatter_add(1, at, x * 2)  # noqa: E731
    assert "check_index" in source_of(fn, base, at, x)
    check(fn, base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.scatter_add(1, at.flip(1), x), base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.scatter_add(1, (at + 1) % at.shape[1], x), base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base.scatter_add(0, at, x), base, rows, x, rtol=0, atol=0)
    check(lambda base, at, x: base[0].scatter_add(0, at[:, 0], x[:, 0]), base, at, x, rtol=0, atol=0)
    check(lambda base, at, x: base[0].index_put((at[0] - 3,), x[0], accumulate=True), base, at, x, rtol=0, atol=0)


def test_elements_that_threads_add():
    """Threads share rows that are apart in memory, and no others."""

    def source(dim, at, x, base):
        kernels = source_of(lambda base, at, x: base.scatter_add(dim, at, x), base, at, x).split("extern")
        return next(kernel for kernel in kernels if "check_index" in kernel)

    x, at = torch.randn(999, 300), torch.randint(0, 3, (999, 300))
    assert "omp" in source(1, at, x, torch.zeros(999, 400))
    assert "omp" not in source(0, at.view(-1), x.view(-1), torch.zeros(3))
    assert "parallel for\n  for (int64_t lo" in source(0, at[:, :1].expand(-1, 300), x, torch.zeros(7, 300))


@pytest.mark.parametrize("threads", [1, 2])
def test_elements_are_added_in_order(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, at = torch.randn(300, 500) * 1e4, torch.randint(0, 3, (300, 500))
        fn = lambda at, x: (x.new_zeros(300, 3).scatter_add(1, at, x), x.new_zeros(3, 500).scatter_add(0, at, x))  # noqa: E731
        for got, want in zip(pyframe.compile(fn, options={"measure": False})(at, x), fn(at, x)):
            assert torch.equal(got, want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", [64, -1])
def test_elements_added_out_of_bounds(bad):
    base, x, at = torch.zeros(5, 64), torch.randn(5, 64), torch.randint(0, 64, (5, 64))
    at[3, 50] = bad
    of_eager = base.clone()
    fn = lambda base, at, x: base.scatter_add_(1, at, x) + 1  # noqa: E731
    with pytest.raises((IndexError, RuntimeError)):
        fn(of_eager, at, x)
    with pytest.raises((IndexError, RuntimeError)):
        pyframe.compile(fn)(base, at, x)
    assert torch.equal(base, of_eager)


def test_classes_that_are_counted():
    classes = torch.randint(0, 64, (5000,))
    fn = lambda c: (F.one_hot(c, 64).float().mean(0), F.one_hot(c, 64).sum(0), F.one_hot(c[:9], 70))  # noqa: E731
    check(fn, classes)
    compiled = pyframe.compile(lambda c: F.one_hot(c, 64).float().mean(0))
    torch.testing.assert_close(compiled(classes), fn(classes)[0])
    for bad in (64, -1):
        with pytest.raises(RuntimeError, match="Class values"):
            compiled(torch.cat([classes[1:], torch.tensor([bad])]))
