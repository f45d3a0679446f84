"""`index_copy`, `index_put` and `index_fill` of whole rows, in a copy, as loops on the CPU."""

import pytest
import torch
from kernel_groups import check, run

import pyframe

SETTINGS = {"measure": False, "cache": False}
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
]


def in_loops(fn, *args):
    return len(run(fn, *args)[0]) == 2  # the copy, and the rows


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [8, 16, 37])
def test_rows(dtype, columns):
    x, y = (torch.randn(12, columns) * 9).to(dtype), (torch.randn(5, columns) * 9).to(dtype)
    at = torch.tensor([3, 0, 11, 7, 4])
    programs = (
        lambda x, y, at: x.index_copy(0, at, y), lambda x, y, at: x.index_put((at - 12,), y),
        lambda x, y, at: x.index_put((at,), y[0]), lambda x, y, at: x.index_fill(0, at, 1),
        lambda x, y, at: torch.cat([x, x])[None].index_copy(1, at * 2, y[None]),
    )  # fmt: skip
    for fn in programs:
        check(fn, x, y, at)
    assert in_loops(programs[0], x, y, at)
    assert in_loops(programs[1], x, y, at)


def test_two_indices_and_outer_dimensions():
    x, y, at = torch.randn(4, 6, 5, 16), torch.randn(3, 5, 16), torch.tensor([0, 3, 2])
    check(lambda x, y, at: x.index_put((at, at + 1), y), x, y, at)
    z = torch.randn(4, 3, 5, 16)
    check(lambda x, z, at: x.index_copy(1, at, z), x, z, at)


def test_the_last_of_equal_positions_remains():
    x, y, at = torch.zeros(6, 32), torch.randn(40, 32), torch.arange(40) % 6
    fn = lambda x, y, at: x.index_copy(0, at, y)  # noqa: E731
    assert torch.equal(pyframe.compile(fn, options=SETTINGS)(x, y, at), y[torch.tensor([36, 37, 38, 39, 34, 35])])


def test_wide_rows_by_several_threads():
    """Each thread takes a part of the columns, so that rows are written in order."""
    x, y, at = torch.zeros(3, 40000), torch.randn(64, 40000), torch.arange(64) % 3
    got = pyframe.compile(lambda x, y, at: x.index_put((at,), y), options=SETTINGS)(x, y, at)
    assert torch.equal(got, y[torch.tensor([63, 61, 62])])


def test_indices_out_of_range():
    x, y = torch.randn(12, 16), torch.randn(2, 16)
    copy = pyframe.compile(lambda x, y, at: x.index_copy(0, at, y) + 1, options=SETTINGS)
    put = pyframe.compile(lambda x, y, at: x.index_put((at,), y) + 1, options=SETTINGS)
    assert torch.equal(put(x, y, torch.tensor([-1, -12])), x.index_put((torch.tensor([-1, -12]),), y) + 1)
    for fn, bad in [(copy, -1), (copy, 12), (put, 12), (put, -13)]:
        with pytest.raises((IndexError, RuntimeError)):
            fn(x, y, torch.tensor([0, bad]))


def test_gradients_and_no_rows():
    x, y, at = torch.randn(6, 16, requires_grad=True), torch.randn(2, 16, requires_grad=True), torch.tensor([4, 1])
    fn = lambda x, y, at: x.index_copy(0, at, y).sin()  # noqa: E731
    got = torch.autograd.grad(pyframe.compile(fn, options=SETTINGS)(x, y, at).sum(), (x, y))
    torch.testing.assert_close(got, torch.autograd.grad(fn(x, y, at).sum(), (x, y)))
    empty = torch.tensor([], dtype=torch.int64)
    torch.testing.assert_close(pyframe.compile(fn, options=SETTINGS)(x, y[:0], empty), x.sin())


def test_sizes_that_vary():
    fn = pyframe.compile(lambda x, y, at: x.index_copy(0, at, y) * 2, dynamic=True, options=SETTINGS)
    for rows, columns in [(9, 16), (5, 33), (30, 9)]:
        x, y, at = torch.randn(rows, columns), torch.randn(3, columns), torch.randperm(rows)[:3]
        assert torch.equal(fn(x, y, at), x.index_copy(0, at, y) * 2)
