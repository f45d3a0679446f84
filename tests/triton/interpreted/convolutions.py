"""Kernels of 2-d convolutions in channels_last with their epilogues: values under Triton's interpreter."""

import math

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from products import check, runner_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import KNOWN
from inductor.codegen.triton.product_configs import configs, shared_bytes
from inductor.dtypes import dtype_name
from inductor.ir.buffer import ExternKernel
from inductor.lower import lower_graph
from inductor.runtime import triton_build
from inductor.schedule import schedule
from inductor.schedule.product import Product, ProductConfig, products

CONFIGS = {
    "dot": ProductConfig("dot", 16, 32, 16, 4, 2),
    "dot, split": ProductConfig("dot", 32, 16, 16, 4, 3, split=2),
    "dot, split unevenly": ProductConfig("dot", 32, 16, 32, 4, 3, split=4),
}


def image(*size):
    """Small whole numbers, with which sums are exact."""
    return torch.randint(-3, 4, size).bfloat16().contiguous(memory_format=torch.channels_last)


# (image, filters, taps, stride, padding, dilation)
SHAPES = {
    "3x3": ((2, 32, 5, 6), 20, (3, 3), 1, 1, 1),
    "1x1, stride 2": ((2, 32, 5, 6), 40, (1, 1), 2, 0, 1),
    "channels that do not fill a block": ((1, 24, 5, 5), 16, (3, 3), 1, 1, 1),
    "odd channels": ((1, 5, 6, 4), 17, (2, 3), 1, (0, 1), 1),
    "stride, padding and dilation that differ": ((1, 16, 9, 11), 16, (3, 2), (2, 1), (3, 0), (2, 3)),
    "nothing but padding below some taps": ((1, 16, 1, 2), 16, (3, 3), 1, 2, 1),
    "one pixel": ((1, 64, 3, 3), 16, (3, 3), 1, 0, 1),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes(shape, config):
    size, filters, taps, *numbers = shape
    x, w = image(*size), image(filters, size[1], *taps)
    check(lambda x, w: F.conv2d(x, w, None, *numbers), x, w, config=config, fused=[False])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_epilogues(config):
    x, w, r, b = image(2, 16, 5, 4), image(24, 16, 3, 3), image(2, 24, 5, 4), image(1, 24, 1, 1).view(24)
    check(lambda x, w, b: F.conv2d(x, w, b, padding=1), x, w, b, config=config, fused=[False])
    check(lambda x, w, b, r: (F.conv2d(x, w, b, padding=1) + r).relu(), x, w, b, r, config=config, fused=[True])
    mean, var = torch.randn(24), torch.rand(24) + 0.5

    def block(x, w, r, mean, var):
        return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var) + r)

    runner = check(block, x, w, r, mean.bfloat16(), var.bfloat16(), config=config, fused=[True])
    assert len(runner.steps) == 1
    check(lambda x, w: (F.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1).exp()), x, w, config=config)
    # another layout of what follows
    check(lambda x, w: F.conv2d(x, w, padding=1).relu().contiguous(), x, w, config=config)


def test_views_of_larger_buffers():
    x, w = image(2, 32, 7, 6), image(24, 16, 3, 3)
    check(lambda x, w: F.conv2d(x[:, 16:, 1:-1], w).relu(), x, w, fused=[True])


def test_nan_outside_the_sum_stays_there():
    x, w = image(1, 16, 6, 6), image(16, 16, 3, 3)
    x[0, 3, 0, 0], x[0, 2, 5, 5] = math.nan, math.inf
    got = check(lambda x, w: F.conv2d(x, w.abs() + 1, padding=1), x, w).run(x, w)[0]
    assert got[0, :, 2:4, 2:4].isfinite().all() and got[0, :, 0, 0].isnan().all()


def test_not_eligible():
    x, w = image(1, 16, 5, 5), image(16, 16, 3, 3)
    for fn, args in [
        (lambda x, w: F.conv2d(x, w), (x.float(), w.float())),  # TF32, as torch's setting says
        (lambda x, w: F.conv2d(x, w, groups=2), (x, image(16, 8, 3, 3))),
        (lambda x, w: F.conv_transpose2d(x, w), (x, w)),
        (lambda x, w: F.conv2d(x, w), (x.contiguous(), w.contiguous())),
        (lambda x, w: F.conv1d(x, w), (x[0][None].flatten(2), w.flatten(2))),
    ]:
        runner, found = runner_of(fn, args, CONFIGS["dot"])
        assert not found and not any(isinstance(s, Product) for s in runner.steps)


def graph_of_fakes(fn, args):
    with args[0].fake_mode:
        gm = make_fx(lambda *xs: [fn(*xs)])(*args)
    graph = lower_graph(on_gpu(gm))
    return graph, schedule(graph)


def fakes(*sizes, dtype=torch.float16):
    with FakeTensorMode():
        return [torch.empty(s, dtype=dtype).contiguous(memory_format=torch.channels_last) for s in sizes]


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_kernels_compile(arch):
    """For GPUs, with as much shared memory as was predicted."""
    kernels = []
    for image, filters, stride in [((8, 64, 56, 56), (64, 64, 3, 3), 1), ((8, 16, 28, 28), (128, 16, 4, 4), 2), ((2, 256, 14, 14), (512, 256, 1, 1), 2)]:
        args = fakes(image, filters)
        graph, steps = graph_of_fakes(lambda x, w: F.conv2d(x, w, None, stride, 1).relu(), args)  # noqa: B023
        (candidate,) = products(steps, graph)
        assert candidate.epilogue is not None
        dtypes = {b.name: dtype_name(b.dtype) for b in [*graph.inputs, *graph.buffers] if hasattr(b, "dtype")}
        dtypes |= {o.name: dtype_name(o.dtype) for b in graph.buffers if isinstance(b, ExternKernel) for o in b.outputs}
        found = configs(candidate.product, KNOWN[arch])
        assert 3 <= len(found) <= 12 and all(shared_bytes(c, 2) <= KNOWN[arch].shared_bytes for c in found)
        for config in (found[0], found[-1]):
            source = TritonSource(KNOWN[arch])
            source.group(candidate.product.configured(config), dtypes)
            kernels += source.kernels
    for kernel, cubin in zip(kernels, triton_build.build_all(kernels, arch)):
        assert cubin.shared <= KNOWN[arch].shared_bytes, kernel.name
