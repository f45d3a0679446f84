"""Replays in C: which calls they take, and that they equal those of the Recorder."""

import pytest
import torch
from torch import nn

import pyframe
from inductor.cudagraphs import device as devices
from inductor.cudagraphs import recorder as recorder_module
from inductor.cudagraphs.recorder import Recorder
from tests.cudagraphs.fake_device import FakeDevice


@pytest.fixture(params=["C", "Python"])
def fake(request, monkeypatch):
    """A fake device; `recorder_calls` counts calls that reach the Recorder. With "Python" all do."""
    monkeypatch.setattr(recorder_module, "MIN_CALLS", 1)
    device = devices.devices["cpu"] = FakeDevice()
    device.in_c, device.recorder_calls = request.param == "C", 0
    for name in ("__call__", "take"):
        def counted(self, *args, _original=getattr(Recorder, name)):
            device.recorder_calls += 1
            return _original(self, *args)

        monkeypatch.setattr(Recorder, name, counted)
    if not device.in_c:
        monkeypatch.setattr(Recorder, "_offer", lambda self: None)
    yield device
    del devices.devices["cpu"]


def fast(fn):
    return pyframe.compile(fn, mode="reduce-overhead", options={"strict": True})


class Cache(nn.Module):
    """Writes one row of its buffer in each call, and returns a tensor, a part of it, and the same part again."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("rows", torch.zeros(4, 8))

    def forward(self, x, at):
        self.rows.index_copy_(0, at, self.linear(x))
        y = torch.softmax(self.rows, -1) * 2
        return y, y[1:, ::2], y[1:, ::2], x


def pair():
    torch.manual_seed(0)
    model = Cache()
    other = Cache()
    other.load_state_dict(model.state_dict())
    return fast(model), model, other


@torch.no_grad()
def test_results_written_inputs_and_versions_are_those_of_eager(fake):
    step, model, eager = pair()
    kept = []
    for k in range(16):
        x, at = torch.randn(1, 8), torch.tensor([k % 4])
        version = model.rows._version
        got, want = step(x, at), eager(x, at)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(model.rows, eager.rows)
        assert model.rows._version > version and got[3] is x
        if k < 6:
            kept.append((got, want))
    for got, want in kept:
        torch.testing.assert_close(got, want)
    # two calls before the first recording, and one for each recording
    assert fake.recorder_calls == (2 + fake.captures if fake.in_c else 16)
    assert fake.replays == 14


@torch.no_grad()
def test_an_input_in_the_memory_of_a_written_one(fake):
    step, model, eager = pair()
    for k in range(6):
        x, at = torch.randn(1, 8), torch.tensor([k % 4])
        torch.testing.assert_close(step(x, at), eager(x, at))
    calls, replays = fake.recorder_calls, fake.replays
    at = torch.tensor([2])
    torch.testing.assert_close(step(model.rows[2:3], at)[:3], eager(eager.rows[2:3], at)[:3])
    torch.testing.assert_close(model.rows, eager.rows)
    assert fake.recorder_calls == calls + 1 and fake.replays == replays


@torch.no_grad()
def test_recordings_made_before_the_generator_was_replaced_are_not_replayed(fake):
    step, _, eager = pair()
    x, at = torch.randn(1, 8), torch.tensor([1])
    for _ in range(5):
        torch.testing.assert_close(step(x, at), eager(x, at))
    fake.generation += 1
    captures = fake.captures
    torch.testing.assert_close(step(x, at), eager(x, at))
    assert fake.captures == captures + 1


def test_training_replays_forward_and_backward_without_the_recorder(fake):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(5, 8)
    step = fast(model)
    for k in range(12):
        calls = fake.recorder_calls
        want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        got = torch.autograd.grad(step(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(got, want)
        if k > 8 and fake.in_c:
            assert fake.recorder_calls == calls
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), got):
                parameter -= 0.01 * gradient
        del got
