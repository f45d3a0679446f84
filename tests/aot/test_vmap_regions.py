"""Graphs of torch.compile with `torch.vmap`: each vmapped part is one node, which the compiler traces through."""

from __future__ import annotations

import pytest
import torch

CASES = {
    "two_arguments": lambda x, y: torch.vmap(lambda a, b: (a * b).sin())(x, y) + 1,
    "nested": lambda x, y: torch.vmap(torch.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x, y).sum(0),
    "two_results": lambda x, y: torch.vmap(lambda a, b: (a @ b, a - b))(x, y),
    "writes": lambda x, y: torch.vmap(lambda a, b: a.clone().mul_(b).add_(a))(x, y),
    "twice": lambda x, y: torch.vmap(lambda a: a.cumsum(0))(torch.vmap(torch.mul)(x, y)),
    "written_input": lambda x, y: (torch.vmap(lambda a, b: a.copy_(b))(x.clone(), y), x),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_vmap_captured_by_torch(name, gradients):
    leaves = [torch.randn(3, 4, requires_grad=gradients) for _ in range(2)]
    fn = CASES[name]
    found = torch.compile(fn, backend="pyframe_inductor", fullgraph=True)(*leaves)
    torch.testing.assert_close(found, fn(*leaves))
    if gradients:
        total = lambda out: sum(t.square().sum() for t in (out if isinstance(out, tuple) else (out,)))  # noqa: E731
        grads = torch.autograd.grad(total(found), leaves)
        torch.testing.assert_close(grads, torch.autograd.grad(total(fn(*leaves)), leaves))
