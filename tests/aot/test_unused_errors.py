"""Operators that raise because of elements raise where nothing uses their results, as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe
from inductor.aot import unused
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.training_decompositions import training_decompositions
from inductor.lower.registry import LOWERINGS

UNUSED = {
    "getitem": lambda a, i: a[i],
    "chain": lambda a, i: a[:, i].sum(0).sin(),
    "embedding": lambda a, i: F.embedding(i, a),
    "floordiv": lambda a, i: i // (i - i),
    "scatter": lambda a, i: a.scatter(0, i[:, None], 1.0),
    "cross_entropy": lambda a, i: F.cross_entropy(a, i),
}


@pytest.mark.parametrize(("name", "dynamic"), [*((name, False) for name in UNUSED), ("getitem", True)])
def test_unused_results_are_checked(name, dynamic):
    def program(a, i):
        UNUSED[name](a, i)
        return a + 1

    def outcome(fn, a, i):
        try:
            return fn(a, i).tolist()
        except (RuntimeError, IndexError) as error:
            return type(error)

    pyframe.reset()
    compiled = pyframe.compile(program, dynamic=dynamic)
    good = torch.tensor([0, 1, 2]) if name != "floordiv" else torch.tensor([500, 600, 700])
    bad = torch.tensor([0, 1, 9])
    for a in (torch.eye(3), -torch.eye(3), torch.eye(3).requires_grad_()):
        for i in (good, bad):
            assert outcome(compiled, a, i) == outcome(program, a, i)


def _put(b, *positions):
    b[positions] = 1.0


# Of results a part is used, or what is written to is not: (program of a table, a vector and positions).
IN_PART = {
    "select": lambda a, v, i: a[i][0],
    "gather": lambda a, v, i: v.gather(0, i)[1:],
    "index_select": lambda a, v, i: a.index_select(1, i)[:, 0],
    "embedding": lambda a, v, i: F.embedding(i, a)[:2].exp().sum(),
    "pointwise": lambda a, v, i: (v[i].sin() + 1)[:2] * 2,
    "one of two": lambda a, v, i: v[i].split([2, 1])[0],
    "overwritten": lambda a, v, i: torch.cat([v[i][:1], v[:1]]),
    "bucketize": lambda a, v, i: torch.bucketize(v[i], v)[:2],
    "searchsorted": lambda a, v, i: torch.searchsorted(v[i], v[:1]),
    "select_scatter": lambda a, v, i: v[i].select_scatter(v.sum(), 0, 2),
    "slice_scatter": lambda a, v, i: v[i].slice_scatter(v[1:], 0, 1),
    "triangle": lambda a, v, i: a[i].tril(-1),
    "mask": lambda a, v, i: v[i].where(torch.arange(3) < 1, 0.0),
    "size alone": lambda a, v, i: torch.zeros_like(a[i]),
    "fill": lambda a, v, i: a[i].fill_(2.0),
    "cropped": lambda a, v, i: F.pad(v[i], (0, -2)),
    "complex": lambda a, v, i: torch.complex(v[i], v).imag + 1,
    "complex product": lambda a, v, i: (torch.complex(v[i], v) * 2j)[:2].real + 1,
    "polar": lambda a, v, i: (torch.polar(v, v[i]) * 2)[:2].imag + 1,
    "parts": lambda a, v, i: torch.view_as_real(torch.complex(v[i], v) * 2)[:2] + 1,
    "as_strided": lambda a, v, i: v[i].as_strided((2,), (1,)),
    "of two": lambda a, v, i: a[:, i][0, 0] + a[i][0, 0],
    "index of an index": lambda a, v, i: v[i[[0, 1]]] + v[i[:2]] + v[i][:2],
    "pool": lambda a, v, i: F.avg_pool2d(a[i][None], 2),
    "division": lambda a, v, i: (i // (i - 9))[:2],
    "remainder": lambda a, v, i: (5 % (i - 9))[:1] + 1,
    "write": lambda a, v, i: _put(torch.zeros(3), i),
    "write of a row": lambda a, v, i: _put(a * 2, i, 0),
    "scatter": lambda a, v, i: torch.zeros(3).scatter_(0, i, 1.0) is None,
    "index_add": lambda a, v, i: _put(torch.zeros(3).index_add_(0, i, v)),
}


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", IN_PART)
def test_what_raises_is_computed_as_a_whole(name, trains):
    def program(a, v, i):
        result = IN_PART[name](a, v, i)
        return a * 2, result

    pyframe.reset()
    compiled = pyframe.compile(program, fullgraph=True)
    a, v = torch.eye(3, requires_grad=trains), torch.arange(3.0, requires_grad=trains)
    right, wrong = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 9])
    for _ in range(2):
        torch.testing.assert_close(compiled(a, v, right), program(a, v, right))
        with pytest.raises((IndexError, RuntimeError)) as expected:
            program(a, v, wrong)
        with pytest.raises(type(expected.value)):
            compiled(a, v, wrong)


def _rotated(x):
    return torch.cat((-x[:, 1:], x[:, :1]), -1)


# What uses all of the result, for which nothing more is computed.
AS_A_WHOLE = {
    "language model": lambda a, v, i: ((F.layer_norm(F.embedding(i, a) + v, (3,)) @ a)[-1:]),
    "halves": lambda a, v, i: [x + 1 for x in F.embedding(i, a).chunk(2, -1)],
    "parts": lambda a, v, i: torch.view_as_real(torch.complex(v[i], v)) + 1,
    "rotary": lambda a, v, i: _rotated(a[i]),
    "softmax": lambda a, v, i: a[i].softmax(-1)[0],
    "loss": lambda a, v, i: F.cross_entropy(a, i),
    "constant divisor": lambda a, v, i: (i // 2)[0],
    "data's mask": lambda a, v, i: torch.where(v > 1, a[i], 0.0),
    "update": lambda a, v, i: (a * 2).index_copy(0, i, a)[0],
    "positions": lambda a, v, i: a[v[i].long()] + a[i],
}


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_nothing_is_checked_of_what_is_computed_as_a_whole(name, trains):
    def program(a, v, i):
        return AS_A_WHOLE[name](a, v, i)

    seen = []

    def backend(gm, inputs):
        aten = to_joint(gm, inputs, training_decompositions()) if trains else to_aten(gm, inputs, decompositions())
        seen.extend(node.target for node in aten.graph.graph.nodes)
        return gm

    a, v, i = torch.rand(3, 3, requires_grad=trains), torch.arange(3.0, requires_grad=trains), torch.tensor([0, 1, 2])
    pyframe.compile(program, backend=backend, fullgraph=True)(a, v, i)
    assert seen and torch.ops.aten._assert_async.default not in seen


def test_each_operator_that_is_computed_in_loops_is_known():
    """Those that are neither here nor calls of ATen nor views nor pointwise compute what they read as a whole."""
    lazy = unused._SHOW_ALL | unused._SHOW_PART | unused._SHOW_NONE | unused._FIRST_IN_PART | set(unused._CHOOSE)
    lazy |= unused._SPLIT | {torch.ops.aten.slice, torch.ops.aten.select, torch.ops.aten.as_strided}
    whole = """_log_softmax _softmax all amax amin any argmax argmin cummax cummin cumprod cumsum kthvalue logcumsumexp mean
        median nanmedian native_group_norm native_layer_norm prod sort std sum topk var var_mean""".split()
    no_tensor = "arange empty eye full ones scalar_tensor zeros".split()
    # On the CPU these are calls of ATen; those that write to a copy, and sums of products, compute all of it.
    on_gpu = """_embedding_bag _embedding_bag_backward _embedding_bag_forward_only
        _embedding_bag_per_sample_weights_backward bmm convolution convolution_backward embedding_dense_backward
        index_add index_copy index_fill index_put index_reduce mm scatter scatter_add scatter_reduce""".split()
    extern = ["as_strided_scatter"]
    attention = ["pyframe::flex_attention", "pyframe::flex_attention_backward"]  # whole, too
    for name in LOWERINGS.keys() - {*whole, *no_tensor, *on_gpu, *extern, *attention, "pyframe::random_bits"}:
        packet = getattr(torch.ops.aten, name)
        for overload in (getattr(packet, each) for each in packet.overloads()):
            arguments = overload._schema.arguments
            takes = any(isinstance(each.type, torch.TensorType) for each in arguments) and not overload._schema.is_mutable
            known = packet in lazy or torch.Tag.pointwise in overload.tags or not takes
            assert known or _is_reduction(overload), overload


def _is_reduction(overload):
    """Those of max and min: the operator of two tensors is a pointwise one."""
    aten = torch.ops.aten
    return overload.overloadpacket in (aten.max, aten.min) and overload not in (aten.max.other, aten.min.other)


def test_nothing_is_checked_of_no_elements():
    def program(a, i):
        a[i]
        return a + 1

    empty = torch.zeros(0, dtype=torch.long)
    assert pyframe.compile(program)(torch.zeros(3), empty).tolist() == [1, 1, 1]


def test_a_factor_that_nothing_uses_decides():
    def is_positive(a):
        try:
            torch.linalg.cholesky(a)
            torch.tensor([1.0])[a[0, 0].long()]
        except (torch.linalg.LinAlgError, IndexError):
            return a * 0
        return a + 1

    compiled = pyframe.compile(is_positive)
    for a in (torch.eye(3) * 0.5, -torch.eye(3), torch.eye(3) * 2):
        assert compiled(a).tolist() == is_positive(a).tolist()


@pytest.mark.parametrize("size", [(), (1,), (3,)])
@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
def test_probabilities_of_quantiles_are_checked(size, function):
    """ATen reads them, but not those of fake tensors; with one element no later index is out of range."""
    fast = pyframe.compile(lambda x, q: function(x, q) * 2)
    x = torch.ones(size)
    assert torch.equal(fast(x, torch.tensor([0.5, 1.0])), torch.full((2,), 2.0))
    for q in (2.0, -0.5, float("nan")):
        with pytest.raises(RuntimeError, match=r"in the range \[0, 1\]"):
            fast(x, torch.tensor([0.5, q]))
