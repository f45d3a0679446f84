"""Compiled functions under what watches or rewrites operators: eager's results, and nothing stale from before."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import pyframe


def eager(x):
    return x.sin() @ x.t() * 2


@pytest.fixture(params=["eager", "inductor"])
def fast(request):
    pyframe.reset()
    fn = pyframe.compile(eager, backend=request.param)
    fn(X)  # an entry that must not be used below
    return fn


torch.manual_seed(0)
X, BATCH = torch.randn(4, 4), torch.randn(3, 4, 4)


@pytest.mark.parametrize("transform", [
    lambda f: torch.vmap(f)(BATCH),
    lambda f: torch.func.grad(lambda x: f(x).sum())(X),
    lambda f: torch.func.jvp(f, (X,), (X,))[1],
    lambda f: torch.func.vjp(f, X)[1](X)[0],
    lambda f: torch.func.jacrev(f)(X),
    lambda f: torch.func.jacfwd(f)(X),
    lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum()))(BATCH),
], ids=["vmap", "grad", "jvp", "vjp", "jacrev", "jacfwd", "vmap_grad"])
def test_functorch(fast, transform):
    torch.testing.assert_close(transform(fast), transform(eager))
    torch.testing.assert_close(fast(X), eager(X))


def test_forward_mode(fast):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, X.cos())
        got, want = forward_ad.unpack_dual(fast(dual)), forward_ad.unpack_dual(eager(dual))
    torch.testing.assert_close(got.primal, want.primal)
    torch.testing.assert_close(got.tangent, want.tangent)


def test_dispatch_modes(fast):
    counts = []
    for fn in (fast, eager):
        with FlopCounterMode(display=False) as mode:
            fn(X)
        counts.append(mode.get_total_flops())
    assert counts[0] == counts[1] > 0
    with FakeTensorMode() as mode:
        assert isinstance(fast(mode.from_tensor(X)), FakeTensor)
    torch.testing.assert_close(fast(X), eager(X))


def test_tracing(fast):
    assert make_fx(fast)(X).code == make_fx(eager)(X).code
    traced = torch.jit.trace(fast, X, check_trace=False)
    torch.testing.assert_close(traced(X + 1), eager(X + 1))
