"""`flex_attention` in compiled functions: one graph with the operator, and the results and gradients of eager."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import pyframe
from inductor.aot.flex_attention import with_flex_attention
from inductor.aot.functionalize import attributes_of
from inductor.cache.graph_key import graph_key
from pyframe.testing import EagerAndRecordGraphs
from pyframe.vars.higher_order import flex_attention as model

FLEX = torch.ops.higher_order.flex_attention
BACKENDS = ["eager", "inductor"]
HEADS, LENGTH, DIM = 4, 48, 16
SLOPES = torch.exp2(-torch.arange(1.0, HEADS + 1))
BIAS = torch.randn(HEADS, 2 * LENGTH, generator=torch.Generator().manual_seed(1))
DOCUMENTS = torch.arange(LENGTH) // 20
PREFIX = torch.tensor([5, 30])


@pytest.fixture(autouse=True)
def no_advice():
    with warnings.catch_warnings():  # eager recommends compilation, and return_lse is deprecated
        warnings.simplefilter("ignore")
        yield


def how(backend):
    """Arguments of pyframe.compile: a second graph, or a graph that the compiler cannot handle, is an error."""
    return {"backend": backend, "fullgraph": True, "options": {"strict": True} if backend == "inductor" else None}


def inputs(batch=2, heads=HEADS, kv_heads=HEADS, length=LENGTH, dtype=torch.float32):
    torch.manual_seed(0)
    q = torch.randn(batch, heads, length, DIM, dtype=dtype)
    return [q, *(torch.randn(batch, kv_heads, length, DIM, dtype=dtype) for _ in range(2))]


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() < 7


def document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def prefix(b, h, q, k):
    return (q >= k) | (k < PREFIX[b])


def no_row_above_ten(b, h, q, k):
    return (q < 10) & (k <= q)


SCORES = {
    "none": None,
    "noop": lambda s, b, h, q, k: s,
    "causal": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "relative": lambda s, b, h, q, k: s + BIAS[h, q - k + LENGTH],
    "soft_cap": lambda s, b, h, q, k: 5 * torch.tanh(s / 5),
    "int_index": lambda s, b, h, q, k: s * SLOPES[0] + BIAS[1, k],
}
MASKS = {
    "causal": causal, "window": window, "document": document, "prefix": prefix,
    "and": and_masks(causal, window), "empty_rows": no_row_above_ten,
}  # fmt: skip


def check(fn, args, backend):
    recorder = EagerAndRecordGraphs()
    pyframe.compile(fn, backend=recorder, fullgraph=True)(*args)
    assert sum(n.target is FLEX for gm in recorder.graphs for n in gm.graph.nodes) == 1
    assert len(recorder.graphs) == 1
    found, expected = pyframe.compile(fn, **how(backend))(*args), fn(*args)
    torch.testing.assert_close(found, expected)
    for x, y in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True):
        assert x.stride() == y.stride()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCORES)
def test_scores(name, backend):
    check(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES[name], return_lse=True), inputs(), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MASKS)
def test_mask_as_argument(name, backend):
    mask = create_block_mask(MASKS[name], 2, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
    fn = lambda q, k, v, m: flex_attention(q, k, v, block_mask=m, return_lse=True)  # noqa: E731
    check(fn, [*inputs(), mask], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MASKS)
def test_mask_made_inside(name, backend):
    def fn(q, k, v):
        mask = create_block_mask(MASKS[name], 2, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
        return flex_attention(q, k, v, score_mod=SCORES["alibi"], block_mask=mask), mask.kv_num_blocks

    check(fn, inputs(), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype, backend):
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["relative"], return_lse=True)  # noqa: E731
    check(fn, inputs(dtype=dtype), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_grouped_heads_and_scale(backend):
    fn = lambda q, k, v: flex_attention(q, k, v, scale=0.3, enable_gqa=True)  # noqa: E731
    check(fn, inputs(kv_heads=2), backend)
    check(fn, inputs(batch=1, kv_heads=1), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_layout_of_the_query(backend):
    q, k, v = inputs()
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["causal"])  # noqa: E731
    check(fn, [q.transpose(1, 2).contiguous().transpose(1, 2), k, v], backend)
    check(fn, [q.transpose(2, 3).contiguous().transpose(2, 3), k, v], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_contents_of_a_mask_are_no_recapture(backend):
    fn = pyframe.compile(lambda q, k, v, m: flex_attention(q, k, v, block_mask=m), **how(backend))
    for ids in (torch.arange(LENGTH) // 20, torch.arange(LENGTH) // 9):
        mask = create_block_mask(
            lambda b, h, q, k, ids=ids: ids[q] == ids[k], None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16
        )
        args = [*inputs(), mask]
        torch.testing.assert_close(fn(*args), flex_attention(*args[:3], block_mask=mask))


@pytest.mark.parametrize("backend", BACKENDS)
def test_varying_length(backend):
    fn = pyframe.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["causal"]), **how(backend)
    )
    for length in (48, 40, 33, 17, 1):
        args = inputs(length=length, batch=1)
        torch.testing.assert_close(fn(*args), flex_attention(*args, score_mod=SCORES["causal"]))


def reference(q, k, v, bias):
    """Causal attention with a bias by head and distance, written without the operator."""
    places = torch.arange(LENGTH)
    scores = q @ k.transpose(-2, -1) / DIM**0.5 + bias[:, places[:, None] - places + LENGTH]
    scores = scores.masked_fill(places[:, None] < places, -float("inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    """Of all inputs. The public function has none of query, key and value on the CPU, the operator has."""
    q, k, v = inputs(dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (q, k, v, BIAS.double())]
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)

    def fn(q, k, v, bias):
        score = lambda s, b, h, q_idx, k_idx: s + bias[h, q_idx - k_idx + LENGTH]  # noqa: E731
        out, lse, _ = FLEX(q, k, v, score, mask.as_tuple(), DIM**-0.5, {})
        return out, lse * torch.tensor(2.0).log().item()

    outputs = pyframe.compile(fn, **how(backend))(*leaves)
    expected = reference(*leaves)
    torch.testing.assert_close(outputs, expected, check_dtype=False)
    weights = [torch.randn_like(x) for x in expected]
    found = torch.autograd.grad(outputs, leaves, weights)
    torch.testing.assert_close(found, torch.autograd.grad(expected, leaves, weights))


@pytest.mark.parametrize("backend", BACKENDS)
def test_learned_bias(backend):
    bias = BIAS.clone().requires_grad_()

    def fn(q, k, v, bias):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i - j + LENGTH])

    args = inputs()
    out = pyframe.compile(fn, **how(backend))(*args, bias)
    (found,) = torch.autograd.grad(out.square().sum(), bias)
    (expected,) = torch.autograd.grad(fn(*args, bias).square().sum(), bias)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_empty_rows_are_zero(backend):
    leaves = [x.requires_grad_() for x in inputs()]
    mask = create_block_mask(no_row_above_ten, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
    fn = lambda q, k, v: FLEX(q, k, v, lambda s, *_: s, mask.as_tuple(), 0.25, {})[0]  # noqa: E731
    out = pyframe.compile(fn, **how(backend))(*leaves)
    assert (out[:, :, 10:] == 0).all()
    grads = torch.autograd.grad(out.sum(), leaves)
    assert all(grad.isfinite().all() for grad in grads) and (grads[0][:, :, 10:] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_error_of_eager(backend):
    """On the CPU eager has no gradients of the query."""
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        pyframe.compile(lambda *x: flex_attention(*x), backend=backend)(q.requires_grad_(), k, v)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast(backend):
    def fn(q, k, v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return flex_attention(q, k, v, score_mod=SCORES["alibi"])

    check(fn, inputs(), backend)


def test_captured_by_torch():
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["relative"])  # noqa: E731
    args = inputs()
    found = torch.compile(fn, backend="pyframe_inductor", fullgraph=True)(*args)
    torch.testing.assert_close(found, fn(*args))


def key_of(score_mod):
    """The key under which the compiled form of a graph with this score_mod is on disk."""
    keys = []

    def backend(gm, inputs):
        rewritten = with_flex_attention(gm)
        keys.append(graph_key(rewritten, inputs, attributes_of(rewritten)))
        return gm

    pyframe.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score_mod), backend=backend)(*inputs())
    return keys[0]


def test_graphs_are_kept_on_disk():
    """The functions of a call are a part of the key."""
    causal, relative, scaled = (key_of(SCORES[name]) for name in ("causal", "relative", "soft_cap"))
    assert causal is not None and causal == key_of(SCORES["causal"])
    assert len({causal, relative, scaled, key_of(lambda s, b, h, q, k: 6 * torch.tanh(s / 5))}) == 4


def test_number_of_guards():
    """A score_mod that indexes a tensor adds guards for what it reads, not for the registries of torch."""
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["relative"])  # noqa: E731
    found = pyframe.explain(fn, backend="eager")(*inputs())
    assert len(found.guards) < 400


def test_index_by_a_list():
    """`x[[i]]` is a row of one element, not an element."""
    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + SLOPES[[1]].sum() * j)

    args = inputs()
    torch.testing.assert_close(pyframe.compile(fn, backend="eager")(*args), fn(*args))


def test_precision_is_guarded(monkeypatch):
    """Kernels multiply float32 as torch's setting says when they are generated."""
    monkeypatch.setattr(model, "WITHOUT_TF32", ())
    before = torch.backends.cuda.matmul.allow_tf32
    recorder = EagerAndRecordGraphs()
    compiled = pyframe.compile(lambda q, k, v: flex_attention(q, k, v), backend=recorder, fullgraph=True)
    try:
        for setting, graphs in ((False, 1), (False, 1), (True, 2), (False, 2)):
            torch.backends.cuda.matmul.allow_tf32 = setting
            compiled(*inputs())
            assert len(recorder.graphs) == graphs
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
