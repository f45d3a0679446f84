"""A result that is a part of a tensor that the backward pass needs has the strides and storage that eager gives it."""

from __future__ import annotations

import pytest
import torch

import pyframe

PROGRAMS = {
    "column": lambda x: x.sigmoid()[:, 0],
    "columns of a transposed tensor": lambda x: x.sigmoid().t()[2:5].unsqueeze(0),
    "row of an inverse, which is column-major": lambda x: torch.linalg.inv(x)[1:2],
    "one of many": lambda x: torch.linalg.inv(x).split(2, 0)[0],
    "one of many, a single row": lambda x: torch.linalg.inv(x).split(1, 0)[0],
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_layout_and_gradient_are_as_in_eager(program):
    x = (torch.eye(7) * 4 + torch.arange(49.0).reshape(7, 7) / 49).requires_grad_()
    result, expected = pyframe.compile(program)(x), program(x)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride() and result.storage_offset() == expected.storage_offset()
    assert result.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    (own,), (wanted,) = (torch.autograd.grad(y.sum(), x) for y in (result, expected))
    torch.testing.assert_close(own, wanted)


def test_writing_to_the_part_leaves_the_backward_pass_right():
    x = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
    result = pyframe.compile(lambda x: x.sigmoid()[:, 0])(x)
    with torch.no_grad():
        wanted = x.sigmoid() * (1 - x.sigmoid()) * torch.tensor([1.0, 0.0, 0.0])
    result.detach().numpy()[:] = 0  # unseen by autograd, which refuses a write that it sees
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], wanted)
