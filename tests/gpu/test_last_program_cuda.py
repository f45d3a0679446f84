"""Reductions of few long rows or columns, which the last of the programs that share a row completes, and scans of which
programs pass totals on to each other: the same result in every call, on several streams, in CUDA graphs, and between
other kernels."""

import pytest
import torch

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

PROGRAMS = {
    "column sum": lambda x: x.sum(0), "sum": lambda x: x.sum(), "row sum": lambda x: x.t().sum(1),
    "argmax": lambda x: x.argmax(0), "greatest": lambda x: x.amax(0), "norm": lambda x: (x * x).sum().sqrt(),
    "moments": lambda x: torch.var_mean(x, 0), "softmax": lambda x: x.flatten().softmax(0),
    "running sum": lambda x: x.flatten().cumsum(0), "running column sums": lambda x: x.cumsum(0),
}  # fmt: skip


def listed(out):
    return [out] if isinstance(out, torch.Tensor) else list(out)


@pytest.mark.parametrize("size", [(8192, 1024), (100_001, 3), (40_000, 70)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, size):
    x = torch.randn(size, device="cuda")
    compiled = pyframe.compile(PROGRAMS[name], fullgraph=True)
    first = [t.clone() for t in listed(compiled(x))]
    for got, want in zip(first, listed(PROGRAMS[name](x.double()))):
        torch.testing.assert_close(got.to(want.dtype), want, rtol=1e-5, atol=1e-2 if "sum" in name else 1e-5)
    for _ in range(50):
        assert all(torch.equal(a, b) for a, b in zip(listed(compiled(x)), first))


@pytest.mark.parametrize("size, channels", [(56, 72), (28, 216), (14, 576)])
@pytest.mark.parametrize("batch", [1, 2])
def test_means_of_few_channels(batch, size, channels):
    def fn(x, scale):
        y = (x * scale).relu()
        return y, y.mean((2, 3))

    x = torch.randn(batch, channels, size, size, device="cuda", dtype=torch.bfloat16)
    x, scale = x.to(memory_format=torch.channels_last), torch.rand(channels, 1, 1, device="cuda", dtype=torch.bfloat16)
    compiled = pyframe.compile(fn, fullgraph=True)
    first = [t.clone() for t in compiled(x, scale)]
    for got, want in zip(first, fn(x.double(), scale.double())):
        torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=1e-3)
    assert all(torch.equal(a, b) for _ in range(50) for a, b in zip(compiled(x, scale), first))


def test_kernels_of_one_call_follow_each_other():
    def fn(x):
        for _ in range(20):
            x = x + x.sum(0) * 1e-6
        return x.sum()

    x = torch.rand(8192, 512, device="cuda")
    compiled = pyframe.compile(fn, fullgraph=True)
    first = compiled(x).clone()
    torch.testing.assert_close(first.double(), fn(x.double()), rtol=1e-5, atol=0)
    assert all(torch.equal(compiled(x), first) for _ in range(20))


@pytest.mark.parametrize("name", ["column sum", "running sum", "running column sums"])
def test_streams(name):
    inputs = [torch.rand(8192, 1024, device="cuda") * k for k in range(1, 5)]
    compiled = pyframe.compile(PROGRAMS[name], fullgraph=True, options={"cudagraphs": False})
    wants = [compiled(x).clone() for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(100):
        results = []
        for stream, x in zip(streams, inputs):
            with torch.cuda.stream(stream):
                results.append(compiled(x))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(results, wants))


@pytest.mark.parametrize("name", ["column sum", "running sum"])
def test_graphs_that_run_at_the_same_time(name):
    inputs = [torch.rand(8192, 1024, device="cuda") * k for k in range(1, 4)]
    compiled = pyframe.compile(PROGRAMS[name], fullgraph=True)
    wants = [compiled(x).clone() for x in inputs]
    graphs, results = [], []
    for x in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(compiled(x))
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(50):
        for stream, graph, out in zip(streams, graphs, results):
            with torch.cuda.stream(stream):
                out.zero_()
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(results, wants))


@pytest.mark.parametrize("name", ["column sum", "softmax", "moments", "running sum"])
def test_recorded(name):
    x = torch.randn(8192, 1024, device="cuda")
    plain = pyframe.compile(PROGRAMS[name], fullgraph=True)
    recorded = pyframe.compile(PROGRAMS[name], fullgraph=True, mode="reduce-overhead")
    want = [t.clone() for t in listed(plain(x))]
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(listed(recorded(x)), want))
