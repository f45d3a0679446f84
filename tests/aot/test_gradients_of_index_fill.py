"""The gradient of a value that index_fill writes: torch's formula looks for the distinct indices."""

import pytest
import torch

import pyframe


@pytest.mark.filterwarnings("ignore:inductor")
@pytest.mark.parametrize("indices", [[0, 0], [3, 1, 1, 0, 0], [0, 1, 2, 3, 4]])
def test_gradient_of_the_value(indices):
    def fn(x, index, value):
        return x.index_fill(-1, index, value)

    results = []
    for run in (fn, pyframe.compile(fn)):
        x, value = torch.ones(5, 5, requires_grad=True), torch.ones((), requires_grad=True)
        run(x, torch.tensor(indices), value).sum().backward()
        results.append((x.grad, value.grad))
    torch.testing.assert_close(results[1], results[0])
