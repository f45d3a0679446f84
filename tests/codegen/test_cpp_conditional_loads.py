"""Loads under conditions in C++ loops: of whole rows, under masks, and in the parts of a row."""

import pytest
import torch

import pyframe

SETTINGS = {"measure": False, "cache": False}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool]


def argument(dtype, *size):
    return torch.randint(0, 2 if dtype == torch.bool else 100, size).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [5, 16, 37])
def test_rows_beyond_the_edge(columns, dtype):
    """All lanes read or none does: rows of zeros above and below, with steps of 1, 2, 3 and -1 along the row."""
    x = argument(dtype, 6, columns * 3)

    def fn(x):
        steps = x[:, :columns], x[:, : 2 * columns : 2], x[:, ::3], x[:, :columns].flip(-1), x[:, :1].expand(-1, columns)
        return [torch.nn.functional.pad(y, (0, 0, 2, 1)) for y in steps]

    for got, want in zip(pyframe.compile(fn, options=SETTINGS)(x), fn(x)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_that_vary_along_a_row(dtype):
    """A mask for each lane: the columns of a patch that are in the image, by a remainder of the row's number."""
    x = argument(dtype, 2, 19)

    def fn(x):
        return torch.nn.functional.pad(x.unsqueeze(1).expand(-1, 3, -1).reshape(6, 19), (3, 2))

    assert torch.equal(pyframe.compile(fn, options=SETTINGS)(x), fn(x))
    if dtype.is_floating_point:
        unfold = lambda x: torch.nn.functional.unfold(x[None, None], 3, padding=1)  # noqa: E731
        for n in (1, 15, 16, 17, 40):
            image = argument(dtype, 5, n)
            assert torch.equal(pyframe.compile(unfold, options=SETTINGS)(image), unfold(image))


@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_parts_of_a_row_with_other_steps(size):
    """Conditions on 2 x and on -x split the loop where they change."""
    x, y = torch.randn(4, size), torch.randn(4, 2 * size + 3)

    def fn(x, y):
        at = torch.arange(size)
        return torch.where(2 * at - 5 < size, x, x.flip(-1)) + torch.where(size - 3 - at >= 2, 1.0, y[:, 3::2])

    torch.testing.assert_close(pyframe.compile(fn, options=SETTINGS)(x, y), fn(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_stacks_of_tensors_in_memory(dtype):
    x, y = argument(dtype, 3, 21), argument(dtype, 21, 3).t()
    for fn in (lambda x, y: torch.stack((x, y), -1), lambda x, y: torch.stack((x[:, ::2], y[:, ::2]), -1)):
        assert torch.equal(pyframe.compile(fn, options=SETTINGS)(x, y), fn(x, y))
