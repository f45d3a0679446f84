"""Losses and other functions of two tensors of different dtypes: dtypes, values, gradients and errors are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pyframe

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "l1_loss": F.l1_loss,
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "soft_margin_loss": F.soft_margin_loss,
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy": lambda x, y: F.cross_entropy(x, y.softmax(-1)),
    "kl_div": F.kl_div,
    "poisson_nll_loss": F.poisson_nll_loss,
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, torch.ones_like(x)),
    "hinge_embedding_loss": F.hinge_embedding_loss,
    "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x)),
    "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(4)),
    "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, y * 2),
    "multilabel_soft_margin_loss": F.multilabel_soft_margin_loss,
    "cosine_similarity": F.cosine_similarity,
    "pairwise_distance": F.pairwise_distance,
    "layer_norm": lambda x, y: F.layer_norm(x, (5,), y[0], y[0]),
    "rms_norm": lambda x, y: F.rms_norm(x, (5,), y[0]),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "where": lambda x, y: torch.where(x > 0.5, x, y),  # noqa: PLR2004
    "xlogy": torch.xlogy,
    "logaddexp": torch.logaddexp,
    "linear": F.linear,
    "outer": lambda x, y: torch.outer(x[0], y[0]),
}
PAIRS = [
    (torch.float16, torch.float32), (torch.float32, torch.bfloat16), (torch.float32, torch.float64),
    (torch.bfloat16, torch.float16),
]  # fmt: skip
TOLERANCE = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 1e-5}


def outcome(fn: Any, x: torch.Tensor, y: torch.Tensor) -> list[Any]:
    """The result and the gradients, or the type of the exception and where it was raised."""
    x, y = (t.clone().requires_grad_() for t in (x, y))
    try:
        result = fn(x, y)
    except Exception as error:
        return [type(error)]
    try:
        result.sum().backward()
    except Exception as error:
        return [type(error), result.dtype]
    return [result.detach(), x.grad, y.grad]


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_two_dtypes(name: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    fn = FUNCTIONS[name]
    torch.manual_seed(0)
    x, y = (torch.rand(4, 5).clamp(min=0.1).to(dtype) for dtype in dtypes)
    want, exact = outcome(fn, x, y), outcome(fn, x.double(), y.double())
    pyframe.reset()
    got = outcome(pyframe.compile(fn), x, y)
    kinds = [[(v.dtype, v.shape) if isinstance(v, torch.Tensor) else v for v in values] for values in (want, got)]
    assert kinds[0] == kinds[1]
    tolerance = max(TOLERANCE.get(dtype, 0.0) for dtype in dtypes)
    for eager, ours, right in zip(want, got, exact):
        if isinstance(eager, torch.Tensor):
            error, eagers = ((value.double() - right).abs().max().item() for value in (ours, eager))
            assert error <= 3 * eagers + tolerance
