"""What ATen's kernels refuse is refused for lists of tensors, in place and in the backward as well."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pyframe

CALLS: list[tuple[Any, list[Any]]] = [
    (lambda xs: torch._foreach_sub(xs, True), [torch.ones(3)]),
    (lambda xs: torch._foreach_sub_(xs, True), [torch.ones(3)]),
    (torch._foreach_frac, [torch.ones(3, dtype=torch.int64)]),
    (torch._foreach_frac_, [torch.ones(3, dtype=torch.int64)]),
    (torch._foreach_norm, [torch.ones(3, dtype=torch.int64)]),
    (lambda xs: xs[0] - True, [torch.ones(3)]),
    (lambda xs: xs[0].sub_(True), [torch.ones(3)]),
    (lambda xs: True - xs[0], [torch.ones(3)]),
]


@pytest.mark.filterwarnings("ignore:inductor")
@pytest.mark.parametrize("fn, given", CALLS)
def test_refused(fn: Any, given: list[Any]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as eager:
        fn([x.clone() for x in given])
    with pytest.raises(eager.type):
        pyframe.compile(lambda xs: fn([x * 1 for x in xs]))(given)


@pytest.mark.filterwarnings("ignore:inductor")
def test_refused_in_the_backward() -> None:
    def backward(fn: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        fn(x, y).backward()

    x, y = torch.rand(4, dtype=torch.float16, requires_grad=True), torch.rand(4, requires_grad=True)
    huber = torch.nn.functional.huber_loss
    with pytest.raises(RuntimeError):
        backward(huber, x, y)
    with pytest.raises(RuntimeError):
        backward(pyframe.compile(huber), x, y)


def test_a_learning_rate_that_varies_is_no_reason() -> None:
    def step(xs: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        return torch._foreach_mul(xs, rate)

    compiled = pyframe.compile(step, fullgraph=True, options={"strict": True})
    for rate in (0.5, 0.25, 0.125):
        assert torch.equal(compiled([torch.ones(3).bfloat16()], rate)[0], torch.full((3,), rate).bfloat16())
