"""Interpolation as loops on the CPU: in the interpreter of the loop IR, and compiled, compared with ATen's kernels."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import lowered

import pyframe
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph

SETTINGS = {"measure": False}  # ATen might be faster
SIGNAL, IMAGE, VOLUME = (2, 3, 37), (2, 3, 18, 21), (1, 2, 6, 7, 20)
CASES = [
    (SIGNAL, {"scale_factor": 2, "mode": "linear"}), (SIGNAL, {"size": 20, "mode": "linear", "align_corners": True}),
    (SIGNAL, {"scale_factor": 1.7}), (SIGNAL, {"size": 61, "mode": "nearest-exact"}), (SIGNAL, {"scale_factor": 2}),
    (IMAGE, {"scale_factor": 2, "mode": "bilinear"}), (IMAGE, {"scale_factor": (0.5, 3), "mode": "bilinear"}),
    (IMAGE, {"size": (9, 7), "mode": "bilinear"}), (IMAGE, {"size": (18, 30), "mode": "bilinear"}),
    (IMAGE, {"size": 40, "mode": "bicubic"}),
    (IMAGE, {"scale_factor": 0.6, "mode": "bicubic", "recompute_scale_factor": True}),
    (IMAGE, {"scale_factor": 1 / 3, "mode": "bicubic"}),
    (IMAGE, {"size": (30, 10), "mode": "bicubic", "align_corners": True}), (IMAGE, {"size": (7, 50)}),
    (IMAGE, {"scale_factor": 1 / 3}), (IMAGE, {"scale_factor": 1.3, "mode": "nearest-exact"}),
    (VOLUME, {"scale_factor": 2, "mode": "trilinear"}), (VOLUME, {"scale_factor": 0.5, "mode": "trilinear"}),
    (VOLUME, {"size": (9, 3, 20), "mode": "trilinear", "align_corners": True}),
    (VOLUME, {"size": (3, 14, 33), "mode": "nearest-exact"}), (VOLUME, {"scale_factor": 2}),
]  # fmt: skip


def name(case):
    return "-".join([f"{len(case[0]) - 2}d", *map(str, case[1].values())])


def argument(size, dtype=torch.float32, last=False):
    x = torch.randn(size, dtype=dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if last and x.dim() in formats else x


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "last"])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_loops(case, last):
    size, options = case
    x = argument(size, last=last)
    fn = lambda x: [F.interpolate(x.sin(), **options) * 2]  # noqa: E731
    graph = lowered(fn, x)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    torch.testing.assert_close(run_graph(graph, [x]), fn(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_compiled(case, dtype):
    """No farther from float64 than twice ATen's kernels; nearest neighbours are equal."""
    size, options = case
    x = argument(size, dtype, last=dtype == torch.float64)
    fn = lambda x: F.interpolate(x, **options)  # noqa: E731
    got, eager, exact = pyframe.compile(fn, options=SETTINGS)(x), fn(x), fn(x.double())
    assert got.dtype == eager.dtype and got.stride() == eager.stride()
    limit = 0.0 if "nearest" in options.get("mode", "nearest") else 1e-5 + 1e-3 * (dtype == torch.bfloat16)
    assert (got - exact).abs().max() <= 2 * (eager - exact).abs().max() + limit


@pytest.mark.parametrize("case", CASES, ids=name)
def test_gradients(case):
    size, options = case
    results = []
    for fn in (F.interpolate, pyframe.compile(F.interpolate, options=SETTINGS)):
        torch.manual_seed(0)
        x = argument(size, torch.float64).requires_grad_()
        out = fn(x, **options)
        results.append([out, *torch.autograd.grad(out, x, torch.randn_like(out))])
    torch.testing.assert_close(*results)


def test_one_pixel():
    x = argument(IMAGE, torch.float64, last=True)
    fn = lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=True)  # noqa: E731
    got = pyframe.compile(fn, options=SETTINGS)(x)
    assert torch.equal(got, fn(x)) and got.stride() == fn(x).stride()


def test_other_sizes():
    """A graph with sizes that vary, and images of bytes, which ATen interpolates with integers."""
    fn = lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")  # noqa: E731
    compiled = pyframe.compile(fn, options=SETTINGS)
    for n in (12, 17, 21):
        x = torch.randn(1, 2, n, n)
        torch.testing.assert_close(compiled(x), fn(x))
    x = torch.randint(0, 255, (1, 2, 9, 9), dtype=torch.uint8)
    assert torch.equal(pyframe.compile(fn, options=SETTINGS)(x), fn(x))


def test_neighbours_that_are_infinite():
    """A neighbour of weight zero counts as in ATen: infinity times zero is NaN."""
    x = torch.randn(1, 1, 6, 20)
    x[0, 0, 2, 7] = torch.inf
    for options in ({"scale_factor": 2}, {"size": (6, 40)}, {"size": (11, 39), "align_corners": True}):
        fn = lambda x: F.interpolate(x, mode="bilinear", **options)  # noqa: B023, E731
        assert torch.equal(pyframe.compile(fn, options=SETTINGS)(x).isnan(), fn(x).isnan())
