"""Embedding bags of any lengths as kernels for a GPU, with their gradients: results are those of eager in float64."""

# ruff: noqa: E402
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tools.fuzz_graphs import fake_cuda

fake_cuda.install()

import pytest
import torch
import torch.nn.functional as F
from recorded_plans import PLANS, calls, results
from torch.testing._internal.common_methods_invocations import op_db

import pyframe


def compared(fn, tensors, *args):
    """Compares results and gradients, and results without gradients, with those of eager in float64; checks that ATen
    is not called."""
    PLANS.clear()
    want, gradients = results(fn, [x.double() for x in tensors], args)
    compiled = pyframe.compile(fn, options={"strict": True, "cache": False})
    got = results(compiled, tensors, args)
    tolerance = 2e-2 if tensors[0].dtype.itemsize == 2 else 1e-5
    rounded = want.to(got[0].dtype), tuple(g.to(x.dtype) for g, x in zip(gradients, tensors))
    torch.testing.assert_close(got, rounded, rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*tensors, *args), rounded[0], rtol=tolerance, atol=tolerance)
    assert calls() == []


INDICES = torch.tensor([3, 1, 1, 7, 4, 2, 2, 9, 0, 5, 6, 3, 3, 3, 8, 1, 0])
# the first bag has no index, nor has one in the middle
OFFSETS = {False: torch.tensor([0, 0, 3, 4, 4, 12, 13]), True: torch.tensor([0, 0, 3, 4, 4, 12, 13, 17])}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bags(dtype, mode, padding, last):
    def fn(weight, indices, offsets):
        bags = F.embedding_bag(
            indices, weight * 2, offsets, mode=mode, padding_idx=padding, include_last_offset=last
        )
        return bags.relu() + 1

    compared(fn, [torch.randn(10, 12).to(dtype)], INDICES, OFFSETS[last])


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_single_indices(dtype, padding):
    def fn(weight, weights, indices, offsets):
        return F.embedding_bag(
            indices, weight, offsets, mode="sum", per_sample_weights=weights.sin(), padding_idx=padding
        )

    compared(fn, [torch.randn(10, 6).to(dtype), torch.randn(len(INDICES)).to(dtype)], INDICES, OFFSETS[False])


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("columns", [5, 96, 600])
def test_tables_of_other_widths(columns, kind):
    def fn(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode="mean")

    compared(fn, [torch.randn(10, columns)], INDICES.to(kind), OFFSETS[False].to(kind))


def test_one_long_bag():
    def fn(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode="max")

    indices = torch.randint(10, (700,))
    compared(fn, [torch.randn(10, 8)], indices, torch.tensor([0]))
    compared(fn, [torch.randn(10, 8)], indices, torch.tensor([0, 650]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_samples_of_the_operator_database(dtype):
    (op,) = (op for op in op_db if op.name == "nn.functional.embedding_bag")
    samples = [s for s in op.sample_inputs("cpu", dtype) if not s.kwargs.get("sparse")][:40]

    def fn(weights):
        return [op(w * 1, *s.args, **s.kwargs) for s, w in zip(samples, weights)]

    weights = [s.input.detach() for s in samples]
    want, got = fn(weights), pyframe.compile(fn, options={"strict": True, "cache": False})(weights)
    torch.testing.assert_close(got, want, **({"rtol": 8e-3, "atol": 8e-3} if dtype == torch.float16 else {}))
