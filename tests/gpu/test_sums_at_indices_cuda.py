"""Sums at positions given by index tensors on a GPU: the gradient of `embedding`, and `index_put` that accumulates."""

import pytest
import torch
import torch.nn.functional as F

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

ROWS = 3000


def tokens(kind):
    """Indices: random ones, many equal ones, or all equal."""
    at = torch.randint(ROWS, (8, 1024), device="cuda")
    return {"random": at, "few": at % 3, "one": at * 0 + 7}[kind]


def embedded(weight, at):
    return F.embedding(at, weight, padding_idx=2)


def indexed(weight, at):
    return weight[at[0] - ROWS, 1:] * 2


def put(weight, at):
    return weight.index_put((at[0],), weight[at[1]], accumulate=True)


@pytest.mark.parametrize("kind", ["random", "few", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fn", [embedded, indexed, put])
def test_gradients(fn, dtype, kind):
    def gradient(call, weight):
        leaf = weight.clone().requires_grad_()
        out = call(leaf, at)
        return out, torch.autograd.grad(out, leaf, torch.full_like(out, 0.125))[0]

    at, weight = tokens(kind), torch.randn(ROWS, 65, device="cuda", dtype=dtype)
    compiled = pyframe.compile(fn, fullgraph=True)
    exact, eager = gradient(fn, weight.double()), gradient(fn, weight)
    for got in (gradient(compiled, weight), gradient(compiled, weight)):
        for ours, theirs, want in zip(got, eager, exact):
            assert ours.dtype == dtype
            scale = want.abs().max() + at.numel() * (dtype == torch.float64)
            # Sums of 1,024 equal numbers in float32 round one way: eager's error is as large there.
            allowed = max(4 * torch.finfo(dtype).eps * max(scale, 1), 3 * (theirs - want).abs().max())
            assert (ours - want).abs().max() <= allowed


@pytest.mark.parametrize("kind", ["random", "few", "one", "each"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_large_table_of_which_few_rows_are_read(dtype, kind):
    """Rows that are alone are written to the result at once (`row_sums.py`)."""
    rows, columns = 20_000, 512
    at = {"each": torch.arange(8192, device="cuda").view(8, 1024)}.get(kind)
    at = tokens(kind) if at is None else at
    at[0, :3] = torch.tensor([rows - 1, 2, 0], device="cuda")
    gradient = torch.randn(8, 1024, columns, device="cuda", dtype=dtype) / 8

    def fn(gradient, at):
        return torch.ops.aten.embedding_dense_backward(gradient, at, rows, 2, False)

    compiled = pyframe.compile(fn, fullgraph=True)
    kept = gradient.flatten(0, 1).double() * (at.flatten() != 2)[:, None]
    want = torch.zeros(rows, columns, device="cuda", dtype=torch.float64).index_add(0, at.flatten(), kept)
    eager = fn(gradient, at)
    for _ in range(3):
        got = compiled(gradient, at)
        allowed = torch.maximum(4 * torch.finfo(dtype).eps * want.abs().max(), 3 * (eager - want).abs().max())
        assert got.dtype == dtype and (got - want).abs().max() <= allowed
        assert not got[want.abs().sum(1) == 0].any()
