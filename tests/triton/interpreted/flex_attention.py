"""Kernels of flex_attention under Triton's interpreter, compared with torch's eager function in float64."""

import math
import warnings

import pytest
import torch
from fake_gpu import on_gpu
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from triton_support import Runner

import pyframe
from inductor.aot import flex_attention as operator
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.aot.training_decompositions import training_decompositions
from inductor.codegen import codegen
from inductor.eager.flex_attention import with_dense_attention
from inductor.lower import lower_graph, separate_results
from inductor.passes import run_joint_passes, run_passes
from inductor.schedule import Group
from inductor.schedule.flex_attention import FlexGroup, with_flex_attention

FLEX = torch.ops.higher_order.flex_attention
HEADS = 4
SLOPES = torch.exp2(-torch.arange(1.0, HEADS + 1))
BIAS = torch.randn(HEADS, 1000, generator=torch.Generator().manual_seed(1))
DOCUMENTS = torch.arange(1000) // 37


@pytest.fixture(autouse=True)
def kernels_for_tensors_of_the_cpu(monkeypatch):
    monkeypatch.setattr(operator, "DEVICES", ("cpu",))
    with warnings.catch_warnings():  # eager recommends compilation, and return_lse is deprecated
        warnings.simplefilter("ignore")
        yield


class Flex(Runner):
    """A Runner whose steps contain attention kernels."""

    def __init__(self, graph):
        super().__init__(None, graph=graph)
        self.steps = with_flex_attention(self.steps)
        self.source = type(self.source)(self.source.gpu)
        self.launches = {id(g): self.source.group(g, self.dtypes) for g in self.steps if isinstance(g, Group)}
        codegen(self.steps, self.graph)  # the plan can be made

    @property
    def kernels(self):
        return [step for step in self.steps if isinstance(step, FlexGroup)]


def captured(fn, args, rewrite=operator.with_flex_attention):
    """The graph of `fn`, rewritten, and its inputs, which require gradients if `args` do. It is captured without
    gradients: on the CPU the public function has none of query, key and value."""
    found, plain = [], [x.detach() for x in args]

    def backend(gm, inputs):
        same = lambda x: (arg for arg in args if arg.shape == x.shape and torch.equal(arg, x))  # noqa: E731
        found.append((rewrite(gm), [next(same(x), x) for x in inputs]))  # backends get copies
        return gm

    pyframe.compile(fn, backend=backend, fullgraph=True)(*plain)
    return found[0]


def dense(fn, args):
    """The results with the whole matrix of scores."""
    gm, given = captured(fn, args, with_dense_attention)
    return gm(*given)


def forward(fn, *args):
    gm, inputs = captured(fn, args)
    with torch.no_grad():
        aten = to_aten(gm, inputs, decompositions())
        graph = lower_graph(run_passes(on_gpu(aten.graph), aten.shared), aten.shared, aten.uncounted)
    runner = Flex(graph)
    assert len(runner.kernels) == 1
    return runner.run(*inputs, *aten.attributes), runner


def training(fn, args, weights):
    """The results of `fn`, and the gradients of all inputs that have one, for gradients `weights` of the results."""
    gm, given = captured(fn, args)
    joint = to_joint(gm, given, training_decompositions())
    on_gpu(joint.graph)
    run_joint_passes(joint.graph)
    halves = partition(joint)
    with torch.no_grad():
        first, second = (Flex(lower_graph(half, separate_results(half))) for half in (halves.forward, halves.backward))
        assert len(first.kernels) == len(second.kernels) == 1
        primals = [x.detach() for x in (*given, *joint.attributes)]
        results, saved = first.run(*primals), halves.saved
        kept = results[len(results) - saved.kept :]
        held = [primals[i] for i in saved.inputs] + [results[i] for i in saved.returned] + kept
        return results[: len(weights)], second.run(*held, *weights), second


def inputs(batch=2, heads=2, kv_heads=2, rows=48, columns=48, dim=16, value_dim=16, dtype=torch.float32):
    torch.manual_seed(0)
    q = torch.randn(batch, heads, rows, dim)
    k, v = (torch.randn(batch, kv_heads, columns, d) for d in (dim, value_dim))
    return [x.to(dtype) for x in (q, k, v)]


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() < 7


def document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def nothing_above_ten(b, h, q, k):
    return (q < 10) & (k <= q)


SCORES = {
    "none": None,
    "causal": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "relative": lambda s, b, h, q, k: s + BIAS[h, q - k + 300],
    "soft_cap": lambda s, b, h, q, k: 5 * torch.tanh(s / 5),
    "int_index": lambda s, b, h, q, k: s * SLOPES[0] + BIAS[1, k],
    "row": lambda s, b, h, q, k: s * BIAS[h][k] + b,
}
MASKS = {"none": None, "causal": causal, "window": window, "document": document, "empty rows": nothing_above_ten}


