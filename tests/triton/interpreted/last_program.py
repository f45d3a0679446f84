"""Reductions of rows that programs share, which the last program with a part completes: one kernel, not two."""

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner
from worker_sizes import lowered_once

from inductor.codegen.triton import heuristics
from inductor.runtime.triton_build import build_all


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    small = {"PERSISTENT_ROW": 64, "PERSISTENT_COLUMN": 8, "BLOCK_ROW": 128, "BLOCK_COLUMNS": 16, "SPLIT_MIN_WORK": 0,
             "SHARED_STEPS": 2}  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(heuristics, name, value)


def run(fn, *args):
    """The kernels of `fn`, whose results are compared with eager's; after a second run they must be the same."""
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=on_gpu))
    copies = [a.clone() for a in args]
    want = fn(*[a.double() if a.is_floating_point() else a for a in copies])
    got, again = [t.clone() for t in runner.run(*[a.clone() for a in args])], runner.run(*[a.clone() for a in args])
    for a, b, e in zip(got, again, want if isinstance(want, tuple) else (want,), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a.to(e.dtype), e, rtol=1e-5, atol=1e-4)
    return runner.source.kernels


PROGRAMS = {
    "sum": (lambda x, d: x.sum(d) * 2 + 1), "all": (lambda x, d: x.sum()), "greatest": (lambda x, d: x.amax(d)),
    "position": (lambda x, d: x.argmax(d)), "product": (lambda x, d: (1 + x / 9999).prod(d)),
    "any": (lambda x, d: (x > 2.5).any(d)), "several": (lambda x, d: (x.sum(d), x.amin(d), x.argmin(d))),
    "deviations": (lambda x, d: torch.var_mean(x, d)), "exponentials": (lambda x, d: (x - x.amax(d, keepdim=True)).exp().sum(d)),
}  # fmt: skip


@pytest.mark.parametrize("shape, dim", [((3, 1111), 1), ((1, 900), 1), ((603, 37), 0), ((1500, 1), 0)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel(name, shape, dim):
    x = torch.randn(shape)
    kernels = run(lambda x: PROGRAMS[name](x, dim), x)
    assert len(kernels) == 1 and "tl.atomic_add" in kernels[0].text


def test_kernels_compile():
    kernels = [k for n in ("several", "deviations") for k in run(lambda x: PROGRAMS[n](x, 0), torch.randn(603, 37))]
    assert all(cubin.data for cubin in build_all(kernels, 90))


def test_a_pass_after_the_reduction_is_the_second_kernel(monkeypatch):
    monkeypatch.setattr(heuristics, "JOIN_FIRST", 0)
    kernels = run(lambda x: (x / x.sum(1, keepdim=True).abs().clamp(min=1), x.sum(1)), torch.randn(3, 1000))
    assert ["tl.atomic_add" in k.text for k in kernels] == [True, False]


def test_too_many_partial_results_are_joined_by_another_kernel(monkeypatch):
    monkeypatch.setattr(heuristics, "MAX_SPLIT", 256)
    monkeypatch.setattr("inductor.codegen.triton.work.MERGED_EACH", 1)
    kernels = run(lambda x: x.sum(0), torch.randn(1603, 37))
    assert len(kernels) == 2 and not any("tl.atomic_add" in k.text for k in kernels)


def test_rows_whose_number_varies_have_no_counters():
    graph, symbols = lowered_once(lambda x, w: [x.sum(1) + w.sum()], 3, 2000)
    runner, program = Runner(None, graph=graph), symbols.program()
    for n, m in ((3, 2000), (4, 2500)):
        runner.values = program.values({"size0": n, "size1": m})
        x, w = torch.randn(n, m), torch.randn(m)
        torch.testing.assert_close(runner.run(x, w)[0], x.sum(1) + w.sum(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(3136, 72), (3137, 7), (784, 216), (196, 576)])
def test_few_columns_of_little_memory(monkeypatch, shape):
    """The result is also stored, as between batch norm and the mean of squeeze-and-excitation."""
    for name, value in {"BLOCK_ROW": 2048, "BLOCK_COLUMNS": 64, "SPLIT_MIN_WORK": 1 << 18}.items():
        monkeypatch.setattr(heuristics, name, value)

    def fn(x, scale):
        y = (x * scale).relu()
        return y, y.mean(0)

    (kernel,) = run(fn, torch.randn(shape), torch.randn(shape[1]))
    (programs,) = kernel.grid
    assert programs == {3136: 4 * 72 // 8, 3137: 4, 784: 216 // 8, 196: 576 // 16}[shape[0]]
    assert ("tl.atomic_add" in kernel.text) == (shape[0] > 3000)
