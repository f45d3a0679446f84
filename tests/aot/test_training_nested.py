"""Gradients with respect to results of a graph from which it computes other results, against eager."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.utils import _pytree as pytree

import pyframe


def chain(x, w):
    h = torch.tanh(x @ w)
    u = h * 2 + x.sum()
    return h, u.exp().mean() + w.sum(), u


def view(x, w):
    y = x * w
    v = y[0]
    return v, (v * v).sum()


def written(x, w):
    y = x @ w
    h = y.sin() * 2
    h.add_(x.sum())
    z = h.sin() * y
    return {"h": h, "z": z, "t": z.sum()}


def layers(x, w):
    states = [x]
    for _ in range(3):
        states.append(torch.tanh(states[-1] @ w))
    return states, states[-1].sum()


def dropped(x, w):
    h = x @ w
    return h, torch.dropout(h, 0.5, True).sum()


def at_zero(x, w):
    h = (x @ w - (x @ w)).sqrt()  # whose derivative is infinite
    return h, (h * 0 + w).sum()


PROGRAMS = [chain, view, written, layers, dropped, at_zero]


def grad_of_result(results, x, w):
    return torch.autograd.grad(results[1].sum(), results[0], allow_unused=True)


def retained(results, x, w):
    results[0].retain_grad()
    sum(each.sum() for each in results).backward()
    return results[0].grad, x.grad, w.grad


def hooked_and_gone(results, x, w):
    results.pop(0).register_hook(lambda gradient: gradient * 3)
    sum(each.sum() for each in results).backward()
    return x.grad, w.grad


def nobody_asks(results, x, w):
    results[0].register_hook(lambda gradient: gradient * 3).remove()
    results[1].sum().backward(retain_graph=True)
    sum((each * each).sum() for each in results).backward()
    return x.grad, w.grad


def some(results, x, w):
    loss = sum((each * each).sum() for each in results)
    return torch.autograd.grad(loss, [results[0], x, results[-1], w], allow_unused=True)


def certain_inputs(results, x, w):
    results[1].sum().backward(inputs=[w, results[0]])
    return x.grad, w.grad, results[0].grad


def second(results, x, w):
    loss = sum((each * each).sum() for each in results)
    first = torch.autograd.grad(loss, [results[0], x], create_graph=True)
    return torch.autograd.grad(sum((each * each).sum() for each in first), [x, w], allow_unused=True)


USES = [grad_of_result, retained, hooked_and_gone, nobody_asks, some, certain_inputs, second]


def outcome(fn, use):
    torch.manual_seed(3)
    x = torch.rand(4, 4, dtype=torch.float64).requires_grad_()
    w = torch.rand(4, 4, dtype=torch.float64).requires_grad_()
    return use(pytree.tree_leaves(fn(x, w)), x, w)


@pytest.mark.filterwarnings("ignore:inductor. a second derivative")
@pytest.mark.parametrize("fn", PROGRAMS)
def test_as_in_eager(fn):
    for use in USES:
        pyframe.reset()
        compiled = pyframe.compile(fn)
        want = outcome(fn, use)
        for _ in range(3):  # as one graph, in pieces
            got = outcome(compiled, use)
            assert [x is None for x in got] == [x is None for x in want], use.__name__
            torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"{use.__name__}: {m}")


def test_sizes_that_vary():
    compiled = pyframe.compile(chain, dynamic=True)
    for n in (4, 4, 5):
        x, w = torch.rand(n, n).requires_grad_(), torch.rand(n, n).requires_grad_()
        for fn in (chain, compiled):
            results = fn(x, w)
            gradients = torch.autograd.grad(results[1], [results[0], x])
            if fn is chain:
                want = gradients
        torch.testing.assert_close(gradients, want)


def test_nothing_is_kept_alive():
    """A result is not kept by those computed from it."""
    compiled = pyframe.compile(lambda x: (h := x * 2, (h * 3).sum()))
    h, loss = compiled(torch.rand(5).requires_grad_())
    seen = weakref.ref(h)
    del h
    gc.collect()
    assert seen() is None
    loss.backward()


def test_writes_of_the_program():
    """A result with a node of its own can be written to, as those of an operator can."""
    def fn(x):
        h = x * 2
        return h, h + 1

    compiled = pyframe.compile(fn)
    for run in (fn, compiled):
        x = torch.ones(3, requires_grad=True)
        h, u = run(x)
        assert (h._version, u._version) == (0, 0) and not u._is_view()
        u.mul_(3)
        h.mul_(5)
        (u + h).sum().backward()
        assert x.grad.tolist() == [16.0] * 3


def test_a_write_of_no_elements():
    """An empty result may have strides of 0; the backward, which runs the graph once more, accepts the write."""
    def fn(x, index):
        h = x / 3
        h.index_fill_(2, index, 0)
        return h, h.float_power(2)

    index = torch.tensor([0, 1])
    for run in (fn, pyframe.compile(fn)):
        x = torch.empty(1, 2, 0).permute(2, 0, 1).requires_grad_()
        results = run(x, index)
        (gradient,) = torch.autograd.grad(results, [x], [torch.ones_like(y) for y in results])
        assert gradient.shape == (0, 1, 2)
