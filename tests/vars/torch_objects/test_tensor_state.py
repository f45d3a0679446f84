"""What a program changes of tensor objects themselves is done by the graph: no break."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from util import alike

import pyframe
from pyframe.metrics import counters


def own_leaf(x: Any) -> Any:
    y = (x * 2).detach().requires_grad_()
    z = (y * y).sum()
    (grad,) = torch.autograd.grad(z, y)
    return grad + 1, y.requires_grad, y.is_leaf, z.requires_grad


def leaf_by_attribute(x: Any) -> Any:
    y = (x + 1).detach()
    y.requires_grad = True
    return torch.autograd.grad((y**3).sum(), y)[0], x.requires_grad


def leaf_no_more(x: Any) -> Any:
    y = x.clone().detach().requires_grad_(True)
    y.requires_grad_(False)
    return (y * 2).requires_grad, y.requires_grad_(False) is y


def input_made_leaf(x: Any) -> Any:
    x.requires_grad_()
    return (x * 2).sum()


def detached_in_place(x: Any) -> Any:
    y = x * 2
    y.detach_()
    return y + 1, y.grad_fn is None


def gradient_set(x: Any) -> Any:
    x.grad = x.detach() * 2
    x.grad.mul_(3)
    seen = x.grad + 1
    x.grad = None
    empty = x.grad is None
    x.grad = torch.ones_like(x)
    return seen, empty


def data_set(x: Any) -> Any:
    y = x * 1
    x.data = x.data * 2
    x.data.add_(1)
    return x + 1, y


def data_of_other_size(x: Any) -> Any:
    x.data = torch.zeros(5)
    return x.shape, x + 1


def parameter_made(x: Any) -> Any:
    p = nn.Parameter(x.detach() * 2)
    q = nn.Parameter(torch.ones(3), requires_grad=False)
    with torch.no_grad():
        p.add_(1)
    return (p * q).sum(), type(p) is nn.Parameter, isinstance(q, nn.Parameter), p.requires_grad, q.requires_grad, p


def module_made(x: Any) -> Any:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(0.5)
    return layer(x), [name for name, _ in layer.named_parameters()]


PROGRAMS = [
    own_leaf, leaf_by_attribute, leaf_no_more, input_made_leaf, detached_in_place, gradient_set, data_set,
    data_of_other_size, parameter_made, module_made,
]  # fmt: skip


def _states(x: torch.Tensor) -> Any:
    return x.detach().clone(), x.requires_grad, x.grad, x.shape


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph(fn: Any, backend: str) -> None:
    def run(call: Any) -> Any:
        results = []
        for value in (1.0, 2.0):
            x = torch.full((2, 3), value)
            out = call(x)
            results.append((out, _states(x)))
        return results

    pyframe.reset()
    fast = pyframe.compile(fn, backend=backend, fullgraph=True)
    alike(run(fast), run(fn))
    assert counters["graphs"] == 1


def test_errors_are_those_of_eager() -> None:
    def not_a_leaf(x: Any) -> Any:
        y = x * 2
        return y.requires_grad_(False)

    def wrong_size(x: Any) -> Any:
        x.grad = torch.zeros(7)
        return x

    x = torch.ones(3, requires_grad=True)
    for fn in (not_a_leaf, wrong_size):
        with pytest.raises(RuntimeError) as want:
            fn(x)
        with pytest.raises(RuntimeError) as got:
            pyframe.compile(fn, backend="eager")(x)
        assert str(got.value) == str(want.value)


@pytest.mark.parametrize("patched", [False, True], ids=["torch as imported", "after a torch.compile"])
def test_a_step_of_an_optimizer_is_one_graph(patched: bool) -> None:
    if patched:  # the first call of torch.compile marks the optimizers' helpers as disabled
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))

    def train(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(scale: float) -> None:
            for p in model.parameters():
                p.grad = torch.ones_like(p) * scale
            optimizer.step()

        run = pyframe.compile(step, backend="eager") if compiled else step
        for i in range(4):
            run(0.5 + i)
        return [p.detach() for p in model.parameters()]

    want = train(False)
    pyframe.reset()
    alike(train(True), want)
    assert not counters["graph_breaks"], counters["graph_breaks"]
