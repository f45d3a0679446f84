"""The default mode on a GPU records by itself what the host slows down; and replays in C equal those of the Recorder."""

import contextlib

import pytest
import torch
from torch import nn

import pyframe
from inductor.cudagraphs.recorder import Recorder
from pyframe import metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Decoder(nn.Module):
    """Many small kernels; writes one row of a cache."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(12))
        self.register_buffer("rows", torch.zeros(32, 64))

    def forward(self, x, at):
        for layer in self.layers:
            x = x + layer(x)
        self.rows.index_copy_(0, at, x)
        return torch.softmax(self.rows @ self.rows.t(), -1).sum(0)


def pair():
    torch.manual_seed(0)
    model, eager = Decoder().cuda(), Decoder().cuda()
    eager.load_state_dict(model.state_dict())
    return model, eager


@contextlib.contextmanager
def recorder_calls():
    counted, original = [0], Recorder.__call__

    def counting(self, *args):
        counted[0] += 1
        return original(self, *args)

    Recorder.__call__ = counting
    try:
        yield counted
    finally:
        Recorder.__call__ = original


@torch.no_grad()
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_many_small_kernels(mode):
    model, eager = pair()
    step, kept = pyframe.compile(model, mode=mode, options={"strict": True}), []
    with recorder_calls() as calls:
        for k in range(40):
            x, at = torch.randn(1, 64, device="cuda"), torch.tensor([k % 32], device="cuda")
            got, want = step(x, at), eager(x, at)
            torch.testing.assert_close(model.rows, eager.rows, rtol=1e-4, atol=1e-4)
            kept.append((got, want))
            torch.cuda.synchronize()
    for got, want in kept:
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert 1 <= metrics.counters["cudagraphs_recorded"] <= 8
    assert calls[0] < 16  # the others were replayed in C


@torch.no_grad()
def test_a_result_used_on_another_stream_is_not_overwritten():
    model, _ = pair()
    step, side = pyframe.compile(model, options={"strict": True}), torch.cuda.Stream()
    x, at = torch.randn(1, 64, device="cuda"), torch.tensor([1], device="cuda")
    sums, wanted = [], []
    for k in range(40):
        y = step(x + k, at)
        wanted.append(y.clone())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            sums.append(y + 0)
            y.record_stream(side)
        del y
    torch.cuda.synchronize()
    for got, want in zip(sums, wanted):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@torch.no_grad()
def test_large_products_are_not_recorded():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(10))).cuda().bfloat16()
    step, x = pyframe.compile(layers, options={"strict": True}), torch.randn(8192, 4096, device="cuda").bfloat16()
    want = layers(x)
    for _ in range(40):
        got = step(x)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)
    assert not metrics.counters["cudagraphs_recorded"]
