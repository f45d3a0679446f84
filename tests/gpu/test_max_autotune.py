"""`mode="max-autotune"` on a GPU: what is measured, that results are right, and that choices are remembered."""

import json

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.autotune import choose
from inductor.autotune.measure import Bench
from pyframe import metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choose, "_chosen", {})
    yield
    pyframe.reset()


def half(*size):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def mlp(x, u, b, w, r):
    return F.linear(F.gelu(F.linear(x, u, b), approximate="tanh"), w) * 0.5 + r


def inputs(rows, width=1024, inner=2048):
    return half(rows, width), half(inner, width) / 32, half(inner), half(width, inner) / 32, half(rows, width)


@pytest.fixture
def always(monkeypatch):
    """ATen never wins."""
    monkeypatch.setattr(choose, "MARGIN", 1e9)


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("rows", [1, 4, 16, 100, 512])
def test_templates_compute_what_eager_does(always, mode, rows):
    args = inputs(rows)
    metrics.counters.clear()
    fast = pyframe.compile(mlp, mode=mode)
    for _ in range(4):  # with CUDA graphs the third call is recorded
        torch.testing.assert_close(fast(*args), mlp(*args), rtol=3e-2, atol=3e-2)
    assert metrics.counters["templates"] == (0 if rows == 1 else 2)  # products of one row are reductions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dtypes_layouts_and_batches(always, dtype):
    for rows in (1, 33):
        a, b = torch.randn(3, rows, 200, device="cuda", dtype=dtype), torch.randn(3, 200, 120, device="cuda", dtype=dtype)
        for left in (a, a.mT.contiguous().mT):
            for right in (b, b.mT.contiguous().mT, b[:1].expand(3, 200, 120)):
                fast = pyframe.compile(lambda x, y: torch.bmm(x, y).relu(), mode="max-autotune-no-cudagraphs")
                tolerance = 1e-4 if dtype == torch.float32 else 2e-2
                torch.testing.assert_close(fast(left, right), torch.bmm(left, right).relu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 8])
