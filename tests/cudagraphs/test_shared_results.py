"""Results of recorded graphs that share memory are related as in eager, and their memory is used again only when none
of them is in use."""

import pytest
import torch

import pyframe
from inductor.cudagraphs import device as devices
from inductor.cudagraphs import recorder as recorder_module
from tests.cudagraphs.fake_device import FakeDevice

PROGRAMS = {
    "result and view": lambda x: ((y := x * 2), y.view(-1)),
    "two views": lambda x: ((y := x * 2)[0], y[1]),
    "chunks": lambda x: (x * 2).chunk(2, 1),
    "detached": lambda x: ((y := x * 2), y.detach()),
    "data": lambda x: ((y := x * 2), y.data),
    "view and detached view of the input": lambda x: (x[0], x.detach()[0], x * 2),
}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(recorder_module, "MIN_CALLS", 1)
    device = devices.devices["cpu"] = FakeDevice()
    yield device
    del devices.devices["cpu"]


def relations(tensors):
    bases = [x._base for x in tensors]
    found = [x is y for x in bases for y in (*tensors, *bases)]
    for x in tensors:
        before = [y._version for y in tensors]
        torch.autograd.graph.increment_version(x)
        found += [y._version != n for y, n in zip(tensors, before)]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(fake, name):
    program = PROGRAMS[name]
    fast = pyframe.compile(program, mode="reduce-overhead", options={"strict": True})
    x, want = torch.empty(3, 4), None
    for k in range(6):
        x.copy_(torch.randn(3, 4) + k)
        got, want = fast(x), program(x)
        torch.testing.assert_close(got, want)
        assert relations([x, *got]) == relations([x, *want])
        del got
    assert fake.replays > 0


def test_a_write_to_one_result_counts_as_one_to_the_other(fake):
    fast = pyframe.compile(lambda x: ((y := x * 2), y.view(-1)), mode="reduce-overhead", options={"strict": True})
    x, w = torch.ones(3, 4), torch.ones(3, 4, requires_grad=True)
    for _ in range(5):
        y, v = fast(x)
        loss = (y * w).sum()
        v.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert fake.replays > 0


def test_memory_is_in_use_while_a_view_is(fake):
    fast = pyframe.compile(lambda x: ((y := x * 2)[0], y[1]), mode="reduce-overhead", options={"strict": True})
    x, kept = torch.empty(3, 4), []
    for k in range(8):
        x.fill_(k)
        kept.append(fast(x)[k % 2])
    assert [y[0].item() for y in kept] == [2 * k for k in range(8)]
