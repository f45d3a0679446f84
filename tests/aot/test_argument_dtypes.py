"""Operators on tensors of two floating-point dtypes: results, gradients and errors are those of ATen's kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pyframe

aten = torch.ops.aten
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPERATORS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "huber_loss": (F.huber_loss, [(4, 6)] * 2),
    "huber_loss of elements": (lambda x, y: F.huber_loss(x, y, reduction="none"), [(4, 6)] * 2),
    "soft_margin_loss": (F.soft_margin_loss, [(4, 6)] * 2),
    "prelu": (F.prelu, [(4, 6), (6,)]),
    "heaviside": (torch.heaviside, [(4, 6)] * 2),
    "cross": (torch.linalg.cross, [(4, 3)] * 2),
    "batch_norm": (lambda x, weight: F.batch_norm(x, None, None, weight, None, True), [(2, 4, 6), (4,)]),
    "softmax backward": (lambda g, y: torch._softmax_backward_data(g, y, 1, torch.float32), [(4, 6)] * 2),
    "log_softmax backward": (lambda g, y: torch._log_softmax_backward_data(g, y, 1, torch.float32), [(4, 6)] * 2),
    "glu backward": (lambda g, x: aten.glu_backward(g, x, 1), [(4, 3), (4, 6)]),
    "mish backward": (aten.mish_backward, [(4, 6)] * 2),
    "log_sigmoid backward": (lambda g, x: aten.log_sigmoid_backward(g, x, torch.zeros_like(x)), [(4, 6)] * 2),
    "threshold backward": (lambda g, x: aten.threshold_backward(g, x, 0.5), [(4, 6)] * 2),
    "mse_loss backward": (lambda g, x: aten.mse_loss_backward(g, x, x * 0.5, 0), [(4, 6)] * 2),
    "soft_margin_loss backward": (lambda g, x: aten.soft_margin_loss_backward(g, x, x * 0.5, 0), [(4, 6)] * 2),
    "binary_cross_entropy backward": (
        lambda g, x: aten.binary_cross_entropy_backward(g, x, x * 0.5, None, 0), [(4, 6)] * 2
    ),
}  # fmt: skip


def outcome(fn: Callable[..., Any], args: list[torch.Tensor]) -> tuple[Any, Any]:
    """The result, or the type of the exception; and the gradients, or the type of the exception of the backward."""
    leaves = [x.clone().requires_grad_() for x in args]
    try:
        result = fn(*leaves)
    except Exception as error:
        return type(error), None
    if not result.requires_grad:
        return result, None
    try:
        return result.detach(), torch.autograd.grad(result.sum(), leaves, allow_unused=True)
    except Exception as error:
        return result.detach(), type(error)


@pytest.mark.parametrize("name", OPERATORS)
def test_as_in_eager(name: str) -> None:
    fn, sizes = OPERATORS[name]
    for kinds in itertools.permutations(DTYPES, 2):
        generator = torch.Generator().manual_seed(0)
        args = [(torch.rand(s, generator=generator) * 0.8 + 0.1).to(d) for s, d in zip(sizes, kinds, strict=True)]
        pyframe.reset()
        want, got = outcome(fn, args), outcome(pyframe.compile(fn), args)
        for expected, actual in zip(want, got, strict=True):
            if isinstance(expected, type) or expected is None:
                assert actual is expected, (kinds, expected, actual)
            else:
                low = torch.bfloat16 if torch.bfloat16 in kinds else torch.float16 if torch.float16 in kinds else None
                tolerance = {} if low is None else {"rtol": 2 * torch.finfo(low).eps, "atol": torch.finfo(low).eps}
                torch.testing.assert_close(actual, expected, msg=lambda m, k=kinds: f"{k}: {m}", **tolerance)
