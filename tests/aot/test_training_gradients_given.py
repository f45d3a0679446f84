"""Gradients of kinds that a compiled backward is not made for, and tensors of inference mode, as in eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import pyframe


@pytest.mark.filterwarnings("ignore:inductor. the backward of a tensor subclass or of a sparse")
def test_sparse_gradients_go_on_to_other_pieces():
    def scaled(w, i):
        return F.embedding(i, w * 2, sparse=True).sum()

    def also_dense(w, i):
        return F.embedding(i, w * 2, sparse=True).sum() + (w * 3).sum()

    for fn in (scaled, also_dense):
        seen = []
        for run in (fn, pyframe.compile(fn)):
            w = torch.ones(3, 2, requires_grad=True)
            run(w, torch.tensor([0, 1, 1])).backward()
            seen.append((w.grad.layout, w.grad.to_dense().tolist()))
        assert seen[0] == seen[1]


@pytest.mark.filterwarnings("ignore:inductor. a backward after some saved tensors were mutated")
def test_batched_gradients():
    def fn(x):
        return x.sin() * x

    want, got = (
        torch.autograd.grad(run(x), x, torch.eye(3), is_grads_batched=True)
        for run in (fn, pyframe.compile(fn))
        for x in [torch.rand(3, generator=torch.Generator().manual_seed(1)).requires_grad_()]
    )
    torch.testing.assert_close(got, want)


def test_results_of_an_inference_block():
    def fn(x):
        with torch.inference_mode():
            z = x.exp()
        return x * 2, z.clone()

    for run in (fn, pyframe.compile(fn)):
        x = torch.ones(3, requires_grad=True)
        y, z = run(x)
        y.sum().backward()
        assert not z.requires_grad and not z.is_inference() and x.grad.tolist() == [2.0] * 3


@pytest.mark.filterwarnings("ignore:inductor. a backward after some saved tensors were mutated")
def test_backward_of_results_one_by_one():
    """Without `retain_graph`: eager raises where two results have a part of the graph in common, or saved values that
    were written since."""
    def apart(x, y):
        return (x * y).sum(), (x + y).exp().sum()

    def in_common(x, y):
        z = (x * y).exp()
        return z.sum(), (z * z).sum()

    def outcome(fn, write, order):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        results = fn(x, y)
        try:
            for k, keep in order:
                results[k].backward(retain_graph=keep)
                if write:
                    with torch.no_grad():
                        y.add_(1)
        except RuntimeError:
            return "error"
        return x.grad.tolist(), y.grad.tolist()

    orders = [((0, False), (1, False)), ((0, False), (0, False)), ((0, True), (1, False), (0, False)), ((1, False),)]
    for fn in (apart, in_common):
        compiled = pyframe.compile(fn)
        for write in (False, True):
            for order in orders:
                got, want = outcome(compiled, write, order), outcome(fn, write, order)
                assert (got == "error") == (want == "error") or write, (fn.__name__, write, order)
                if want != "error" and got != "error":
                    torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
                assert want != "error" or got == "error", (fn.__name__, write, order)


def test_a_gradient_that_is_zero_whatever_the_tangent_is():
    """Asked for alone, and as a result beside one from which another result is computed."""

    def fn(x, y):
        doubled = x * 2
        return y.sgn(), doubled, doubled.cos()

    for roots in ([0], [1], [0, 1, 2]):
        found = []
        for run in (fn, pyframe.compile(fn)):
            x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
            results = run(x, y)
            sums = [results[i].sum() for i in roots]
            found.append(torch.autograd.grad(sums, [x, y], allow_unused=True))
        assert [g is None for g in found[0]] == [g is None for g in found[1]]
        torch.testing.assert_close(found[1], found[0])
