"""Kernels of grouped products: values under Triton's interpreter, and which calls have kernels."""

import pytest
import torch
import torch.nn.functional as F
from products import _graph_of_fakes, check, runner_of
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import KNOWN
from inductor.codegen.triton.product_configs import configs
from inductor.dtypes import dtype_name
from inductor.ir.buffer import ExternKernel
from inductor.runtime import triton_build
from inductor.schedule.product import ProductConfig, products

BF = torch.bfloat16
CONFIG = ProductConfig("dot", 16, 32, 16, 4, 2)


def experts(x, w, ends):
    return F.silu(torch._grouped_mm(x, w, offs=ends))


@pytest.mark.parametrize("ends", [[16, 32, 48, 64], [5, 5, 40, 64], [0, 64, 64, 64], [1, 2, 3, 64], [64, 64, 64, 64]])
@pytest.mark.parametrize("turned", [False, True])
def test_groups(ends, turned):
    x, w = torch.randn(64, 48).to(BF), torch.randn(4, 48, 40).to(BF)
    w = w.mT.contiguous().mT if turned else w
    check(experts, x, w, torch.tensor(ends, dtype=torch.int32), config=CONFIG, fused=[True])
    check(lambda x, w, e: torch._grouped_mm(x, w, offs=e), x, w, torch.tensor(ends, dtype=torch.int32), config=CONFIG)


def test_rows_behind_the_last_group_are_not_written():
    x, w = torch.randn(64, 48).to(BF), torch.randn(3, 48, 40).to(BF)
    ends = torch.tensor([7, 20, 33], dtype=torch.int32)
    runner, _ = runner_of(lambda x, w, e: torch._grouped_mm(x, w, offs=e), (x, w, ends), CONFIG)
    (got,) = runner.run(x, w, ends)
    torch.testing.assert_close(got[:33], torch._grouped_mm(x, w, offs=ends)[:33], rtol=2e-2, atol=2e-2)
    assert (got[33:] == 77).all()


def test_not_eligible():
    x, w = torch.randn(3, 16, 32).to(BF), torch.randn(3, 32, 16).to(BF)
    assert not runner_of(lambda x, w: torch._grouped_mm(x, w), (x, w), CONFIG)[1]
    a, b, ends = torch.randn(16, 64).to(BF), torch.randn(64, 16).to(BF), torch.tensor([16, 48, 64], dtype=torch.int32)
    assert not runner_of(lambda a, b, e: torch._grouped_mm(a, b, offs=e), (a, b, ends), CONFIG)[1]  # of columns


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_kernels_compile(arch):
    with FakeTensorMode():
        args = torch.empty(4096, 1024, dtype=BF), torch.empty(8, 1024, 512, dtype=BF), torch.empty(8, dtype=torch.int32)
    graph, steps = _graph_of_fakes(experts, args)
    (found,) = products(steps, graph)
    dtypes = {v.name: dtype_name(v.dtype) for v in [*graph.inputs, *graph.buffers] if hasattr(v, "dtype")}
    dtypes |= {o.name: dtype_name(o.dtype) for v in graph.buffers if isinstance(v, ExternKernel) for o in v.outputs}
    chosen = configs(found.product, KNOWN[arch])
    assert len(chosen) >= 3 and all(c.split == 1 and c.kind == "dot" for c in chosen)
    source = TritonSource(KNOWN[arch])
    source.group(found.product.configured(chosen[0]), dtypes)
    for kernel, cubin in zip(source.kernels, triton_build.build_all(source.kernels, arch), strict=True):
        assert cubin.shared <= KNOWN[arch].shared_bytes, kernel.name
