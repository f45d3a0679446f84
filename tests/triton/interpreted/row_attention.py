"""Kernels of attention with one row of queries: values under Triton's interpreter, and which calls become kernels."""

import math

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from op_samples import lowered
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton_support import Runner

from inductor.codegen import codegen
from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import KNOWN
from inductor.dtypes import dtype_name
from inductor.lower import lower_graph
from inductor.runtime import triton_build
from inductor.schedule import Group, schedule
from inductor.schedule.row_attention import RowAttention, with_row_attention

attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def runner_of(fn, *args):
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=on_gpu))
    runner.steps = with_row_attention(runner.steps)
    runner.source = TritonSource(runner.source.gpu)
    runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps if isinstance(g, Group)}
    return runner


def check(fn, *args):
    runner = runner_of(fn, *args)
    (group,) = (s for s in runner.steps if isinstance(s, RowAttention))
    assert len(runner.launches[id(group)].launches) == 1
    want, (got,) = fn(*args), runner.run(*args)
    assert all(n == 1 or a == b for n, a, b in zip(want.shape, got.stride(), want.stride()))
    tolerance = 1e-5 if want.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    codegen(runner.steps, runner.graph)  # the plan can be made


def heads(n, length, dim, batch=2, dtype=torch.float32):
    return torch.randn(batch, length, n, dim, dtype=dtype).transpose(1, 2)


def sdpa(q, k, v, mask=None, **named):
    return F.scaled_dot_product_attention(q, k, v, mask, **named)


@pytest.mark.parametrize("length", [1, 40, 300, 1024])
@pytest.mark.parametrize("dim", [32, 72])
def test_lengths(length, dim):
    check(sdpa, heads(3, 1, dim), heads(3, length, dim), heads(3, length, dim))


def test_dtypes_scales_and_dimensions_of_the_values():
    for dtype in (torch.float32, torch.float16):
        q, k, v = heads(3, 1, 64, dtype=dtype), heads(3, 500, 64, dtype=dtype), heads(3, 500, 64, dtype=dtype)
        check(lambda q, k, v: sdpa(q, k, v, scale=0.3), q, k, v)


def test_masks():
    q, k, v = heads(3, 1, 16), heads(3, 700, 16), heads(3, 700, 16)
    some = torch.rand(2, 1, 1, 700) > 0.5
    for mask in (torch.randn(2, 3, 1, 700), torch.randn(1, 1, 1, 700), torch.zeros(2, 1, 1, 700).masked_fill(some, -math.inf)):
        check(sdpa, q, k, v, mask.expand(2, 3, 1, 700))
    late = torch.full((2, 3, 1, 700), -math.inf)  # whole parts without a score
    late[..., 650:] = 0
    check(sdpa, q, k, v, late)


def test_rows_without_a_score_are_zeros():
    q, k, v = heads(3, 1, 16), heads(3, 300, 16), heads(3, 300, 16)
    runner = runner_of(sdpa, q, k, v, torch.full((2, 3, 1, 300), -math.inf))
    assert not runner.run(q, k, v, torch.full((2, 3, 1, 300), -math.inf))[0].any()


def test_nan_and_infinity():
    q, k, v = heads(3, 1, 16), heads(3, 300, 16), heads(3, 300, 16)
    k[0, 1, 7, 3], v[1, 2, 9, 1] = math.nan, math.inf
    check(sdpa, q, k, v)


def test_heads_that_share_keys():
    q, k, v = heads(6, 1, 16), heads(2, 130, 16), heads(2, 130, 16)
    check(lambda q, k, v: sdpa(q, k, v, enable_gqa=True), q, k, v)


def test_views_of_a_cache():
    q, cache = heads(4, 1, 16), torch.randn(2, 2, 4, 256, 16)
    check(lambda q, cache: sdpa(q, cache[0, :, :, :200], cache[1, :, :, :200]), q, cache)


def test_calls_that_remain():
    q, k, v = heads(3, 1, 16), heads(3, 30, 16), heads(3, 30, 16)
    for fn, args in [
        (lambda q, k, v: sdpa(q, k, v), (heads(3, 2, 16), k, v)),  # two rows
        (lambda q, k, v: sdpa(q, k, v, is_causal=True), (q, k, v)),
        (lambda q, k, v: attention(q, k, v)[1], (q, k, v)),  # another result
    ]:
        assert not any(isinstance(s, RowAttention) for s in runner_of(fn, *args).steps)
    on_cpu = lowered(sdpa, q, k, v)
    assert not any(isinstance(s, RowAttention) for s in with_row_attention(schedule(on_cpu)))


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_kernels_compile(arch):
    kernels = []
    for n, length, dim, batch in [(16, 1024, 128, 1), (32, 4000, 80, 4), (8, 1 << 17, 256, 8)]:
        with FakeTensorMode() as mode:
            args = [torch.empty(batch, n, rows, dim, dtype=torch.bfloat16) for rows in (1, length, length)]
            mask = torch.empty(batch, 1, 1, length, dtype=torch.bfloat16).expand(batch, n, 1, length)
            with mode:
                gm = make_fx(lambda q, k, v, m: [attention(q, k, v, attn_mask=m)[0]])(*args, mask)
        graph = lower_graph(on_gpu(gm))
        (group,) = (s for s in with_row_attention(schedule(graph)) if isinstance(s, RowAttention))
        dtypes = {b.name: dtype_name(b.dtype) for b in (*graph.inputs, group.result)}
        source = TritonSource(KNOWN[arch])
        source.group(group, dtypes)
        kernels += source.kernels
    assert len(kernels) == 3
    for kernel, cubin in zip(kernels, triton_build.build_all(kernels, arch)):
        assert cubin.shared <= KNOWN[arch].shared_bytes, kernel.name
