"""Strides of results for arguments whose dimensions lie in memory in another order, where torch's fake tensors or
decompositions have others than eager."""

import operator

import pytest
import torch
import torch.nn.functional as F

import pyframe

OPERATORS = {
    "rrelu": lambda x: F.rrelu(x),
    "rrelu in place": lambda x: F.rrelu(x.clone(), inplace=True),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "a number to a power": lambda x: 2**x,
    "pow": lambda x: torch.pow(2, x),
    "__rpow__": lambda x: x.__rpow__(2),
    "float_power": lambda x: torch.float_power(2, x),
    "isin": lambda x: torch.isin(x, x[0]),
    "angle": lambda x: torch.complex(x, x).angle(),
    "select_scatter": lambda x: torch.select_scatter(x + 1, x.contiguous()[1], 0, 0),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2),
    "operator.pow": lambda x: operator.pow(2.0, x),
}


@pytest.mark.parametrize("training", [False, True])
def test_strides_are_those_of_eager(training):
    for name, fn in OPERATORS.items():
        x = torch.rand(5, 7).t()
        want, got = (call(x.clone().requires_grad_(training)) for call in (fn, pyframe.compile(fn)))
        assert got.stride() == want.stride(), name
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(("dims", "layout"), [(2, torch.channels_last), (3, torch.channels_last_3d)])
def test_padded_channels_last(dims: int, layout: torch.memory_format, mode: str, dynamic: bool) -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 1) * dims, mode=mode)

    x = torch.randn(2, 4, *[6] * dims).to(memory_format=layout).requires_grad_()
    expected, result = padded(x), pyframe.compile(padded, dynamic=dynamic)(x)
    assert result.stride() == expected.stride()
    gradients = [torch.autograd.grad(y.sin().sum(), x)[0] for y in (expected, result)]
    torch.testing.assert_close(gradients[1], gradients[0], check_stride=True)
