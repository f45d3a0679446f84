"""Embedding bags of one length as loops: which are rewritten, and that results and gradients are ATen's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import pyframe
from benchmarks.aten_calls import CountingBackend
from inductor.passes import embedding_bags

TABLE = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
INDICES = torch.tensor([[1, 3, 3, 19], [0, 2, 5, 3], [3, 3, 3, 3]])
WEIGHTS = torch.rand(3, 4, generator=torch.Generator().manual_seed(1))

REWRITTEN: dict[str, Callable[..., torch.Tensor]] = {
    "sum": lambda i, t, w: F.embedding_bag(i, t, mode="sum"),
    "mean": lambda i, t, w: F.embedding_bag(i, t, mode="mean"),
    "weights": lambda i, t, w: F.embedding_bag(i, t, mode="sum", per_sample_weights=w),
    "padding": lambda i, t, w: F.embedding_bag(i, t, mode="sum", padding_idx=3),
    "weights and padding": lambda i, t, w: F.embedding_bag(i, t, mode="sum", per_sample_weights=w, padding_idx=3),
}
OTHERS: dict[str, Callable[..., torch.Tensor]] = {  # which the pass leaves to the lowering
    "max": lambda i, t, w: F.embedding_bag(i, t, mode="max"),
    "mean with padding": lambda i, t, w: F.embedding_bag(i, t, mode="mean", padding_idx=3),
    "offsets": lambda i, t, w: F.embedding_bag(i.flatten(), t, i[:, 0].cumsum(0) - 1, mode="sum"),
}
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "gradients by frequency": lambda i, t, w: F.embedding_bag(i, t, mode="sum", scale_grad_by_freq=True),
}


def _calls(fn: Callable[..., torch.Tensor]) -> set[str]:
    """The bag operators that are called on a GPU, in inference and training."""
    backend = CountingBackend()
    pyframe.compile(fn, backend=backend)(INDICES, TABLE.clone().requires_grad_(), WEIGHTS.clone().requires_grad_())
    assert not backend.not_lowered
    return {op for calls in backend.calls.values() for op in calls if "embedding_bag" in op}


@pytest.mark.parametrize("name", REWRITTEN)
def test_bags_of_one_length_are_loops_on_a_gpu(name: str) -> None:
    assert not _calls(REWRITTEN[name])


@pytest.mark.parametrize("name", OTHERS)
def test_bags_with_offsets_are_loops_on_a_gpu(name: str) -> None:
    assert not _calls(OTHERS[name])


@pytest.mark.parametrize("name", CALLS)
def test_other_bags_are_calls_of_aten(name: str) -> None:
    assert _calls(CALLS[name])


@pytest.mark.parametrize("name", REWRITTEN)
def test_results_and_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_bags, "DEVICES", ("cpu",))
    found = []
    rewrite = embedding_bags._REWRITES.copy()

    def counted(node: fx.Node, given: Any, bags: Any, fn: Any) -> Any:
        made = fn(node, given, bags)
        found.append(made is not None)
        return made

    for target, fn in rewrite.items():
        monkeypatch.setitem(embedding_bags._REWRITES, target, functools.partial(counted, fn=fn))
    results = []
    for run in (REWRITTEN[name], pyframe.compile(REWRITTEN[name], options={"strict": True, "cache": False})):
        table, weights = TABLE.clone().requires_grad_(), WEIGHTS.clone().requires_grad_()
        out = run(INDICES, table, weights)
        gradients = torch.autograd.grad(out, (table, weights), torch.ones_like(out) * 2, allow_unused=True)
        results.append((out, *[g for g in gradients if g is not None]))
    torch.testing.assert_close(results[1], results[0])
    assert found and all(found)


def test_an_index_out_of_bounds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_bags, "DEVICES", ("cpu",))
    for wrong in (20, -1):
        with pytest.raises((IndexError, RuntimeError)):
            pyframe.compile(REWRITTEN["sum"])(torch.full((2, 3), wrong), TABLE, WEIGHTS)
