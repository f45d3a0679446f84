"""CUDA graphs in the default mode: recorded where the host is what a call waits for, and only then."""

import gc
import weakref

import pytest
import torch
from torch import nn

import pyframe
from inductor.cudagraphs import automatic
from inductor.cudagraphs import device as devices
from inductor.cudagraphs import recorder as recorder_module
from tests.cudagraphs.fake_device import FakeDevice


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(automatic, "MIN_CALLS", 1)
    monkeypatch.setattr(automatic, "MIN_HOST_SECONDS", 0.0)
    monkeypatch.setattr(automatic, "FASTER", float("inf"))  # replays of the fake device take longer than the plan
    device = devices.devices["cpu"] = FakeDevice()
    yield device
    del devices.devices["cpu"]


MEASURED = automatic.SKIPPED + automatic.SAMPLES  # calls before the first of the Recorder, which then sees one more


def program(x):
    y = torch.softmax(x @ x.t(), -1)
    return y.sum(0), (y * 2).tanh()


def same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_recorded_where_the_device_waits_for_the_host_and_results_are_ordinary_tensors(fake):
    f, x, kept = pyframe.compile(program, options={"strict": True}), torch.empty(8, 8), []
    for k in range(20):
        x.copy_(torch.randn(8, 8) + k)
        kept.append((f(x), program(x)))
    for got, want in kept:
        same(got, want)
    assert fake.captures == 1 and fake.replays == 20 - MEASURED - 1
    assert len({y.data_ptr() for got, _ in kept for y in got}) == 40


@torch.no_grad()
@pytest.mark.parametrize("seconds", [1.0, None], ids=["the device is busy", "and never done"])
def test_not_recorded_where_the_device_has_work(fake, seconds):
    fake.seconds = seconds
    f, x = pyframe.compile(program, options={"strict": True}), torch.randn(8, 8)
    for _ in range(automatic.MAX_MEASURED + 8):
        same(f(x), program(x))
    assert not fake.captures and not fake.replays


@torch.no_grad()
def test_the_plan_runs_again_where_replays_are_no_faster(fake, monkeypatch):
    monkeypatch.setattr(automatic, "FASTER", 0.0)
    f, x = pyframe.compile(program, options={"strict": True}), torch.randn(8, 8)
    for _ in range(30):
        same(f(x), program(x))
    assert fake.captures == 1
    assert fake.replays == automatic.FIRST_REPLAYS + automatic.REPLAYS - 1  # the first call made the recording


@torch.no_grad()
@pytest.mark.parametrize("seconds", [0.0, 1e9, None], ids=["no longer", "longer", "not done"])
def test_the_plan_runs_again_where_replays_take_the_device_longer(fake, monkeypatch, seconds):
    """As the copies of large results may."""
    monkeypatch.setattr(automatic, "FASTER", 1e6)
    f, x = pyframe.compile(program, options={"strict": True}), torch.randn(8, 8)
    for k in range(40):
        if k == MEASURED:
            fake.seconds = seconds
        same(f(x), program(x))
    assert (fake.replays < 20) == (seconds == 1e9)


@torch.no_grad()
def test_small_inputs_that_move_are_copied_and_large_ones_end_it(fake, monkeypatch):
    for limit, replays in ((1 << 20, True), (100, False)):
        monkeypatch.setattr(recorder_module, "MAX_UNASKED_COPIES", limit)
        f, kept = pyframe.compile(program, options={"strict": True}, isolate_recompiles=True), []
        fake.replays = 0
        for _ in range(20):
            kept.append(torch.randn(8, 8))
            same(f(kept[-1]), program(kept[-1]))
        assert bool(fake.replays) == replays


@torch.no_grad()
@pytest.mark.parametrize("fn", [
    lambda x: torch.softmax(x, -1) + torch.rand_like(x),
    lambda x: tuple((x @ x + k).relu() for k in range(6)),
], ids=["random numbers", "many results"])  # fmt: skip
def test_not_recorded_by_itself(fake, fn):
    f = pyframe.compile(fn, options={"strict": True})
    for _ in range(12):
        f(torch.randn(8, 8))
    assert not fake.captures


@torch.no_grad()
def test_without_cudagraphs_nothing_is_measured(fake):
    for settings in ({"mode": "max-autotune-no-cudagraphs"}, {"options": {"triton.cudagraphs": False}}):
        f = pyframe.compile(program, **settings)
        x = torch.randn(8, 8)
        for _ in range(12):
            same(f(x), program(x))
        assert not fake.captures


def test_training_is_not_recorded_by_itself(fake):
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    step = pyframe.compile(model)
    for _ in range(12):
        step(x).sum().backward()
    assert not fake.captures


@torch.no_grad()
def test_a_cache_that_is_written(fake):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 8))

        def forward(self, x, at):
            self.rows.index_copy_(0, at, x)
            return torch.softmax(self.rows, -1)

    model, eager = Cache(), Cache()
    step = pyframe.compile(model, options={"strict": True})
    for k in range(16):
        x, at = torch.randn(1, 8), torch.tensor([k % 4])
        same(step(x, at), eager(x, at))
        same(model.rows, eager.rows)
    model.rows = model.rows.clone()  # elsewhere from now on
    for k in range(16):
        x, at = torch.randn(1, 8), torch.tensor([k % 4])
        same(step(x, at), eager(x, at))
        same(model.rows, eager.rows)
    assert fake.replays


@torch.no_grad()
def test_a_plan_dies_with_its_function(fake):
    model = nn.Linear(8, 8)
    weight = weakref.ref(model.weight)
    step, x = pyframe.compile(model), torch.randn(2, 8)
    for _ in range(4):  # in the middle of the measurements
        step(x)
    del step, model
    gc.collect()
    assert weight() is None
