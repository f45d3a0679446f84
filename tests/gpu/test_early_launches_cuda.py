"""Kernels that start before the kernel ahead has ended: results never depend on when they start. And attention of one
row, whose kernels are used in all modes."""

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.runtime import cuda

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def _fresh():
    yield
    pyframe.reset()


def chain(x, w, u):
    """Short kernels that overwrite and read each other's memory, with calls of ATen between them."""
    for k in range(6):
        x = torch.softmax(x, -1) * 3 + k
        x = (x @ w).relu() if k % 3 else x - x.mean(-1, keepdim=True)
        u.add_(x.sum(0))
        x = x + u.roll(k)
        x = F.layer_norm(x, x.shape[-1:])
    return x


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("rows", [1, 64, 3000])
def test_results_are_those_of_kernels_in_order(mode, rows, monkeypatch):
    x, w = torch.randn(rows, 256, device="cuda"), torch.randn(256, 256, device="cuda") / 16
    fast = pyframe.compile(chain, mode=mode)
    for _ in range(4):  # tune and record
        fast(x, w, torch.zeros(256, device="cuda"))
    seen = []
    for _ in range(200):
        u = torch.zeros(256, device="cuda")
        seen.append((fast(x, w, u).clone(), u))
    want = torch.zeros(256, device="cuda")
    torch.testing.assert_close(seen[0][0], chain(x, w, want), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(seen[0][1], want, rtol=1e-3, atol=1e-2)
    assert all(torch.equal(y, seen[0][0]) and torch.equal(u, seen[0][1]) for y, u in seen[1:])


def test_what_other_streams_and_the_host_see():
    """A copy to the host and an event on another stream wait for all of a kernel, however early it started."""
    fast = pyframe.compile(lambda x: ((x + 1) * 2, x.sum(-1)), dynamic=False)
    x, other = torch.randn(1 << 12, 1 << 12, device="cuda"), torch.cuda.Stream()
    want = (x + 1) * 2
    for _ in range(20):
        got, _ = fast(x)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            same = torch.equal(got, want)
        assert same
        got.record_stream(other)


def test_a_kernel_behind_a_wait_for_another_stream_starts_after_it():
    first, second = pyframe.compile(lambda x: x.sin() * 2), pyframe.compile(lambda y: (y + 1).sum(-1))
    x, y, other = torch.randn(64, 64, device="cuda"), torch.zeros(64, 4096, device="cuda"), torch.cuda.Stream()
    first(x), second(y)
    for k in range(1, 21):
        torch.cuda.synchronize()
        with torch.cuda.stream(other):
            torch.cuda._sleep(2_000_000)
            y.fill_(k)
        first(x)
        torch.cuda.current_stream().wait_stream(other)
        assert (second(y) == (k + 1) * 4096).all()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_weights_that_change_right_before_a_call(mode):
    """Products with one row read weights before the kernel ahead of them has ended."""
    def chain_of_products(x, gains, weights):
        for gain, w in zip(gains, weights):
            x = x + torch.tanh(F.linear(F.rms_norm(x, x.shape[-1:], gain), w))
        return x

    x = torch.randn(1, 1024, device="cuda")
    gains = [torch.ones(1024, device="cuda") for _ in range(6)]
    weights = [torch.zeros(1024, 1024, device="cuda") for _ in range(6)]
    noise, busy = torch.randn(1024, 1024, device="cuda") / 32, torch.zeros(1 << 26, device="cuda")
    fast = pyframe.compile(chain_of_products, mode=mode)
    for k in range(60):
        busy.add_(1)  # the writes to the weights are still to come when the kernels of the call are launched
        torch._foreach_copy_(weights, [noise * (k % 7 + 1)] * 6)
        got = fast(x, gains, weights)
        torch.testing.assert_close(got, chain_of_products(x, gains, weights), rtol=1e-3, atol=1e-3)


def test_kernels_of_this_gpu_start_early():
    seen = []
    original = cuda.loadable
    cuda.loadable = lambda cubin: seen.append(cubin.waits) or original(cubin)
    try:
        pyframe.compile(lambda x: x.sin() + 12.75)(torch.randn(100, device="cuda"))
    finally:
        cuda.loadable = original
    assert seen and all(w == (torch.cuda.get_device_capability()[0] >= 9) for w in seen)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("length, dim, batch", [(1024, 128, 1), (333, 80, 3), (5000, 64, 8), (17, 64, 2)])
def test_attention_of_one_row(dtype, length, dim, batch):
    q, k, v = (torch.randn(batch, 6, n, dim, device="cuda", dtype=dtype) for n in (1, length, length))
    mask = torch.rand(batch, 1, 1, length, device="cuda") > 0.4
    names = []
    for fn, more in [(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ()),
                     (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), (mask,))]:
        fast = pyframe.compile(fn, dynamic=False)
        with torch.no_grad():
            exact = fn(q.double(), k.double(), v.double(), *more)
            got = fast(q, k, v, *more)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                fast(q, k, v, *more)
        names += [event.key for event in profile.key_averages()]
        tolerance = 1e-4 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)
    assert sum("row_attention" in name for name in names) >= 2
