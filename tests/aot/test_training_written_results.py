"""A result that the backward reads is written after the call: gradients that do not depend on it are those of eager."""

import pytest
import torch

import pyframe


def f(x, y):
    return x.var() + 1, torch.dist(x, y), y.sin()


def gradients(fn, write, root):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, generator=generator, requires_grad=True) for _ in range(2))
    results = fn(x, y)
    with torch.no_grad():
        for tensor in write(x, results):
            tensor.mul_(2)
    return torch.autograd.grad(results[root].sum(), [x, y], allow_unused=True, retain_graph=True)


@pytest.mark.parametrize("root", [0, 2])
def test_gradients_of_other_results(root):
    wanted = gradients(f, lambda x, results: [results[1]], root)
    found = gradients(pyframe.compile(f), lambda x, results: [results[1]], root)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("fn", [f, pyframe.compile(f)], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("write", "root"), [(lambda x, results: [results[1]], 1), (lambda x, results: [x, results[1]], 0)]
)
def test_what_was_written_and_is_read_is_an_error(fn, write, root):
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(fn, write, root)