def mask_of(name, args, block=16):
    mod = MASKS[name]
    if mod is None:
        return None
    rows, columns = args[0].shape[2], args[1].shape[2]
    return create_block_mask(mod, None, None, rows, columns, device="cpu", BLOCK_SIZE=block)


def check(args, score="none", mask="none", block=16, tol=1e-5, **options):
    block_mask = mask_of(mask, args, block)

    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod=SCORES[score], block_mask=block_mask, return_lse=True, **options)

    found, runner = forward(fn, *args)
    options.pop("kernel_options", None)
    expected = fn(*(x.double() for x in args))
    torch.testing.assert_close([x.double() for x in found], list(expected), rtol=tol, atol=tol)
    assert found[0].dtype == args[0].dtype and found[0].stride() == expected[0].stride()
    return runner


@pytest.mark.parametrize("score", SCORES)
def test_scores(score):
    check(inputs(), score)


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    check(inputs(rows=80, columns=80), "alibi", mask)
    check(inputs(rows=80, columns=80), "none", mask, block=128)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    check(inputs(dtype=dtype), "alibi", "causal", tol=2e-2)
    check(inputs(dtype=dtype, rows=40, columns=56), "soft_cap", "none", tol=2e-2)


@pytest.mark.parametrize("score, mask", [("none", "none"), ("relative", "causal"), ("row", "window")])
def test_uneven_sizes(score, mask):
    for rows, columns, dim, value_dim in ((41, 41, 16, 24), (1, 77, 8, 16), (130, 33, 40, 16), (200, 200, 96, 130)):
        check(inputs(1, rows=rows, columns=columns, dim=dim, value_dim=value_dim), score, mask)
        check(inputs(1, rows=rows, columns=columns, dim=dim, value_dim=value_dim), score, mask, block=32)


def test_grouped_heads_and_scale():
    check(inputs(heads=HEADS, kv_heads=2), "alibi", "causal", enable_gqa=True, scale=0.3)
    check(inputs(heads=HEADS, kv_heads=1), "alibi", "none", enable_gqa=True)


def test_layouts():
    q, k, v = inputs(rows=40, columns=40)
    check([q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v], "causal")
    check([q, k[:1].expand_as(k), v[:, :, :, ::2]], "causal", "window")


def test_block_size_options():
    check(inputs(rows=100, columns=100), "alibi", "causal", kernel_options={"BLOCK_M": 32, "fwd_BLOCK_N": 16, "num_warps": 2})


def test_mask_of_each_head_and_batch():
    limits = torch.tensor([[3, 20, 48, 1], [0, 40, 17, 30]])
    args = inputs(heads=HEADS, kv_heads=HEADS)
    mod = lambda b, h, q, k: k < limits[b, h]  # noqa: E731
    mask = create_block_mask(mod, 2, HEADS, 48, 48, device="cpu", BLOCK_SIZE=16)
    fn = lambda q, k, v: flex_attention(q, k, v, block_mask=mask, return_lse=True)  # noqa: E731
    found, _ = forward(fn, *args)
    torch.testing.assert_close(found, list(fn(*args)), rtol=1e-5, atol=1e-5)
    assert (found[0][1, 0] == 0).all() and (found[1][1, 0] == -math.inf).all()


def test_absent_blocks_are_not_visited():
    """Of a mask that lists fewer blocks than its function keeps, the listed ones count."""
    args = inputs(rows=64, columns=64)
    mask = create_block_mask(causal, None, None, 64, 64, device="cpu", BLOCK_SIZE=16)
    mask.kv_num_blocks.zero_()
    found, _ = forward(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), *args)
    assert (found[0][:, :, :16] == 0).all() and (found[0][:, :, 16:] != 0).any()


@pytest.mark.parametrize("score", ["none", "relative"])
def test_what_is_computed_in_other_kernels(score):
    """The query, the results and tensors that a score_mod reads may be computed in the same graph."""

    def fn(q, k, v, bias):
        bias = bias * 2
        score = (lambda s, b, h, i, j: s + bias[h, j]) if score_reads else None
        return flex_attention(q.relu(), k, v * 2, score_mod=score).sin() + q

    score_reads = score != "none"
    args = [*inputs(), BIAS[:, :48].contiguous()]
    found, _ = forward(fn, *args)
    torch.testing.assert_close(found[0], fn(*args), rtol=1e-5, atol=1e-5)


