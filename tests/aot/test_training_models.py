"""Small models trained through compiled forward and backward: eager is the oracle."""

import copy

import torch
from torch import fx, nn
from torch.nn import functional as F

from inductor.aot.autograd import compile_training


def plain(gm):
    """A compiler that runs the ATen graph as it is, and insists that nobody records gradients."""

    def run(*args):
        assert not torch.is_grad_enabled()
        return gm.forward(*args)

    return run


class Loss(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return (F.mse_loss(self.body(x), y),)


def compare_step(model, inputs, seed=0):
    """One forward and backward each way: outputs, gradients, buffers."""
    theirs, mine = model, copy.deepcopy(model)
    other = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    compiled = compile_training(fx.symbolic_trace(mine), other, plain)
    torch.manual_seed(seed)
    want = theirs(*inputs)
    want[0].backward()
    torch.manual_seed(seed)
    got = compiled(*other)
    got[0].backward()
    torch.testing.assert_close(got, want)
    for (name, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters()):
        torch.testing.assert_close(a.grad, b.grad, msg=lambda m: f"{name}: {m}")
    torch.testing.assert_close(dict(mine.named_buffers()), dict(theirs.named_buffers()))
    torch.testing.assert_close([x.grad for x in other], [x.grad for x in inputs])
    return compiled, mine


def test_linear_relu_loss():
    model = Loss(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    compare_step(model, [torch.randn(3, 4, requires_grad=True), torch.randn(3, 2)])
