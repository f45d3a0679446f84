"""Kernels of products of 8-bit floats with scales: values under Triton's interpreter, and which calls have kernels."""

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from products import CONFIGS, _graph_of_fakes, runner_of
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import KNOWN
from inductor.codegen.triton.product_configs import configs, shared_bytes
from inductor.dtypes import dtype_name
from inductor.ir.buffer import ExternKernel
from inductor.runtime import triton_build
from inductor.schedule.product import ProductConfig, products

E4, E5, BF = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16


def scaled(a, b, x, y, bias=None, fast=True):
    return torch._scaled_mm(a, b.t(), x, y, bias=bias, out_dtype=BF, use_fast_accum=fast)


def exact(a, b, x, y):
    return (a.double() @ b.double().t()) * x.double() * y.double()


@pytest.mark.parametrize("config", [ProductConfig("dot", 16, 32, 32, 4, 2), ProductConfig("dot", 16, 16, 32, 4, 2, split=2)])
@pytest.mark.parametrize("scales", ["one", "each"])
def test_scales(scales, config):
    a, b = torch.randn(48, 96).to(E4), torch.randn(80, 96).to(E4)
    x, y = (torch.rand(48, 1), torch.rand(1, 80)) if scales == "each" else (torch.tensor(0.5), torch.tensor(3.0))
    bias, residual = torch.randn(80).to(BF), torch.randn(48, 80).to(BF)

    def check(fn, want, *args):
        runner, found = runner_of(fn, args, config)
        (got,) = runner.run(*args)
        assert got.dtype == BF and len(runner.steps) == 1 and all(c.epilogue is not None for c in found)
        torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=5e-2)

    want = exact(a, b, x, y)
    check(lambda a, b, x, y: scaled(a, b, x, y).relu(), want.relu(), a, b, x, y)
    check(lambda a, b, x, y, r: scaled(a, b, x, y, fast=False) + r, want + residual.double(), a, b, x, y, residual)
    check(lambda a, b, x, y, c: F.silu(scaled(a, b, x, y, c)), F.silu(want + bias.double()), a, b, x, y, bias)


def candidates(fn, *args):
    graph, steps = _graph_of_fakes(fn, args)
    return products(steps, graph), graph


def fakes(*sizes):
    with FakeTensorMode():
        return [torch.empty(size, dtype=dtype) for size, dtype in sizes]


def test_not_eligible():
    a, b, x, y = fakes(((64, 128), E4), ((96, 128), E4), ((64, 1), torch.float32), ((1, 96), torch.float32))
    (found,), _ = candidates(scaled, a, b, x, y)
    assert configs(found.product, KNOWN[90]) and not configs(found.product, KNOWN[80])
    a, b, x, y = fakes(((64, 16), E4), ((96, 16), E4), ((), torch.float32), ((), torch.float32))  # a short sum
    assert not candidates(scaled, a, b, x, y)[0]


@pytest.mark.parametrize("arch", [90, 100])
def test_kernels_compile(arch):
    a, b, x, y, r = fakes(((512, 1024), E4), ((256, 1024), E5), ((512, 1), torch.float32), ((1, 256), torch.float32), ((512, 256), BF))
    source = TritonSource(KNOWN[arch])
    for fast in (True, False):
        (found,), graph = candidates(lambda a, b, x, y, r: F.gelu(scaled(a, b, x, y, fast=fast)) + r, a, b, x, y, r)  # noqa: B023
        dtypes = {v.name: dtype_name(v.dtype) for v in [*graph.inputs, *graph.buffers] if hasattr(v, "dtype")}
        dtypes |= {o.name: dtype_name(o.dtype) for v in graph.buffers if isinstance(v, ExternKernel) for o in v.outputs}
        chosen = configs(found.product, KNOWN[arch])
        assert len(chosen) >= 3 and all(shared_bytes(c, 1) <= KNOWN[arch].shared_bytes for c in chosen)
        source.group(found.product.configured(chosen[0]), dtypes)
    for kernel, cubin in zip(source.kernels, triton_build.build_all(source.kernels, arch), strict=True):
        assert cubin.shared <= KNOWN[arch].shared_bytes, kernel.name


__all__ = ["CONFIGS", "on_gpu"]
