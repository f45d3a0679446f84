"""Kernels of matrix products with their epilogues: values under Triton's interpreter, for every kind of configuration."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from op_samples import lowered
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton_support import Runner

from inductor.autotune import choose
from inductor.budget import Budget
from inductor.codegen import codegen
from inductor.codegen.triton import TritonSource
from inductor.codegen.triton.gpu import KNOWN
from inductor.codegen.triton.product_configs import configs, shared_bytes
from inductor.codegen.triton.product_descriptors import fits
from inductor.compile_report import CompileReport
from inductor.dtypes import dtype_name
from inductor.ir.buffer import ExternKernel
from inductor.lower import lower_graph
from inductor.runtime import triton_build
from inductor.schedule import Group, schedule
from inductor.schedule.product import Product, ProductConfig, products, replaced

aten = torch.ops.aten
DOT = ProductConfig("dot", 16, 32, 16, 4, 2)
CONFIGS = {
    "dot": DOT,
    "dot, split": ProductConfig("dot", 32, 16, 16, 4, 3, split=2),
    "vector": ProductConfig("vector", 1, 32, 32, 4, 2),
    "vector, split": ProductConfig("vector", 1, 32, 16, 2, 2, split=3),
}


def runner_of(fn, args, config):
    """A Runner in whose schedule every product is computed by a template."""
    graph = lowered(fn, *args, prepare=on_gpu)
    steps = schedule(graph)
    found = products(steps, graph)
    chosen = [(c, c.product.configured(config)) for c in found]
    runner = Runner(fn, *args, graph=graph)
    runner.steps = replaced(steps, chosen)
    runner.source = type(runner.source)(runner.source.gpu)
    runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps if isinstance(g, Group)}
    return runner, found


def check(fn, *args, config=DOT, fused=None):
    runner, found = runner_of(fn, args, config)
    want = fn(*args)
    want = want if isinstance(want, tuple) else (want,)
    tol = 2e-2 if any(x.dtype in (torch.bfloat16, torch.float16) for x in args) else 1e-4
    for got, expected in zip(runner.run(*args), want, strict=True):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, rtol=tol, atol=tol, equal_nan=True)
    if fused is not None:
        assert [c.epilogue is not None for c in found] == fused
    codegen(runner.steps, runner.graph)  # the plan can be made
    return runner


def half(*size):
    return torch.randn(*size).bfloat16()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layouts_of_the_factors(config, dtype):
    for m, k, n, kinds in [(32, 32, 32, (0,)), (5, 37, 19, (0, 1, 2, 3)), (1, 96, 20, (0, 2))]:
        for turned in kinds:
            a, b = torch.randn(m, k) / 8, torch.randn(k, n)
            a = a.t().contiguous().t() if turned & 1 else a
            b = b.t().contiguous().t() if turned & 2 else b
            check(lambda a, b: a @ b, a.to(dtype), b.to(dtype), config=config, fused=[False])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_epilogues(config):
    x, w, b, r = half(2, 3, 40), half(24, 40), half(24), half(2, 3, 24)
    check(lambda x, w, b, r: F.gelu(F.linear(x, w, b)) * 0.5 + r, x, w, b, r, config=config, fused=[True])
    check(lambda x, w: F.linear(x, w).relu().float(), x, w, config=config, fused=[True])
    check(lambda x, w: (F.linear(x, w), F.linear(x, w).sigmoid()), x, w, config=config)  # the result itself is returned
    whole = x.round(), w.round()  # exact, so that a comparison is as well
    check(lambda x, w: (F.linear(x, w) > 3).to(torch.int32), *whole, config=config, fused=[True])
    # each element of the transposed result is written where it belongs
    check(lambda x, w: F.linear(x, w).view(2, 3, 3, 8).transpose(1, 2).contiguous(), x, w, config=config, fused=[True])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_operators(config):
    a, b, m, v = torch.randn(3, 33), torch.randn(33, 20), torch.randn(3, 20), torch.randn(20)
    check(lambda m, a, b: torch.addmm(m, a, b, alpha=0.5, beta=2), m, a, b, config=config)
    check(lambda v, a, b: torch.addmm(v, a, b), v, a, b, config=config)
    check(lambda m, a, b: torch.addmm(m[:, :1], a, b), m, a, b, config=config)
    nan = torch.full((20,), math.nan)
    check(lambda v, a, b: torch.addmm(v, a, b, beta=0), nan, a, b, config=config)
    check(lambda v, a, b: aten._addmm_activation(v, a, b), v, a, b, config=config)
    # on a GPU the library approximates tanh
    runner, _ = runner_of(lambda v, a, b: aten._addmm_activation(v, a, b, use_gelu=True), (v, a, b), config)
    want = F.gelu(torch.addmm(v, a, b), approximate="tanh")
    torch.testing.assert_close(runner.run(v, a, b)[0], want, rtol=1e-4, atol=1e-4)
    x, y, z = torch.randn(2, 3, 21), torch.randn(2, 21, 18), torch.randn(2, 3, 18)
    check(lambda x, y: torch.bmm(x, y).exp(), x, y, config=config, fused=[True])
    check(lambda x, y: torch.bmm(x, y), x.mT.contiguous().mT, y.mT.contiguous().mT, config=config)
    check(lambda z, x, y: torch.baddbmm(z, x, y, alpha=2), z, x, y, config=config)
    check(lambda z, x, y: torch.baddbmm(z[:1, :, :1], x, y, beta=0.5), z, x, y, config=config)
    check(lambda x, y: torch.bmm(x, y[:1].expand(2, 21, 18)), x, y, config=config)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_prologues(config):
    """The second factor is computed where it is read, if nothing else reads it."""
    x, scale = half(3, 40), 2.0 ** torch.randint(-2, 2, (24, 1))  # exact: the interpreter truncates to bfloat16
    codes = torch.randint(-128, 128, (24, 40), dtype=torch.int8)
    runner = check(lambda x, q, s: F.linear(x, (q * s / 128).bfloat16()).relu(), x, codes, scale, config=config, fused=[True])
    assert len(runner.steps) == 1
    runner = check(lambda x, q, s: x @ (q.t() * s.t() / 128).bfloat16(), x, codes, scale, config=config)
    assert len(runner.steps) == 1
    grouped = 2.0 ** torch.randint(-2, 2, (24, 5, 1))  # a scale for every 8 elements
    runner = check(
        lambda x, q, s: F.linear(x, (q.view(24, 5, 8) * s / 128).bfloat16().view(24, 40)) + x[:, :1], x, codes, grouped, config=config
    )
    assert len(runner.steps) == 1


PROLOGUES = {
    "first": (lambda x, w, b: F.linear(x.float().exp().to(w.dtype) / 4, w, b), (20, 37), (19, 37), (19,)),
    "first, addmm, few rows": (lambda x, w, b: torch.addmm(b, x.relu() * 2, w), (3, 40), (40, 24), (24,)),
    "first, turned": (lambda x, w, b: (x.t() * 0.5).relu() @ w + b, (33, 20), (33, 18), (18,)),
    "second, many rows": (lambda x, w, b: F.linear(x, w * 0.5).relu() + b, (40, 37), (19, 37), (19,)),
    "both": (lambda x, w, b: F.linear(x.relu(), (w - 1) * b[:, None]) + b, (20, 40), (24, 40), (24,)),
    "both, batches": (lambda x, w, b: torch.bmm(x * 2, w.abs()).relu() * b, (2, 20, 21), (2, 21, 18), (18,)),
    "both, batches of two dimensions": (lambda x, w, b: (x.abs() @ (w + b).mT).tanh(), (2, 3, 9, 20), (2, 3, 17, 20), (20,)),
    "first, baddbmm": (lambda x, w, b: torch.baddbmm(b, x - 1, w, alpha=2), (2, 20, 21), (2, 21, 18), (18,)),
}  # fmt: skip


@pytest.mark.parametrize("config", [DOT, CONFIGS["dot, split"]], ids=["dot", "split"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROLOGUES)
def test_factors_that_are_computed_where_they_are_read(name, dtype, config):
    fn, *sizes = PROLOGUES[name]
    args = [(torch.randn(*size) / 2).round(decimals=1).to(dtype) for size in sizes]
    positions = {"first": [0], "second": [1], "both": [0, 1]}[name.partition(",")[0]]
    for apart in (False, True):
        runner, found = runner_of(fn, args, replace(config, apart=apart))
        assert [[p.position for p in c.product.prologues] for c in found] == [positions]
        assert len(runner.steps) == (1 + len(positions) if apart else 1)
        (got,) = runner.run(*args)
        want = fn(*[a.double() for a in args])
        tolerance = 1e-4 if dtype == torch.float32 else 4e-2
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance * float(want.abs().max()))
        codegen(runner.steps, runner.graph)


def test_configurations_with_and_without_prologues():
    """If a factor is computed once per tile that reads it, both ways are measured."""
    for rows, positions, both in [(512, [0, 1], True), (512, [1], True), (8, [1], False), (8, [0, 1], True)]:
        with FakeTensorMode():
            args = [torch.empty(rows, 256), torch.empty(512, 256)]
        first, second = (n in positions for n in (0, 1))
        graph, steps = _graph_of_fakes(lambda x, w: (x.exp() if first else x) @ (w.exp() if second else w).t(), args)  # noqa: B023
        (candidate,) = products(steps, graph)
        assert [p.position for p in candidate.product.prologues] == positions
        found = configs(candidate.product, KNOWN[90])
        assert {c.apart for c in found} == ({True, False} if both else {False}) and len(found) <= 16
        assert not any(c.kind == "descriptors" and not c.apart for c in found)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_prologues_compile(arch):
    with FakeTensorMode():
        args = [torch.empty(4, 256, 128), torch.empty(4, 192, 128, dtype=torch.int8), torch.empty(4, 192, 1)]
    graph, steps = _graph_of_fakes(
        lambda x, w, s: torch.bmm(F.silu(x).bfloat16(), (w * s).bfloat16().mT).relu(), args
    )
    (candidate,) = products(steps, graph)
    assert len(candidate.product.prologues) == 2 and candidate.epilogue is not None
    dtypes = {b.name: dtype_name(b.dtype) for b in [*graph.inputs, *graph.buffers] if hasattr(b, "dtype")}
    dtypes |= {o.name: dtype_name(o.dtype) for b in graph.buffers if isinstance(b, ExternKernel) for o in b.outputs}
    config = next(c for c in configs(candidate.product, KNOWN[arch]) if not c.apart)
    source = TritonSource(KNOWN[arch])
    source.group(candidate.product.configured(config), dtypes)
    assert all(triton_build.build(kernel, arch).shared <= KNOWN[arch].shared_bytes for kernel in source.kernels)


def test_no_prologue():
    x, w = half(3, 40), half(24, 40).float()

    def both(x, w):
        v = w.bfloat16()  # the first factor of another product, too
        return F.linear(x, v)[:, :1] + (v @ x.t())[:1, :1]

    for fn in (
        lambda x, w: (F.linear(x, w.bfloat16()), w.bfloat16()),  # a result of the graph
        lambda x, w: F.linear(x.repeat(8, 1).float().cumsum(0), w),  # not an element by itself
        both,
    ):
        runner = check(fn, x, w)
        assert all(not s.prologues for s in runner.steps if isinstance(s, Product))


def test_a_group_between_two_products_is_fused_with_one():
    x, u, w = half(16, 40).round(), half(24, 40).round(), half(3, 24).round()
    runner = check(lambda x, u, w: w @ F.linear(x, u).relu().t(), x, u, w)
    assert [type(s) for s in runner.steps] == [Product] * 2
    runner = check(lambda x, u, w: F.linear(w, F.linear(x.mT, u.mT).relu()) + 1, torch.ones(40, 16).bfloat16(), torch.ones(40, 24).bfloat16(), w)
    assert [type(s) for s in runner.steps] == [Product] * 2


def test_nan_and_infinity():
    a, b = torch.randn(5, 37), torch.randn(37, 19)
    a[1, 3], a[2, 4], b[5, 6], b[7, 8] = math.nan, math.inf, math.inf, -math.inf
    for config in CONFIGS.values():
        check(lambda a, b: (a @ b).clamp(max=1), a, b, config=config)


def test_a_group_that_reads_two_products_is_fused_with_the_second():
    x, u, w = half(6, 40), half(24, 40), half(24, 40)
    check(lambda x, u, w: F.silu(F.linear(x, u)) * F.linear(x, w), x, u, w, fused=[False, True])


def test_not_fused():
    x, w = half(8, 40), half(24, 40)
    check(lambda x, w: F.linear(x, w).float().sum(-1), x, w, fused=[False])  # a reduction
    check(lambda x, w: F.linear(x, w).flip(0) * 2, x, w, fused=[False])  # elements of other tiles
    y = torch.randn(24, 24)
    check(lambda y: (y @ y) + (y @ y).t(), y, fused=[False, True])  # the second, in whose order


def test_not_eligible():
    for a, b in [(torch.randn(4, 8).double(), torch.randn(8, 4).double()), (torch.randn(0, 8), torch.randn(8, 4)),
                 (torch.randn(4, 0), torch.randn(0, 4))]:
        runner, found = runner_of(lambda a, b: a @ b + 1, (a, b), DOT)
        assert not found
    assert not any(isinstance(s, Product) for s in runner.steps)


# ---- the choice between configurations


def _graph(fn, *args):
    graph = lowered(fn, *args, prepare=on_gpu)
    return graph, schedule(graph)


class Clock:
    """Measures nothing: the k-th configuration is the fastest; ATen takes `aten` microseconds."""

    def __init__(self, best, aten=10.0):
        self.best, self.aten, self.problems = best, aten, []

    def __call__(self, problems):
        self.problems += problems
        return [(self.aten, [1.0 if k == self.best else 5.0 for k in range(len(p.configs))]) for p in problems]


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choose, "_chosen", {})
    return monkeypatch


def test_the_fastest_configuration_is_chosen_and_remembered(fresh):
    def fn(x, u, w, b):
        return F.linear(F.linear(x, u).relu(), w, b), F.linear(x, u)

    args = half(32, 64), half(64, 64), half(48, 64), half(48)
    graph, steps = _graph(fn, *args)
    clock = Clock(1)
    found = choose.tuned(steps, graph, clock)
    assert [type(s) for s in found] == [Product] * 3 and len(clock.problems) == 3
    assert all(s.config == p.configs[1] for s, p in zip(found, clock.problems))
    assert choose.tuned(steps, graph, clock)[0].config == found[0].config and len(clock.problems) == 3
    fresh.setattr(choose, "_chosen", {})  # another process
    again = choose.tuned(*reversed(_graph(fn, *args)), clock)
    assert [s.config for s in again] == [s.config for s in found] and len(clock.problems) == 3
    other = half(32, 64), half(64, 64), half(56, 64), half(56)
    choose.tuned(*reversed(_graph(fn, *other)), clock)
    assert len(clock.problems) == 4  # only what differs


def test_aten_stays_where_it_is_as_fast(fresh):
    graph, steps = _graph(lambda x, w: F.linear(x, w).relu(), half(32, 64), half(64, 64))
    assert choose.tuned(steps, graph, Clock(0, aten=1.0)) == steps
    assert choose.tuned(steps, graph) == steps  # no GPU


def test_a_spent_budget_ends_measuring(fresh):
    def fn(x, u, w):
        return F.linear(F.linear(x, u).relu(), w)

    graph, steps = _graph(fn, half(32, 64), half(64, 64), half(48, 64))
    clock, spent, report = Clock(1), Budget(1), CompileReport()

    def first_only(problems):
        spent.seconds = 0
        return clock(problems[:1])

    with spent.spending():
        some = choose.tuned(steps, graph, first_only, report)
        assert [type(s) for s in some].count(Product) == 1 and report.untuned == 1
        again = choose.tuned(steps, graph, clock, report)
        assert [s for s in again if type(s) is not Product] and report.untuned == 2
    assert [type(s) for s in choose.tuned(steps, graph, clock)] == [Product] * 2 and len(clock.problems) == 2


def test_what_is_measured_computes_the_same(fresh):
    """The graphs that are measured: of a product and its epilogue, with everything else they read as inputs."""

    def fn(x, u, w, r, cache):
        h = F.silu(F.linear(x, u)) * F.linear(x, w)
        cache.copy_(torch.addmm(r, h, w.t()) + cache)
        return h

    args = half(32, 64), half(64, 64), half(64, 64), half(32, 64), half(32, 64)
    graph, steps = _graph(fn, *args)
    clock = Clock(0)
    for problem in choose_problems(steps, graph, clock):
        inner = problem.subgraph()
        values = [torch.randn(b.layout.size).to(b.dtype) for b in inner.inputs]
        results = []
        for config in (None, DOT):
            codegen(problem.steps(config), inner)
            runner = Runner(fn, graph=inner)
            runner.steps = problem.steps(config)
            runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps if isinstance(g, Group)}
            copies = [v.clone() for v in values]
            results.append([*runner.run(*copies), *copies])
        for got, want in zip(*results):
            torch.testing.assert_close(got, want, rtol=2e-2, atol=0.1)


def choose_problems(steps, graph, clock):
    choose.tuned(steps, graph, clock)
    assert len(clock.problems) == 3
    return clock.problems


SHAPES = [(1, 4096, 4096), (1, 768, 50257), (8, 4096, 1024), (16, 768, 3072), (64, 1024, 1024), (100, 40, 64), (512, 768, 3072), (8192, 8192, 8192)]


@pytest.mark.parametrize("gpu", [KNOWN[80], KNOWN[90]])
def test_configurations_fit_the_device(gpu):
    for m, k, n in SHAPES:
        for dtype in (torch.bfloat16, torch.float32):
            with FakeTensorMode():
                args = torch.empty(m, k, dtype=dtype), torch.empty(n, k, dtype=dtype)
            graph, steps = _graph_of_fakes(lambda x, w: F.linear(x, w), args)
            (candidate,) = products(steps, graph)
            found = configs(candidate.product, gpu)
            assert 3 <= len(found) <= 16
            for config in found:
                assert config.kind == "vector" or shared_bytes(config, dtype.itemsize) <= gpu.shared_bytes
                assert math.prod([config.rows, config.columns]) <= 128 * 256
            assert any(c.kind == "vector" for c in found) == (m == 1)


def _graph_of_fakes(fn, args):
    with args[0].fake_mode:
        gm = make_fx(lambda *xs: [fn(*xs)])(*args)
    graph = lower_graph(on_gpu(gm))
    return graph, schedule(graph)


@pytest.mark.parametrize("arch", [80, 90])
def test_kernels_compile(arch):
    """For GPUs, with as much shared memory as was predicted; an epilogue of each kind of configuration."""
    kernels, limits = [], []
    half = torch.bfloat16
    for m, k, n, dtype, weights in [(1, 512, 256, half, torch.int8), (16, 1024, 256, torch.float16, torch.float16), (512, 256, 512, half, half)]:
        with FakeTensorMode():
            args = [torch.empty(s, dtype=dtype) for s in ((m, k), (n, k), (n,), (m, n), (n, 1))]
            args[1] = args[1].to(weights)
        graph, steps = _graph_of_fakes(
            lambda x, w, b, r, s: F.gelu(F.linear(x, w * s if w.dtype == torch.int8 else w, b)) + r, args  # noqa: B023
        )
        (candidate,) = products(steps, graph)
        dtypes = {b.name: dtype_name(b.dtype) for b in [*graph.inputs, *graph.buffers] if hasattr(b, "dtype")}
        dtypes |= {o.name: dtype_name(o.dtype) for b in graph.buffers if isinstance(b, ExternKernel) for o in b.outputs}
        found = configs(candidate.product, KNOWN[arch])
        assert bool(candidate.product.prologues) == (weights == torch.int8)
        for config in (found[0], found[-1]):
            source = TritonSource(KNOWN[arch])
            source.group(candidate.product.configured(config), dtypes)
            kernels += source.kernels
            limits += [KNOWN[arch].shared_bytes] * len(source.kernels)
    for kernel, cubin, limit in zip(kernels, triton_build.build_all(kernels, arch), limits):
        assert cubin.hidden >= 0 and cubin.shared <= limit, kernel.name


DESCRIPTORS = ProductConfig("descriptors", 16, 32, 16, 4, 2, programs=3)


@pytest.mark.parametrize("turned", range(4))
def test_factors_through_descriptors(turned):
    """Blocks that the copy engine brings, by fewer programs than there are tiles, and tiles that are not full."""
    a, b, r = torch.randn(40, 72), torch.randn(72, 80), torch.randn(40, 80)
    a = a.t().contiguous().t() if turned & 1 else a
    b = b.t().contiguous().t() if turned & 2 else b
    for config in (DESCRIPTORS, replace(DESCRIPTORS, programs=1000)):
        runner = check(lambda a, b, r: (a @ b).relu() + r, a.half(), b.half(), r.half(), config=config, fused=[True])
        (launches,) = runner.launches.values()
        assert len(launches.launches[0].bufs) == len(runner.source.kernels[0].signature) + 1 and len(launches.scratch) == 1


def test_which_factors_descriptors_can_read():
    def found(fn, *args):
        graph, steps = _graph(fn, *args)
        (candidate,) = products(steps, graph)
        return fits(candidate.product)

    x, w = half(64, 64), half(64, 64)
    assert found(lambda x, w: x @ w, x, w) and found(lambda x, w: x.t() @ w[8:, :].t(), x, w)
    assert not found(lambda x, w: x @ w, x.float(), w.float())
    assert not found(lambda x, w: x[:, 4:] @ w[4:], x, w)  # an address that is not a multiple of 16
    assert not found(lambda x, w: x @ w, half(64, 60), half(60, 64))  # a stride that is not
    assert not found(lambda x, w: x[:, ::2] @ w[::2], x, w)
    assert not found(lambda x, w: torch.bmm(x[None], w[None]), x, w)


@pytest.mark.parametrize("arch", [90, 100])
def test_kernels_with_descriptors_compile(arch):
    with FakeTensorMode():
        args = [torch.empty(s, dtype=torch.bfloat16) for s in ((4096, 1024), (2048, 1024), (4096, 2048))]
    graph, steps = _graph_of_fakes(lambda x, w, r: F.gelu(F.linear(x, w)) + r, args)
    (candidate,) = products(steps, graph)
    dtypes = {b.name: dtype_name(b.dtype) for b in [*graph.inputs, *graph.buffers] if hasattr(b, "dtype")}
    dtypes |= {o.name: dtype_name(o.dtype) for b in graph.buffers if isinstance(b, ExternKernel) for o in b.outputs}
    chosen = [c for c in configs(candidate.product, KNOWN[arch]) if c.kind == "descriptors"]
    assert len(chosen) == 4
    assert not any(c.kind == "descriptors" for c in configs(candidate.product, KNOWN[80]))
    source = TritonSource(KNOWN[arch])
    for config in chosen[::3]:
        source.group(candidate.product.configured(config), dtypes)
    for kernel, cubin in zip(source.kernels, triton_build.build_all(source.kernels, arch), strict=True):
        assert cubin.shared <= KNOWN[arch].shared_bytes, kernel.name
