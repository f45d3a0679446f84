"""Operators that ATen runs get their arguments with the strides that they have in eager."""

import pytest
import torch
import torch.nn.functional as F

import pyframe


@torch.library.custom_op("pyframe_tests::strides_of", mutates_args=())
def strides_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride())


@strides_of.register_fake
def _(x):
    return x.new_empty(x.dim(), dtype=torch.int64)


PROGRAMS = {
    "rows of a padded tensor": lambda x: strides_of(F.pad(x + 1, (0, 3))[..., :5]),
    "a padded mask, repeated": lambda x: strides_of(F.pad(x + 1, (0, 3))[..., :5].expand(3, 4, 5)),
    "repeated": lambda x: strides_of((x + 1)[None].expand(3, 4, 5)),
    "every second column": lambda x: strides_of((x + 1)[:, ::2]),
    "without the first column": lambda x: strides_of((x + 1)[:, 1:]),
    "flipped and transposed": lambda x: strides_of((x * 2).flip(1).t()[1:]),
    "windows": lambda x: strides_of((x + 1).unfold(1, 3, 1)),
    "a slice of an input": lambda x: strides_of(x[1:, 2:]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_are_those_of_eager(name):
    x = torch.randn(4, 5)
    assert pyframe.compile(PROGRAMS[name])(x).tolist() == PROGRAMS[name](x).tolist()
