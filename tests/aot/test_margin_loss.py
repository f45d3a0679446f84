"""multi_margin_loss and its gradient as loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import inductor
import pyframe


def results(fn, x, target, weight):
    x = x.clone().requires_grad_()
    loss = fn(x, target, weight)
    (gradient,) = torch.autograd.grad(loss, x, torch.linspace(0.5, 2, loss.numel()).reshape(loss.shape).to(x.dtype))
    return loss.detach(), gradient


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("p", "margin", "weighted"), [(1, 1.0, False), (2, 0.5, True), (1, 2.5, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_rows(reduction, p, margin, weighted, dtype):
    def loss(x, target, weight):
        return F.multi_margin_loss(x, target, p, margin, weight, reduction=reduction)

    x, target = torch.randn(5, 37, dtype=dtype), torch.randint(37, (5,))
    x[1, 3], x[2, 4], x[3, target[3]] = float("nan"), float("inf"), float("nan")
    weight = torch.rand(37, dtype=dtype) if weighted else None
    compiled = pyframe.compile(loss, options={"strict": True})
    for got, expected in zip(results(compiled, x, target, weight), results(loss, x, target, weight), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_of_one_row():
    x, target = torch.randn(7), torch.tensor(2)
    torch.testing.assert_close(pyframe.compile(F.multi_margin_loss)(x, target), F.multi_margin_loss(x, target))


@pytest.mark.parametrize("training", [False, True])
def test_a_class_that_does_not_exist(training):
    x, target = torch.randn(3, 4, requires_grad=training), torch.tensor([0, 4, 1])
    with pytest.raises(RuntimeError, match="target"):
        F.multi_margin_loss(x, target)
    with pytest.raises(RuntimeError, match="target"):
        pyframe.compile(F.multi_margin_loss)(x, target)


def test_forward_and_backward_call_no_operator_of_aten():
    x, target = torch.randn(64, 100, requires_grad=True), torch.randint(100, (64,))
    graph = fx.symbolic_trace(lambda x, target: F.multi_margin_loss(x, target))
    inductor.compile_fx(graph, [x, target])
    assert graph.meta["compile_report"].externs == 0
