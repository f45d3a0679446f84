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
from inductor.codegen import codegen
from inductor.lower import lower_graph
from inductor.passes import run_passes
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


def captured(fn, args):
    """The graph of `fn` and its inputs."""
    found = []

    def backend(gm, inputs):
        found.append((operator.with_flex_attention(gm), [x.detach().requires_grad_(x.requires_grad) for x in inputs]))
        return gm

    pyframe.compile(fn, backend=backend, fullgraph=True)(*args)
    return found[0]


def forward(fn, *args):
    gm, inputs = captured(fn, [x.detach() if isinstance(x, torch.Tensor) else x for x in args])
    with torch.no_grad():
        aten = to_aten(gm, inputs, decompositions())
        graph = lower_graph(run_passes(on_gpu(aten.graph), aten.shared), aten.shared, aten.uncounted)
    runner = Flex(graph)
    assert len(runner.kernels) == 1
    return runner.run(*inputs, *aten.attributes), runner


def inputs(batch=2, heads=HEADS, kv_heads=HEADS, rows=48, columns=48, dim=16, value_dim=16, dtype=torch.float32):
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
    check(inputs(kv_heads=2), "alibi", "causal", enable_gqa=True, scale=0.3)
    check(inputs(kv_heads=1), "alibi", "none", enable_gqa=True)


def test_layouts():
    q, k, v = inputs(rows=40, columns=40)
    check([q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v], "causal")
    check([q, k[:1].expand_as(k), v[:, :, :, ::2]], "causal", "window")


def test_block_size_options():
    check(inputs(rows=100, columns=100), "alibi", "causal", kernel_options={"BLOCK_M": 32, "fwd_BLOCK_N": 16, "num_warps": 2})


def test_mask_of_each_head_and_batch():
    limits = torch.tensor([[3, 20, 48, 1], [0, 40, 17, 30]])
    args = inputs()
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
