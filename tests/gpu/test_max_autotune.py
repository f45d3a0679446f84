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
    assert metrics.counters["templates"] == 2


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
    assert metrics.counters["templates"] == 1 and [p.product.prologue is not None for p in seen] == [True]


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
    for rows in (1, 16, 512):
        pyframe.compile(mlp, mode="max-autotune-no-cudagraphs")(*inputs(rows))
    assert len(seen) == 6
    for problem, (aten, times) in seen:
        assert aten > 1 and all(t is not None and t > 1 for t in times), (problem.product.sizes, problem.configs, times)


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
