"""Elementwise operators and views with the same arguments become one."""

import torch
from torch import fx

from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.passes.duplicates import without_duplicates


def graph_of(fn, *args):
    gm = to_aten(fx.symbolic_trace(fn), args, decompositions()).graph
    changed = without_duplicates(gm)
    gm.graph.lint()
    return gm, changed


def names(fn, *args):
    gm, changed = graph_of(fn, *args)
    called = [node.target.overloadpacket.__name__ for node in gm.graph.nodes if node.op == "call_function"]
    got = gm(*[a.clone() for a in args])
    want = fn(*args)
    for a, b in zip(got, want if isinstance(want, tuple) else (want,)):
        torch.testing.assert_close(a, b)
    return called, changed


def test_chains_that_are_repeated():
    called, changed = names(lambda x, y: (x.cos().double() * y + (x.cos().double() * y).sum()), torch.randn(3), torch.randn(3))
    assert changed and sorted(called) == ["_to_copy", "add", "cos", "mul", "sum"]


def test_views_of_the_same_value():
    called, _ = names(lambda x: x.t().exp() @ x.t().exp().t(), torch.randn(3, 3))
    assert called.count("exp") == 1


def test_results_keep_their_memory():
    gm, _ = graph_of(lambda x: (x.exp(), x.exp(), x.exp().view(-1), x.exp() + 1), torch.randn(3, 1))
    results = gm(torch.randn(3, 1))
    assert len({r.untyped_storage().data_ptr() for r in results}) == 4


def test_what_is_written_to_an_input_keeps_its_memory():
    def fn(x, y):
        z = x.exp()
        y.copy_(x.exp())
        return z + 1

    x, y = torch.randn(3), torch.zeros(3)
    gm, _ = graph_of(fn, x, y)
    (z,) = gm(x, y)
    torch.testing.assert_close(y, x.exp())
    torch.testing.assert_close(z, x.exp() + 1)


def test_values_that_differ():
    x = torch.randn(4)
    for fn in (
        lambda x: torch.bernoulli(x.sigmoid()) - torch.bernoulli(x.sigmoid()).abs(),  # draws
        lambda x: x * 0.0 / x + x * -0.0 / x,
        lambda x: (x + 1).abs() + (x + 1.5).abs(),
        lambda x: x.to(torch.float64).sum() + x.to(torch.bfloat16).sum(),
    ):
        gm = to_aten(fx.symbolic_trace(fn), (x,), decompositions()).graph
        before = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        without_duplicates(gm)
        after = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        assert len(before) - len(after) <= (before.count(torch.ops.aten.sigmoid.default) > 1)


def test_values_before_and_behind_a_write():
    x = torch.randn(4)
    gm = fx.symbolic_trace(lambda x: torch.ops.aten.exp.default(x) + (torch.ops.aten.zero_.default(x), torch.ops.aten.exp.default(x))[1])
    for node in gm.graph.nodes:
        node.meta["val"] = x
    assert not without_duplicates(gm)


def test_true_is_not_one():
    x = torch.randn(4)
    gm = fx.symbolic_trace(lambda x: torch.ops.aten.mul.Tensor(x, True) + torch.ops.aten.mul.Tensor(x, 1))
    for node in gm.graph.nodes:
        node.meta["val"] = x
    assert not without_duplicates(gm)
