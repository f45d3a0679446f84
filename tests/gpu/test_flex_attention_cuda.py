"""flex_attention on a GPU: results and gradients of the kernels against the whole matrix of scores in float64."""

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

HEADS, WINDOW = 4, 100


@pytest.fixture(autouse=True)
def no_advice():
    with warnings.catch_warnings():  # eager recommends compilation, and return_lse is deprecated
        warnings.simplefilter("ignore")
        yield


def inputs(dtype, rows=500, columns=500, dim=64, kv_heads=HEADS):
    torch.manual_seed(0)
    sizes = ((HEADS, rows), (kv_heads, columns), (kv_heads, columns))
    return [torch.randn(2, h, n, dim, device="cuda", dtype=dtype) for h, n in sizes]


def functions(device="cuda"):
    slopes = torch.exp2(-torch.arange(1.0, HEADS + 1, device=device))
    documents = torch.arange(2000, device=device) // 70
    bias = torch.randn(HEADS, 4000, device=device, generator=torch.Generator(device).manual_seed(1))
    scores = {
        "none": None,
        "alibi": lambda s, b, h, q, k: s + slopes[h] * (k - q),
        "relative": lambda s, b, h, q, k: s + bias[h, q - k + 2000],
        "soft cap": lambda s, b, h, q, k: 5 * torch.tanh(s / 5),
    }
    kept = {
        "none": None,
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k < WINDOW),
        "document": lambda b, h, q, k: documents[q] == documents[k],
        "empty rows": lambda b, h, q, k: (q < 40) & (k <= q),
    }
    return scores, kept


def check(args, score, mask, **options):
    """Compare the kernels with eager; the error may be three times that of eager in the inputs' own dtype."""
    scores, kept = functions()
    rows, columns = args[0].shape[2], args[1].shape[2]
    blocks = kept[mask] and create_block_mask(kept[mask], None, None, rows, columns, device="cuda")
    compiled = pyframe.compile(flex_attention, fullgraph=True, options={"strict": True})

    def outcome(fn, args):
        leaves = [x.detach().requires_grad_() for x in args]
        out, lse = fn(*leaves, score_mod=scores[score], block_mask=blocks, return_lse=True, **options)
        finite = lse.masked_fill(lse.isinf(), 0)
        weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).to(x) for x in (out, lse)]
        grads = torch.autograd.grad([out, finite], leaves, weights)
        with torch.no_grad():
            alone = fn(*leaves, score_mod=scores[score], block_mask=blocks, return_lse=True, **options)
        return [x.detach().double() for x in (out, lse, *grads, *alone)]

    found, same, exact = (outcome(f, a) for f, a in (
        (compiled, args), (flex_attention, args), (flex_attention, [x.double() for x in args])))  # fmt: skip
    for mine, theirs, right in zip(found, same, exact, strict=True):
        assert torch.equal(mine.isinf(), right.isinf())
        finite = right.isfinite()
        unit = torch.finfo(args[0].dtype).eps * right[finite].abs().max().item()
        error = (mine - right)[finite].abs().max().item()
        assert error <= 3 * (theirs - right)[finite].abs().max().item() + 4 * unit


@pytest.mark.parametrize("score", ["none", "alibi", "relative", "soft cap"])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "document", "empty rows"])
def test_bfloat16(score, mask):
    check(inputs(torch.bfloat16), score, mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_dtypes(dtype):
    check(inputs(dtype), "alibi", "causal")
    check(inputs(dtype, dim=128), "none", "window")


@pytest.mark.parametrize("dim", [16, 40, 128, 256])
def test_head_dimensions(dim):
    check(inputs(torch.bfloat16, rows=300, columns=520, dim=dim), "alibi", "causal")


def test_grouped_heads():
    check(inputs(torch.bfloat16, kv_heads=2), "alibi", "causal", enable_gqa=True)
    check(inputs(torch.bfloat16, kv_heads=1, rows=1), "alibi", "none", enable_gqa=True)


def test_lengths_of_a_block():
    check(inputs(torch.bfloat16, rows=1024, columns=1024, dim=128), "none", "causal")
    check(inputs(torch.bfloat16, rows=1024, columns=1024), "relative", "document")


def test_memory_is_not_that_of_the_matrix_of_scores():
    args = inputs(torch.bfloat16, rows=8192, columns=8192)
    compiled = pyframe.compile(flex_attention, fullgraph=True, options={"strict": True})
    compiled(*args)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled(*args)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 64 << 20
