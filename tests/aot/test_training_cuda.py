"""Training on a GPU: other kernels (cuDNN, flash attention, fused dropout) and the engine's own threads."""

import copy

import pytest
import torch
from test_training_models import GPT, ConvNet, ids
from torch import fx, nn
from torch._decomp import core_aten_decompositions
from training_support import plain

from inductor.aot.autograd import compile_training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TABLES = [None, core_aten_decompositions()]


def train(call, module, inputs, dtype):
    torch.manual_seed(3)
    losses = []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):  # one region a step, as its casts are cached
            loss = call(*inputs)[0]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(module.parameters()), [p.grad for p in module.parameters()], dict(module.named_buffers())


def compare(model, inputs, table, tolerance, dtype=None):
    mine = model.cuda()
    theirs = copy.deepcopy(mine)
    inputs = [x.cuda() for x in inputs]
    with torch.autocast("cuda", dtype, enabled=dtype is not None):
        call = compile_training(fx.symbolic_trace(mine), inputs, plain, table)
    got, want = train(call, mine, inputs, dtype), train(theirs, theirs, inputs, dtype)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gpt(table, dropout):
    compare(GPT(dropout), [ids(0), ids(1)], table, 1e-3)


@pytest.mark.parametrize("table", TABLES, ids=["aten", "core"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_and_convolutions(table, layout):
    x = torch.randn(4, 3, 10, 10).to(memory_format=layout)
    compare(ConvNet().to(memory_format=layout), [x, torch.arange(4)], table, 1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_the_call(dtype):
    compare(GPT(), [ids(0), ids(1)], None, 2e-2, dtype)


@pytest.mark.filterwarnings("ignore:inductor")
def test_second_derivative_through_dropout():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).cuda()
    x = torch.randn(5, 8, device="cuda", requires_grad=True)
    call = compile_training(fx.symbolic_trace(model), [x], plain)
    seen = []
    for fn in (call, model):
        torch.manual_seed(1)
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        seen.append((torch.autograd.grad(g.square().sum(), list(model.parameters())[:3]), torch.cuda.get_rng_state()))
    torch.testing.assert_close(*seen)
