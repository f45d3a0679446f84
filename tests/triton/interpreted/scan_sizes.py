"""Scans of compiled functions on a GPU, of several sizes and with gradients."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from tools.fuzz_graphs import fake_cuda  # noqa: E402

fake_cuda.install()

import pytest  # noqa: E402
import torch  # noqa: E402

import pyframe  # noqa: E402
from inductor.codegen.triton import scan  # noqa: E402

PROGRAMS = {
    "rows": lambda x: x.cumsum(-1) * 2,
    "columns": lambda x: x.cumsum(0),
    "products": lambda x: (1 + x / 100).cumprod(-1),
    "log sum exp": lambda x: x.logcumsumexp(-1),
    "greatest": lambda x: x.cummax(-1)[0],
    "least of columns": lambda x: x.cummin(0)[0],
    "positions": lambda x: x.detach().cummax(1)[1],
    "numbers only": lambda x: torch.where(x > 1, float("nan"), x).nan_to_num(0).cumsum(-1),
    "masked": lambda x: (x * (x > 0)).cumsum(-1) + x,
    "from the end": lambda x: x.flip(-1).cumsum(-1).flip(-1),
    "in place": lambda x: (x * 1).cumsum_(-1),
}


@pytest.fixture
def scanners(monkeypatch):
    """How many scans are written."""
    written = []
    emit = scan.Scanner.emit
    monkeypatch.setattr(scan.Scanner, "emit", lambda self, *args: written.append(self) or emit(self, *args))
    return written


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name, dynamic, scanners):
    fn = PROGRAMS[name]
    compiled = pyframe.compile(fn, dynamic=dynamic)
    for size in ((37, 40), (5, 70), (3, 20000), (2, 1), (1, 9)):
        a = torch.randn(size, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        want, got = fn(a), compiled(b)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
        assert got.stride() == want.stride()
        if want.requires_grad:
            tangent = torch.randn_like(want)
            want.backward(tangent)
            got.backward(tangent)
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=2e-3)
    assert scanners


@pytest.mark.parametrize("length", [50, 20000])
def test_an_input_is_overwritten(length, scanners):
    def accumulate(x):
        x.cumsum_(-1)
        return x + 1

    a = torch.randn(4, length)
    b = a.clone()
    torch.testing.assert_close(pyframe.compile(accumulate)(b), accumulate(a), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-3)
    assert scanners