def test_index_out_of_bounds():
    short = torch.ones(20)
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + short[j - 30])  # noqa: E731
    with pytest.raises(IndexError):
        forward(fn, *inputs())


def test_functions_that_no_kernel_computes():
    """A sum over a tensor in the score_mod: the whole matrix is computed."""
    gm, args = captured(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h].sum()), inputs())
    with torch.no_grad():
        aten = to_aten(gm, args, decompositions())
    assert not any(n.target is operator.FORWARD for n in aten.graph.graph.nodes)


# ---- gradients


def check_gradients(args, score="none", mask="none", block=16, tol=1e-5, **options):
    """Results and gradients against the whole matrix in float64."""
    block_mask = mask_of(mask, args, block)

    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod=SCORES[score], block_mask=block_mask, return_lse=True, **options)

    leaves = [x.detach().requires_grad_() for x in args]
    exact = [x.detach().double().requires_grad_() for x in args]
    reference = dense(fn, exact)
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) for x in reference]
    reference = reference[0], reference[1].masked_fill(reference[1].isinf(), 0)
    expected = torch.autograd.grad(reference, exact, weights)
    typed = [weights[0].to(args[0].dtype), weights[1].float().masked_fill(reference[1] == 0, 0)]
    found, gradients, runner = training(fn, leaves, typed)
    close = lambda a, b: torch.testing.assert_close(a.double(), b, rtol=tol, atol=tol)  # noqa: E731
    close(found[0], reference[0])
    assert len(gradients) == len(expected)
    for mine, right, arg in zip(gradients, expected, args):
        assert mine.dtype == arg.dtype
        close(mine, right)
    return runner


@pytest.mark.parametrize("score", SCORES)
def test_gradients_of_scores(score):
    check_gradients(inputs(), score)


@pytest.mark.parametrize("mask", MASKS)
def test_gradients_of_masks(mask):
    check_gradients(inputs(1, rows=80, columns=80), "alibi", mask)
    check_gradients(inputs(1, rows=80, columns=80), "soft_cap", mask, block=128)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision(dtype):
    check_gradients(inputs(1, dtype=dtype), "alibi", "causal", tol=5e-2)


def test_gradients_of_grouped_heads():
    check_gradients(inputs(heads=HEADS, kv_heads=2), "alibi", "causal", enable_gqa=True, scale=0.3)
    check_gradients(inputs(1, HEADS, 1), "row", "window", enable_gqa=True)


@pytest.mark.parametrize("score, mask", [("none", "none"), ("relative", "causal"), ("soft_cap", "window")])
def test_gradients_of_uneven_sizes(score, mask):
    for rows, columns, dim, value_dim in ((41, 41, 16, 24), (1, 77, 8, 16), (40, 1, 16, 16), (70, 33, 40, 16)):
        args = inputs(1, rows=rows, columns=columns, dim=dim, value_dim=value_dim)
        check_gradients(args, score, mask, block=32, kernel_options={"BLOCK_M": 16, "bwd_BLOCK_N2": 16})


def test_gradient_of_one_input():
    q, k, v = inputs(1)
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"])  # noqa: E731
    for place in range(3):
        args = [x.detach().requires_grad_(i == place) for i, x in enumerate((q, k, v))]
        exact = [x.detach().double().requires_grad_(i == place) for i, x in enumerate((q, k, v))]
        weight = torch.randn(q.shape)
        _, (found,), runner = training(fn, args, [weight])
        (expected,) = torch.autograd.grad(dense(fn, exact), exact[place], weight.double())
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_key_of_one_batch_for_all():
    q, k, v = inputs()
    mask = create_block_mask(causal, 2, None, 48, 48, device="cpu", BLOCK_SIZE=16)
    fn = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"], block_mask=mask)  # noqa: E731
    args = [x.detach().requires_grad_() for x in (q, k[:1], v[:1])]
    exact = [x.detach().double().requires_grad_() for x in args]
    weight = torch.randn(q.shape)
    _, found, _ = training(fn, args, [weight])
    expected = torch.autograd.grad(dense(fn, exact), exact, weight.double())
    torch.testing.assert_close([x.double() for x in found], list(expected), rtol=1e-5, atol=1e-5)


def test_learned_bias_needs_the_whole_matrix():
    """Gradients of what a score_mod reads are computed with the whole matrix."""
    gm, given = captured(
        lambda q, k, v, bias: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i - j + 300]),
        [*inputs(1), BIAS.clone().requires_grad_()],
    )
    joint = to_joint(gm, given, training_decompositions())
    assert not any(n.target is operator.FORWARD for n in joint.graph.graph.nodes)
