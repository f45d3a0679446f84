"""Values that are computed once before the loops of a C++ kernel, and kept in tables."""

import pytest
import torch
from kernel_groups import check
from test_cpp_axes import source_of

import pyframe

SETTINGS = {"measure": False, "cache": False}


def before_loops(fn, *args):
    """Whether a kernel has a table, which is the only array of a kernel with one phase."""
    return "alignas(64)" in source_of(fn, *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("columns", [1, 5, 16, 37, 64])
def test_columns_at_indices(dtype, columns):
    x, at = (torch.randn(20, 24) * 9).to(dtype), torch.randint(-24, 24, (columns,))
    fn = lambda x, at: (x.index_select(1, at % 24), x[:, at])  # noqa: E731
    if columns > 1:
        assert before_loops(lambda x, at: x.index_select(1, at % 24), x, at)
    check(fn, x, at)


def test_indices_out_of_range():
    x, good = torch.randn(20, 24), torch.tensor([0, 23, -1, -24])
    fn = pyframe.compile(lambda x, at: x[:, at] * 2, options=SETTINGS)
    assert torch.equal(fn(x, good), x[:, good] * 2)
    for bad in (24, -25, 2**40):
        with pytest.raises(IndexError):
            fn(x, torch.tensor([0, 1, 2, bad]))
    assert torch.equal(fn(x, good), x[:, good] * 2)


@pytest.mark.parametrize("columns", [8, 33])
def test_functions_of_what_is_broadcast(columns):
    x, w = torch.randn(4, 12, columns), torch.rand(columns)
    check(lambda x, w: x * w.exp(), x, w)
    check(lambda x, w: x + (w[None] * torch.arange(12)[:, None]).sin(), x, w)
    check(lambda x, w: (x * w.exp()).softmax(-1), x, w)
    check(lambda x, w: (x * w.exp()).sum(-1) + x.amax(-1), x, w)
    check(lambda x, w: torch.where(w > 0.5, w.log(), x), x, w)
    assert before_loops(lambda x, w: x * w.exp(), x, w)
    assert before_loops(lambda x, w: x.repeat(3, 1, 1) + (w[None] * torch.arange(12)[:, None]).sin(), x, w)


def test_values_that_a_kernel_changes():
    """A value of a buffer that the kernel writes is computed where it is used."""

    def fn(x, w):
        y = x * w.exp()
        w.mul_(2)
        x.add_(w.exp())
        return y, x * w.exp()

    args = torch.randn(16, 24), torch.rand(24)
    own, other = ([a.clone() for a in args] for _ in range(2))
    torch.testing.assert_close(pyframe.compile(fn, options=SETTINGS)(*own), fn(*other))
    torch.testing.assert_close(own, other)


def test_sizes_that_vary():
    fn = pyframe.compile(lambda x, at: x[:, at % 7] * 2, dynamic=True, options=SETTINGS)
    for rows, columns in [(20, 24), (9, 33), (64, 8)]:
        x, at = torch.randn(rows, 7), torch.randint(0, 90, (columns,))
        assert torch.equal(fn(x, at), x[:, at % 7] * 2)


def test_no_rows():
    x, at = torch.randn(0, 24), torch.tensor([0, 23])
    check(lambda x, at: x[:, at] * 2, x, at)
