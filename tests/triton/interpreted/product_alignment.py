"""Products whose rows are not aligned are padded on a GPU: which do, and that the results are right."""

import math

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import GPU, on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.autotune.unmeasured import with_generated_products
from inductor.codegen import codegen
from inductor.ir.buffer import ComputedBuffer, ExternKernel, View
from inductor.lower import alignment
from inductor.passes.bias import biases_apart
from inductor.schedule import schedule
from inductor.schedule.product import Product


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(alignment, "LEAST_WORK", 1)
    monkeypatch.setattr(alignment, "LEAST_USES", 16)
    monkeypatch.setattr(alignment, "LEAST_USES_UNCOPIED", 8)
    monkeypatch.setattr(alignment, "LEAST_ROWS", 16)


def prepared(gm):
    biases_apart(on_gpu(gm))
    return gm


def half(*size):
    return torch.randn(*size).bfloat16()


def padded(fn, *args):
    """The graph, the strides of all operands and results of its products, and a check of the results."""
    graph = lowered(fn, *args, prepare=prepared)
    runner = Runner(fn, *args, graph=graph)
    want = fn(*args)
    for got, expected in zip(runner.run(*args), want if isinstance(want, tuple) else (want,)):
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2, equal_nan=True)
        assert got.stride() == expected.stride()
    strides = []
    for node in graph.buffers:
        if isinstance(node, ExternKernel):
            for x in (*node.args, *node.outputs):
                layout = x.layout
                assert not isinstance(x, View) or x.buffer.layout.device == GPU
                strides.append(layout.stride)
    codegen(schedule(graph), graph)  # the plan can be made
    return graph, strides


def test_a_result_with_unaligned_rows_is_padded_and_the_bias_is_added_by_a_kernel():
    _, strides = padded(lambda x, w, b: F.linear(x, w, b).relu(), half(32, 16), half(50, 16), half(50))
    assert strides == [(16, 1), (1, 16), (56, 1)]


@pytest.mark.parametrize("m, k, n", [(32, 16, 50), (260, 64, 515), (100, 72, 257)])
def test_a_result_that_only_the_caller_reads_is_written_by_a_generated_kernel(m, k, n):
    def fn(x, w):
        return F.linear(x, w).view(2, m // 2, n)

    args = half(m, k), half(n, k)
    graph = lowered(fn, *args, prepare=prepared)
    assert graph.generated and len(graph.buffers) == 1
    runner = Runner(fn, *args, graph=graph)
    runner.steps = with_generated_products(runner.steps, graph)
    assert [type(step) for step in runner.steps] == [Product]
    runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps}
    (got,) = runner.run(*args)
    torch.testing.assert_close(got, fn(*args), rtol=2e-2, atol=2e-2)
    assert got.is_contiguous()
    codegen(runner.steps, graph)


def test_a_product_that_loops_read_or_that_is_long_is_not_generated(monkeypatch):
    x, w = half(32, 16), half(50, 16)
    for fn in (lambda x, w: F.linear(x, w).relu(), lambda x, w: (y := F.linear(x, w), y.view(-1).exp())):
        assert not lowered(fn, x, w, prepare=prepared).generated
    assert not lowered(lambda x, w: x @ w, x, w.t().contiguous(), prepare=prepared).generated  # rows of w not aligned
    assert not lowered(lambda x, w: x[:, 1:] @ w[:, 1:].t(), x, w, prepare=prepared).generated
    monkeypatch.setattr(alignment, "MOST_GENERATED_TERMS", 8)
    assert not lowered(lambda x, w: F.linear(x, w), x, w, prepare=prepared).generated


def test_a_result_that_the_graph_returns_is_copied(monkeypatch):
    monkeypatch.setattr(alignment, "MOST_GENERATED_TERMS", 8)
    graph, strides = padded(lambda x, w: F.linear(x, w), half(32, 16), half(50, 16))
    assert strides[-1] == (56, 1) and len(graph.buffers) == 3  # a copy of the weight, the product, a copy of the result


def test_a_computed_operand_is_padded_where_it_is_first_stored():
    def backward(logits, x, w):
        grad = logits.softmax(-1).bfloat16().view(32, 50)
        return grad @ w, grad.t() @ x, grad.float().sum(0)

    graph, strides = padded(backward, torch.randn(4, 8, 50), half(32, 16), half(50, 16))
    assert strides == [(56, 1), (16, 1), (16, 1), (1, 56), (16, 1), (16, 1)]
    sizes = [b.layout.size for b in graph.buffers if isinstance(b, ComputedBuffer)]
    assert sizes.count((4, 8, 56)) == 1 and (32, 56) not in sizes and (4, 8, 50) not in sizes  # no copy of the gradient


def test_an_input_is_copied_once_if_each_element_is_used_often():
    def fn(grad, x, w):
        return grad @ w, grad.t() @ x

    graph, strides = padded(fn, half(32, 50), half(32, 16), half(50, 16))
    assert strides == [(56, 1), (16, 1), (16, 1), (1, 56), (16, 1), (16, 1)]
    assert [b.layout.size for b in graph.buffers if isinstance(b, ComputedBuffer)] == [(32, 56), (56, 16)]
    _, strides = padded(lambda a, b: a @ b, half(32, 50), half(50, 8))
    assert strides[0] == (50, 1)


def test_nan_and_infinity_stay_in_their_rows():
    grad, x, w = half(32, 50), half(32, 16), half(50, 16)
    grad[3, 4], grad[5, 49], w[7, 2], w[49, 3] = math.nan, math.inf, math.inf, -math.inf

    def fn(g, x, w):
        return g @ w, g.t() @ x, x @ w.t()

    # Not oneDNN's product: with one thread on a CPU with AMX its NaN are in other places than those of float64.
    with torch.backends.mkldnn.flags(enabled=False):
        for eager, exact in zip(fn(grad, x, w), fn(grad.double(), x.double(), w.double())):
            assert torch.equal(eager.isnan(), exact.isnan())
        padded(fn, grad, x, w)


def test_batches():
    def fn(q, k, v):
        return (q @ k.mT).float().softmax(-1).bfloat16() @ v

    _, strides = padded(fn, half(3, 17, 16), half(3, 17, 16), half(3, 17, 16))
    assert strides[2] == (17 * 24, 24, 1) and strides[3] == (17 * 24, 24, 1)


@pytest.mark.parametrize("n, dtype", [(48, torch.bfloat16), (50, torch.float32)])
def test_not_padded(n, dtype):
    _, strides = padded(lambda x, w: F.linear(x, w).relu(), torch.randn(32, 16, dtype=dtype), torch.randn(n, 16, dtype=dtype))
    assert strides[-1] == (n, 1)


def test_small_products_are_not_padded(monkeypatch):
    monkeypatch.setattr(alignment, "LEAST_WORK", 1 << 29)
    _, strides = padded(lambda x, w: F.linear(x, w).relu(), half(32, 16), half(50, 16))
    assert strides[-1] == (50, 1)
