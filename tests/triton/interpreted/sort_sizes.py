"""Sorts of compiled functions on a GPU, of several sizes and with gradients."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from tools.fuzz_graphs import fake_cuda  # noqa: E402

fake_cuda.install()

import pytest  # noqa: E402
import torch  # noqa: E402

import pyframe  # noqa: E402
from inductor.codegen.triton import sort  # noqa: E402

PROGRAMS = {
    "sort": lambda x: x.sort(-1)[0] * 2,
    "sort of columns": lambda x: x.sort(0, descending=True)[0],
    "positions": lambda x: x.detach().argsort(-1),
    "greatest": lambda x: x.softmax(-1).topk(2)[0],
    "least, not sorted": lambda x: x.topk(2, largest=False, sorted=False)[0].sum(-1),
    "median": lambda x: x.median(-1)[0],
    "kth": lambda x: x.kthvalue(2, keepdim=True)[0] - x,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name, dynamic, monkeypatch):
    written, emit = [], sort.emit
    monkeypatch.setattr(sort, "emit", lambda *args: written.append(args) or emit(*args))
    compiled, fn = pyframe.compile(PROGRAMS[name], dynamic=dynamic), PROGRAMS[name]
    for size in ((37, 40), (5, 70), (4, 2), (9, 40)):
        a = torch.randn(size, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        want, got = fn(a), compiled(b)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if want.requires_grad:
            tangent = torch.randn_like(want)
            want.backward(tangent)
            got.backward(tangent)
            torch.testing.assert_close(b.grad, a.grad)
    assert written or dynamic


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_other_dimensions_vary(name, monkeypatch):
    """Sorts along a dimension of a constant size, while another one varies, are kernels."""
    written, emit = [], sort.emit
    monkeypatch.setattr(sort, "emit", lambda *args: written.append(args) or emit(*args))
    compiled, fn = pyframe.compile(PROGRAMS[name]), PROGRAMS[name]
    sorted_dim = 0 if "columns" in name else 1
    for size in (37, 5, 9):
        shape = [size, 40]
        a = torch.randn(shape[::-1] if sorted_dim == 0 else shape, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        torch._dynamo.mark_dynamic(b, 1 - sorted_dim)
        want, got = fn(a), compiled(b)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if want.requires_grad:
            tangent = torch.randn_like(want)
            want.backward(tangent)
            got.backward(tangent)
            torch.testing.assert_close(b.grad, a.grad)
    assert written
