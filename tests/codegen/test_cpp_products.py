"""Products with few rows as loops of C++ kernels, and other reductions of several rows in one loop."""

import pytest
import torch
import torch.nn.functional as F
from test_cpp_axes import source_of
from torch import fx

import pyframe
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.codegen import codegen
from inductor.lower import lower_graph
from inductor.passes import run_passes
from inductor.schedule import schedule


def steps_of(fn, *args):
    """The kinds of the steps of the plan of a graph for inference."""
    with torch.no_grad():
        traced = fx.experimental.proxy_tensor.make_fx(lambda *xs: [fn(*xs)])(*args)
        made = to_aten(traced, args, decompositions())
        graph = lower_graph(run_passes(made.graph, made.shared), made.shared, row_products=True)
        return [type(step).__name__ for step in codegen(schedule(graph), graph)[1].steps]


def check(fn, *args, least=1e-6):
    """Compares with float64; the error may be twice that of ATen."""
    exact = fn(*(x.double() if x.is_floating_point() else x for x in args))
    got, eager = pyframe.compile(fn, options={"strict": True, "measure": False})(*args), fn(*args)
    for one, of_eager, of_exact in zip(got, eager, exact, strict=True):
        assert one.dtype == of_eager.dtype and one.stride() == of_eager.stride()
        error, allowed = ((x.double() - of_exact).abs().max() / of_exact.abs().max() for x in (one, of_eager))
        assert error <= max(least, 2 * allowed), (error, allowed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("columns, length", [(256, 64), (259, 1001)])
def test_products(dtype, rows, columns, length):
    x, w, b = (torch.randn(*size).to(dtype) for size in ((rows, length), (columns, length), (columns,)))
    check(lambda x, w, b: (x @ w.t(), F.gelu(F.linear(x, w, b)), torch.addmm(b, x, w.t()) * 2 + b), x, w, b)


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_weights_in_int8(rows):
    x, w, scale = torch.randn(rows, 320), torch.randint(-127, 128, (264, 320), dtype=torch.int8), torch.rand(264, 1)
    fn = lambda x, w, s: (x @ (w.to(x.dtype) * s).t(), F.relu(x @ w.to(x.dtype).t()) * s.t())  # noqa: E731
    check(fn, x, w, scale)
    check(fn, x.bfloat16(), w, scale.bfloat16())
    kinds = steps_of(lambda x, w, s: x @ (w.float() * s).t(), x, w, scale)
    assert kinds.count("Alloc") == 1 and "Extern" not in kinds and "Arena" not in kinds


@pytest.mark.parametrize("batch, rows, length", [(16, 32, 64), (3, 301, 1001), (5, 64, 130)])
def test_batches_times_vectors(batch, rows, length):
    x, y = torch.randn(batch, rows, length), torch.randn(batch, length)
    check(lambda x, y: (torch.einsum("bij,bj->bi", x, y).relu(), torch.bmm(y[:, None], x.mT) * 2), x, y)
    columns = torch.randn(batch, length, rows)  # whose terms are apart, so that ATen multiplies
    check(lambda x, y: (torch.bmm(x.mT, y[..., None]), torch.bmm(y[:, None], x)), columns, y)
    kinds = steps_of(lambda x, y: torch.bmm(x, y[..., None]), x, y)
    assert kinds.count("KernelCall") == 1 and "Extern" not in kinds
    assert "Extern" in steps_of(lambda x, y: torch.bmm(x.mT, y[..., None]), columns, y)


def test_gradients_of_batches_times_vectors():
    found = []
    for run in (lambda fn: fn, pyframe.compile):
        torch.manual_seed(0)
        x, y = torch.randn(4, 70, 128, requires_grad=True), torch.randn(4, 128, requires_grad=True)
        z = run(lambda x, y: torch.einsum("bij,bj->bi", x, y) * 2)(x, y)
        (z * torch.randn(z.shape)).sum().backward()
        found.append((z.detach(), x.grad, y.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_products_by_kernels():
    x, w, b = torch.randn(4, 512), torch.randn(256, 512), torch.randn(256)
    few = lambda x, w, b: F.linear(x, w, b)  # noqa: E731
    assert steps_of(few, x, w, b).count("KernelCall") == 1 and "Extern" not in steps_of(few, x, w, b)
    gelu = lambda x, w, b: F.gelu(F.linear(x, w, b))  # noqa: E731
    assert steps_of(gelu, x, w, b).count("KernelCall") == 2  # erf in vectors along the results
    assert "Extern" in steps_of(few, torch.randn(64, 512), w, b)
    assert "Extern" in steps_of(few, torch.randn(8, 2048), torch.randn(256, 2048), b)
    assert "Extern" in steps_of(lambda x, w: x @ w, x, torch.randn(512, 256))


@pytest.mark.parametrize("rows", [2, 3, 8, 9])
@pytest.mark.parametrize("columns, length", [(16, 32), (7, 19), (130, 300)])
def test_rows_that_are_reduced_at_once(rows, columns, length):
    a, b, c = torch.randn(rows, length), torch.randn(columns, length), torch.randn(columns)
    check(lambda a, b, c: ((a[:, None] * b).sum(-1) + c, (a[:, None] - b).abs().amax(-1)), a, b, c)
    check(lambda a, b: ((a[:, None] * b).sum(-1) / (a[:, None] + b).square().mean(-1),), a, b, least=1e-5)
    check(lambda a, b: ((a[None, :, None] * b * b[:2, None, None]).sum(-1),), a, b)
    assert torch.equal(pyframe.compile(lambda a, b: (a[:, None] > b).any(-1))(a, b), (a[:, None] > b).any(-1))


def test_source_of_rows_at_once():
    source = source_of(lambda a, b: (a[:, None] * b).sum(-1), torch.randn(4, 64), torch.randn(32, 64))
    assert "o1b += 4" in source and "o0 < 4; ++o0" in source
    source = source_of(lambda a: a.sum(-1), torch.randn(4, 64))
    assert "o0 < 4; ++o0)" in source and "b +=" not in source
