"""as_strided_scatter counts its offset from the start of a storage, which a compiled graph lays out as it likes."""

import pytest
import torch

import pyframe

CASES = {
    "all of it": ((8,), (2, 4), [2, 4], [4, 1], 0),
    "a piece": ((8,), (2, 3), [2, 3], [3, 1], 1),
    "rows with gaps": ((8,), (2, 3), [2, 3], [4, 1], 1),
    "transposed": ((2, 4), (3, 2), [3, 2], [1, 3], 0),
    "every second": ((6,), (3,), [3], [2], None),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    base, src, *where = CASES[name]

    def scattered(x, y):
        return torch.as_strided_scatter(x * 2, y.sin() + 1, *where) * 3

    args = [torch.randn(base, requires_grad=True), torch.randn(src, requires_grad=True)]
    want, got = scattered(*args), pyframe.compile(scattered)(*args)
    torch.testing.assert_close(got, want)
    seed = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(got, args, seed), torch.autograd.grad(want, args, seed)):
        torch.testing.assert_close(a, b)


def test_of_a_slice_of_a_tensor():
    def scattered(x, y):
        return torch.as_strided_scatter(x[1:], y + 1, [3], [2], 5)

    x, y = torch.randn(3, 4), torch.randn(3)
    torch.testing.assert_close(pyframe.compile(scattered)(x, y), scattered(x, y))
