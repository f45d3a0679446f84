"""Products whose memory has padded rows, run by the plan: forward and backward, as they are compiled for a GPU."""

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.lower import alignment
from inductor.passes import bias


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    monkeypatch.setattr(alignment, "DEVICES", ("cpu",))
    monkeypatch.setattr(alignment, "LEAST_WORK", 1)
    monkeypatch.setattr(alignment, "LEAST_USES", 16)
    monkeypatch.setattr(bias, "_fits_cpu", lambda node: bias.has_padded_rows(node, node.args[1:3]))
    found = []
    monkeypatch.setattr("inductor.lower.graph.padded_sizes", lambda *a: found.append(alignment.padded_sizes(*a)) or found[-1])
    yield
    pyframe.reset()
    assert any(found)


def half(*size):
    return torch.randn(*size).bfloat16().requires_grad_()


def check(fn, *args):
    fast = pyframe.compile(fn, options={"cache": False})
    want, got = fn(*args), fast(*args)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    for a, b in zip(torch.autograd.grad(fast(*args).sum(), args), torch.autograd.grad(fn(*args).sum(), args)):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2 * float(b.abs().max()))


def test_a_vocabulary():
    target = torch.randint(0, 50, (32,))
    check(lambda x, w, b: F.cross_entropy(F.linear(x, w, b), target), half(32, 64), half(50, 64), half(50))
    check(lambda x, w: F.cross_entropy(F.linear(x, w).float(), target), half(32, 64), half(50, 64))


def test_results_that_are_returned_and_batches():
    check(lambda x, w: F.linear(x, w), half(32, 64), half(50, 64))
    check(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, half(3, 17, 64), half(3, 17, 64), half(3, 17, 64))


def test_views_of_a_padded_result():
    check(lambda x, w: F.linear(x, w).view(4, 8, 2, 25).transpose(1, 2).cos(), half(4, 8, 64), half(50, 64))
    check(lambda x, w: F.linear(x, w)[:, 1:].flatten() * 2, half(32, 64), half(50, 64))
