"""Gradients and pooling that are loops on the CPU: each result and gradient against eager's, and no call of ATen."""

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.ir.buffer import ExternKernel
from inductor.lower import lower_graph

SETTINGS = {"measure": False, "cache": False}
TOKENS = torch.randint(0, 50, (16, 9), generator=torch.Generator().manual_seed(0))
TOKENS[0, :4] = 3

# (function, size of its argument)
FUNCTIONS = {
    "adaptive mean": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (2, 3, 8, 12)),
    "adaptive mean of one image": (lambda x: F.adaptive_avg_pool2d(x, 4), (3, 8, 12)),
    "adaptive greatest": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (2, 3, 8, 12)),
    "interpolation by area": (lambda x: F.interpolate(x, size=(4, 6), mode="area"), (2, 3, 8, 12)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=3), (2, 3, 5, 7)),
    "nearest of two factors": (lambda x: F.interpolate(x, size=(10, 7)), (2, 3, 5, 7)),
    "patches": (lambda x: F.unfold(x, 3, dilation=2, padding=1, stride=2), (2, 3, 9, 8)),
    "images of patches": (lambda x: F.fold(x, (8, 9), (3, 2), padding=1, stride=(2, 1)), (2, 18, 40)),
    "windows": (lambda x: x.unfold(1, 4, 3), (5, 17, 6)),
    "windows that overlap much": (lambda x: x.unfold(-1, 5, 1), (5, 17)),
    "rows of a table": (lambda w: F.embedding(TOKENS, w), (50, 16)),
    "rows of a table but for one": (lambda w: F.embedding(TOKENS, w, padding_idx=3), (50, 16)),
    "group norm": (lambda x: F.group_norm(x, 4), (2, 8, 6, 5)),
}


@pytest.fixture
def aten_calls(monkeypatch):
    """The operators that compiled graphs call, as they are lowered."""
    calls = []

    def lowered(*args, **kwargs):
        graph = lower_graph(*args, **kwargs)
        calls.extend(str(b.target) for b in graph.buffers if isinstance(b, ExternKernel))
        return graph

    monkeypatch.setattr("inductor.generate.lower_graph", lowered)
    return calls


def check(function, x):
    """Compares the result and the gradient for `x` with eager's."""
    results = []
    for f in (function, pyframe.compile(function, options=SETTINGS)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = f(leaf * 2).tanh()
        torch.manual_seed(2)
        out.backward(torch.randn_like(out))
        results.append((out.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops(name, layout, aten_calls):
    function, size = FUNCTIONS[name]
    if layout == "channels last" and len(size) != 4:
        pytest.skip("no such layout")
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    check(function, x.to(memory_format=torch.channels_last) if layout == "channels last" else x)
    assert aten_calls == []


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolation_in_training_runs_the_gradient_of_aten(mode, aten_calls):
    """Sums at indices, which torch's decomposition would give, took up to four times as long."""
    check(lambda x: F.interpolate(x, scale_factor=2, mode=mode), torch.randn(2, 3, 5, 5))
    assert f"aten.upsample_{mode}2d_backward.default" in aten_calls