def test_weights_are_dequantized_where_they_are_read(always, monkeypatch, rows):
    seen = []
    monkeypatch.setattr(Bench, "__call__", lambda self, found, _call=Bench.__call__: seen.extend(found) or _call(self, found))
    x, scale = half(rows, 1024), torch.rand(512, 1, device="cuda") / 128
    codes = torch.randint(-127, 128, (512, 1024), device="cuda", dtype=torch.int8)

    def fn(x, codes, scale):
        return F.linear(x, (codes * scale).bfloat16()).relu()

    metrics.counters.clear()
    fast = pyframe.compile(fn, mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(fast(x, codes, scale), fn(x, codes, scale), rtol=3e-2, atol=0.2)
    if rows == 1:  # a reduction, which dequantizes as well
        assert not seen
    else:
        assert metrics.counters["templates"] == 1 and [len(p.product.prologues) for p in seen] == [1]


def test_both_factors_are_computed_where_they_are_read(always):
    x, w = torch.randn(4, 300, 256, device="cuda"), half(4, 256, 192)
    fn = lambda x, w: torch.bmm(F.silu(x).bfloat16(), w * 0.5).relu()  # noqa: E731
    metrics.counters.clear()
    fast = pyframe.compile(fn, mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(fast(x, w), fn(x, w), rtol=3e-2, atol=0.2)
    assert metrics.counters["templates"] == 1


def test_training(always):
    args = [x.requires_grad_() for x in inputs(256)]
    fast = pyframe.compile(mlp, mode="max-autotune-no-cudagraphs")
    got = torch.autograd.grad(fast(*args).float().square().mean(), args)
    want = torch.autograd.grad(mlp(*args).float().square().mean(), args)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2 * float(b.abs().max()))


def test_every_configuration_agrees_with_aten(monkeypatch):
    """None may give another result or fail to compile; the times are plausible."""
    seen = []

    def measured(self, problems, _call=Bench.__call__):
        results = _call(self, problems)
        seen.extend(zip(problems, results))
        return results

    monkeypatch.setattr(Bench, "__call__", measured)
    for rows in (2, 16, 512):
        pyframe.compile(mlp, mode="max-autotune-no-cudagraphs")(*inputs(rows))
    pyframe.compile(lambda x, w: (x @ w).relu(), mode="max-autotune-no-cudagraphs")(half(1, 1024), half(1024, 2048))
    for case in CONVOLUTIONS.values():
        pyframe.compile(block, mode="max-autotune-no-cudagraphs")(*block_inputs(*case))
    assert len(seen) == 7 + len(CONVOLUTIONS)
    for problem, (aten, times) in seen:
        assert aten > 1 and all(t is not None and t > 1 for t in times), (problem.product.sizes, problem.configs, times)


def block(x, w, b, r, mean, var, stride, padding):
    return F.relu(F.batch_norm(F.conv2d(x, w, b, stride, padding), mean, var) + r)


# (image, filters, taps, stride, padding)
CONVOLUTIONS = {
    "3x3": ((4, 64, 28, 28), 128, (3, 3), 1, 1),
    "3x3, stride 2": ((4, 128, 28, 28), 64, (3, 3), 2, 1),
    "1x1, stride 2": ((4, 64, 28, 28), 128, (1, 1), 2, 0),
    "channels that do not fill a block": ((2, 24, 30, 17), 40, (5, 3), 1, (2, 0)),
    "few pixels, long sums": ((1, 512, 7, 7), 512, (3, 3), 1, 1),
}


def block_inputs(size, filters, taps, stride, padding):
    x = half(*size).contiguous(memory_format=torch.channels_last)
    w = (half(filters, size[1], *taps) / (size[1] * taps[0] * taps[1]) ** 0.5).contiguous(memory_format=torch.channels_last)
    r = torch.randn_like(F.conv2d(x, w, None, stride, padding))
    return x, w, half(filters), r, half(filters), half(filters).abs() + 0.5, stride, padding


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions_with_what_follows(always, case):
    args = block_inputs(*case)
    metrics.counters.clear()
    fast = pyframe.compile(block, mode="max-autotune-no-cudagraphs")
    exact = block(*[x.double() if isinstance(x, torch.Tensor) else x for x in args])
    torch.testing.assert_close(fast(*args).double(), exact, rtol=2e-2, atol=3e-2)
    assert metrics.counters["templates"] == 1 and metrics.counters["kernels"] <= 2


def test_training_of_convolutions(always):
    x, w, b, r, *rest = block_inputs(*CONVOLUTIONS["3x3"])
    args = [x.requires_grad_(), w.requires_grad_(), b.requires_grad_(), r]
    fast = pyframe.compile(block, mode="max-autotune-no-cudagraphs")
    got = torch.autograd.grad(fast(*args, *rest).float().square().mean(), args[:3])
    want = torch.autograd.grad(block(*args, *rest).float().square().mean(), args[:3])
    for a, e in zip(got, want):
        torch.testing.assert_close(a, e, rtol=5e-2, atol=5e-2 * float(e.abs().max()))


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs Hopper")
@pytest.mark.parametrize("scales", ["one", "each"])
@pytest.mark.parametrize("rows", [16, 300])
def test_products_of_8_bit_floats(always, scales, rows):
    x, w = (half(n, 512).to(torch.float8_e4m3fn) for n in (rows, 256))
    a, b = torch.rand(rows, 1, device="cuda"), torch.rand(1, 256, device="cuda")
    a, b = (a, b) if scales == "each" else (a[:1, 0], b[0, :1])
    bias, r = half(256), half(rows, 256)

    def fn(x, w, a, b, bias, r, fast):
        y = torch._scaled_mm(x, w.t(), a, b, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast)
        return F.silu(y) * 0.5 + r

    exact = F.silu((x.double() @ w.double().t()) * a.double() * b.double() + bias.double()) * 0.5 + r.double()
    for fast in (True, False):
        metrics.counters.clear()
        got = pyframe.compile(fn, mode="max-autotune-no-cudagraphs", dynamic=False)(x, w, a, b, bias, r, fast)
        torch.testing.assert_close(got.double(), exact, rtol=2e-2, atol=2e-2 * float(exact.abs().max()))
        assert metrics.counters["templates"] == 1


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs Hopper")
@pytest.mark.parametrize("ends", [[64, 128, 192, 256], [3, 3, 200, 256], [0, 0, 0, 256]])
def test_grouped_products(always, ends):
    x, w = half(256, 128), half(4, 128, 192) / 11
    e = torch.tensor(ends, device="cuda", dtype=torch.int32)
    fn = lambda x, w, e: F.silu(torch._grouped_mm(x, w, offs=e)) * 2  # noqa: E731
    metrics.counters.clear()
    got = pyframe.compile(fn, mode="max-autotune-no-cudagraphs")(x, w, e)
    torch.testing.assert_close(got, fn(x, w, e), rtol=3e-2, atol=3e-2)
    assert metrics.counters["templates"] == 1


def test_choices_are_remembered(monkeypatch, tmp_path):
    args = inputs(16)
    pyframe.compile(mlp, mode="max-autotune-no-cudagraphs", options={"cache": False})(*args)
    kept = list(tmp_path.rglob("*.product"))
    assert len(kept) == 2
    choices = dict(choose._chosen)
    choose._chosen.clear()
    pyframe.reset()
    monkeypatch.setattr(Bench, "__call__", lambda *_: pytest.fail("measured again"))
    pyframe.compile(mlp, mode="max-autotune-no-cudagraphs", options={"cache": False})(*args)
    assert choose._chosen == choices and json.dumps([c.aten for c in choices.values()])


def test_autocast_and_sizes_that_vary():
    linear = torch.nn.Linear(256, 512).cuda()
    fast = pyframe.compile(linear, mode="max-autotune-no-cudagraphs")
    for rows in (32, 48, 64):
        x = torch.randn(rows, 256, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            torch.testing.assert_close(fast(x), linear(x), rtol=2e-2, atol=2e-2)
