"""Rows that every program of a product computes for itself, and products whose rows are read in even steps."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import lowered
from row_products import prepared
from triton_support import Runner

from inductor.codegen import codegen
from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import DEFAULT, Gpu
from inductor.ir.buffer import ExternKernel
from inductor.runtime import triton_build
from inductor.schedule import Group
from inductor.schedule.settled import mark_settled
from inductor.schedule.shared_rows import with_shared_rows

SMALL = Gpu(1)  # of so few multiprocessors that programs take several tiles


def runner_of(fn, *args, gpu=DEFAULT):
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=prepared, row_products=True))
    runner.steps = with_shared_rows(runner.steps, runner.graph)
    mark_settled(runner.steps, runner.graph)
    runner.source = TritonSource(gpu)
    runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps if isinstance(g, Group)}
    return runner


def compared(fn, *args, kernels, gpu=DEFAULT):
    """The kernels of `fn`, whose results are compared with those of float64."""
    runner = runner_of(fn, *args, gpu=gpu)
    assert not any(isinstance(node, ExternKernel) for node in runner.graph.buffers)
    assert len(runner.source.kernels) == kernels, [k.name for k in runner.source.kernels]
    want = fn(*[a.double() if a.is_floating_point() else a for a in args])
    got, again = runner.run(*args), fn(*args)
    wants, gots = (want if isinstance(want, tuple) else (want,)), got
    dtypes = [x.dtype for x in (again if isinstance(again, tuple) else (again,))]
    for x, y, dtype in zip(gots, wants, dtypes, strict=True):
        tolerance = 3e-2 if dtype.itemsize == 2 else 1e-4
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, rtol=tolerance, atol=tolerance)
    codegen(runner.steps, runner.graph)  # the plan can be made
    return runner


def values(*size, dtype=torch.float32, scale=1.0):
    return (torch.randn(*size) * scale).to(dtype)


def rms(x, g):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * g


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [96, 128, 768])
def test_rms_norm_ahead_of_a_product(length, dtype):
    x, g, w = values(1, length, dtype=dtype), values(length, dtype=dtype), values(300, length, dtype=dtype, scale=0.05)
    runner = compared(lambda x, g, w: F.linear(rms(x, g), w), x, g, w, kernels=1)
    (kernel,) = runner.source.kernels
    assert kernel.ahead and kernel.text.index("tl.load(b0") < kernel.text.index("\n    wait_for_kernel_ahead()")


@pytest.mark.parametrize("gpu", [DEFAULT, SMALL], ids=["a tile", "several tiles"])
@pytest.mark.parametrize("rows", [257, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_of_a_program(rows, gpu, dtype):
    """Of a matrix alone, with what follows, and of two matrices after a row that each program computes."""
    x, g = values(1, 512, dtype=dtype), values(512, dtype=dtype)
    w, u = (values(rows, 512, dtype=dtype, scale=0.05) for _ in range(2))
    runner = compared(lambda x, w, u: F.gelu(F.linear(x, w)), x, w, u, kernels=1, gpu=gpu)
    several = [k for k in runner.source.kernels if "for tile in range" in k.text]
    assert bool(several) == (gpu is SMALL)
    runner = compared(lambda x, g, w, u: F.linear(rms(x, g), w) * F.linear(rms(x, g), u), x, g, w, u, kernels=1, gpu=gpu)
    (kernel,) = runner.source.kernels
    assert "for tile in range" in kernel.text and (gpu is DEFAULT or kernel.grid[0] < rows // 8)


def test_a_matrix_that_is_computed_before():
    def fn(x, g, w, i):
        return F.linear(rms(x, g), w.cumsum(0))

    runner = runner_of(fn, values(1, 128), values(128), values(300, 128, scale=0.1), torch.arange(3), gpu=SMALL)
    assert not any(k.ahead for k in runner.source.kernels)
    want = F.linear(rms(*(args := [values(1, 128), values(128)])), (w := values(300, 128, scale=0.01)).cumsum(0))
    torch.testing.assert_close(runner.run(*args, w, torch.arange(3))[0], want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("length", [100, 256, 768, 1280])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_of_a_sum_ahead_of_a_gated_product(length, dtype):
    def fn(x, y, g, b, w, u):
        h = F.layer_norm(x + y, x.shape[-1:], g, b)
        return F.silu(F.linear(h, w)) * F.linear(h, u)

    args = [values(1, length, dtype=dtype) for _ in range(2)] + [values(length, dtype=dtype) for _ in range(2)]
    compared(fn, *args, *[values(259, length, dtype=dtype, scale=0.05) for _ in range(2)], kernels=1)


def test_what_others_read_of_the_row_is_stored_once():
    def fn(x, g, w):
        h = rms(x, g)
        return F.linear(h, w), h

    runner = compared(fn, values(1, 128), values(128), values(300, 128, scale=0.1), kernels=1)
    assert sum("(pid == 0)" in line for line in runner.source.kernels[0].text.splitlines()) == 1


def test_two_products_of_different_sizes_compute_the_row_each():
    def fn(x, g, w, u):
        h = rms(x, g)
        return F.linear(h, w), F.linear(h, u)

    compared(fn, values(1, 128), values(128), values(300, 128, scale=0.1), values(520, 128, scale=0.1), kernels=2)


def test_a_row_of_a_table():
    def fn(i, table, g, w):
        return F.linear(rms(F.embedding(i, table), g), w)

    compared(fn, torch.tensor([3]), values(9, 128), values(128), values(300, 128, scale=0.1), kernels=1)


def test_softmax_of_one_row():
    compared(lambda x, w: F.linear(x.softmax(-1), w), values(1, 200), values(300, 200), kernels=1)


@pytest.mark.parametrize("rows, results", [(2, 300), (1, 20)], ids=["several rows", "few results"])
def test_kernels_of_their_own(rows, results):
    args = values(rows, 128), values(128), values(results, 128)
    runner = runner_of(lambda x, g, w: F.linear(rms(x, g), w), *args)
    assert not any("mm" in kernel.name for kernel in runner.source.kernels)


@pytest.mark.parametrize("length", [768, 1280, 5632])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_in_even_steps(length, dtype):
    args = values(1, length, dtype=dtype), values(270, length, dtype=dtype, scale=0.02), values(270, dtype=dtype)
    runner = compared(lambda x, w, b: F.linear(x, w) + b, *args, kernels=1)
    (kernel,) = runner.source.kernels
    assert length % kernel.constants["RBLOCK"] == 0 and "rmask" not in kernel.text


def test_what_a_kernel_writes_is_not_read_ahead():
    """A matrix that a kernel before it computes is read after the wait."""
    def fn(x, w):
        return F.linear(x, torch.sin(w).cumsum(0))

    runner = runner_of(fn, values(1, 128), values(300, 128, scale=0.1))
    assert not any(k.ahead for k in runner.source.kernels)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_where_kernels_wait(arch):
    fn = lambda x, g, w: F.linear(rms(x, g), w)  # noqa: E731
    args = values(1, 128, dtype=torch.bfloat16), values(128, dtype=torch.bfloat16), values(4096, 128, dtype=torch.bfloat16)
    (kernel,) = runner_of(fn, *args).source.kernels
    assert kernel.early
    built = triton_build.build(kernel, arch)
    assert built.waits == (arch >= 90)
