"""`torch.cov` and `torch.corrcoef` in captures: one graph where the number of observations is known to be enough."""

from __future__ import annotations

import contextlib

import pytest
import torch

import pyframe
from pyframe.testing import CompileCounter

INPUTS = {
    "matrix": torch.randn(3, 5),
    "vector": torch.randn(5),
    "two observations": torch.randn(3, 2),
    "integers": torch.randint(0, 9, (3, 5)),
    "float64": torch.randn(3, 5, dtype=torch.float64),
    "complex": torch.randn(3, 5, dtype=torch.complex64),
    "constant": torch.ones(2, 4),
    "transposed": torch.randn(5, 3).t(),
}
PROGRAMS = {
    "cov": lambda x: torch.cov(x),
    "method": lambda x: x.cov(),
    "no correction": lambda x: torch.cov(x, correction=0) * 2,
    "corrcoef": lambda x: torch.corrcoef(x),
    "method corrcoef": lambda x: x.corrcoef(),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", INPUTS)
def test_one_graph(name, kind, backend):
    x = INPUTS[kind]
    found = pyframe.compile(PROGRAMS[name], backend=backend, fullgraph=True)(x)
    wanted = PROGRAMS[name](x)
    assert found.dtype == wanted.dtype and found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_gradients():
    x = torch.randn(3, 5, requires_grad=True)

    def loss(x):
        return (torch.cov(x) + torch.corrcoef(x)).square().sum()

    (found,) = torch.autograd.grad(pyframe.compile(loss, fullgraph=True)(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(loss(x), x)[0])


def test_number_of_observations_that_varies():
    counter = CompileCounter()
    compiled = pyframe.compile(lambda x: torch.cov(x), backend=counter)
    for count in (4, 5, 6, 7, 1):
        x = torch.randn(3, count)
        with pytest.warns(UserWarning, match="degrees of freedom") if count == 1 else contextlib.nullcontext():
            torch.testing.assert_close(compiled(x), torch.cov(x), equal_nan=True)
    assert counter.frame_count <= 3


@pytest.mark.parametrize(
    "options", [{"fweights": torch.tensor([1, 2, 1])}, {"aweights": torch.tensor([0.5, 0.25, 0.75])}, {"correction": 3}], ids=str
)
def test_called_as_it_is(options):
    x = torch.randn(2, 3)
    compiled = pyframe.compile(lambda x: torch.cov(x, **options), backend="eager")
    torch.testing.assert_close(compiled(x), torch.cov(x, **options), equal_nan=True)


@pytest.mark.parametrize("x", [torch.ones(2, 2, 2), torch.tensor([True, False])])
def test_errors(x):
    with pytest.raises(RuntimeError, match="cov"):
        pyframe.compile(lambda x: torch.cov(x), backend="eager")(x)
