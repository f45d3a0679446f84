"""`torch.cond`, `torch.while_loop` and `scan` in compiled functions: one graph, and what the Python they mean gives."""

from __future__ import annotations

import operator
import types

import forked_python
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

import pyframe
from pyframe.metrics import counters
from pyframe.testing import EagerAndRecordGraphs

X = torch.arange(6.0) / 3
CALLS = [X, torch.tensor([0.5, 2, 0.1, 5, 1, 0]) - 5]
BACKENDS = ["eager", "inductor"]
SCALE = {"value": 2.0}


# ---- what the operators mean: torch's own load its compiler even where nothing is compiled ----
def plain_cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def plain_while_loop(cond_fn, body_fn, carried):
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def plain_scan(combine, init, xs, dim=0, reverse=False):
    xs = pytree.tree_map(lambda x: x.movedim(dim, 0), xs)
    order = range(pytree.tree_leaves(xs)[0].shape[0])
    found = []
    for index in reversed(order) if reverse else order:
        init, y = combine(init, pytree.tree_map(operator.itemgetter(index), xs))
        found.append(y)
    return init, pytree.tree_map(lambda *ys: torch.stack(ys).movedim(0, dim), *(found[::-1] if reverse else found))


class Plain:
    """torch with these three."""

    cond, while_loop = staticmethod(plain_cond), staticmethod(plain_while_loop)

    def __getattr__(self, name):
        return getattr(torch, name)


def meant(fn):
    names = dict(fn.__globals__, torch=Plain(), scan=plain_scan)
    return types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, fn.__closure__)


# ---- programs ----
def chooses(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,)) + 1


def reads_outside(x):
    y, z = x + 1, x * 3
    factor = SCALE["value"]
    return torch.cond(x.sum() > 0, lambda a: (a * y + factor, 1, None), lambda a: (a - z, 1, None), (x,))


def gives_ints(x):
    y, n = torch.cond(x.sum() > 0, lambda a: (a * 2, 1), lambda a: (a * 3, 2), (x,))
    return y + n, n


def in_one_another(x):
    y = x * 2

    def inner(a):
        return torch.cond(a.max() > 1, lambda b: b + y, lambda b: b - y, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: inner(a) * 2, (x,))


def after_one_another(x):
    y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))


def by_a_size(x):
    return torch.cond(x.shape[0] > 2, lambda a: a + 1, lambda a: a - 1, (x,))


def takes_containers(x):
    def first(d, items):
        return {"a": d["k"] + items[0], "b": items[0]}

    return torch.cond(x.sum() > 0, first, lambda d, items: {"a": d["k"] - items[0], "b": items[0] * 2}, ({"k": x}, [x + 1]))


def changes_what_is_its_own(x):
    def fn(a):
        found = [a]
        found.append(a * 2)
        b = a * 1
        b += 2
        b[0] = len(found)
        return sum(found) + b

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,))


def counts(x):
    return torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + 1), (torch.tensor(0), x))


def counts_with_an_int(x):
    total = x.sum()
    return torch.while_loop(lambda i, a: i * 2 < x.shape[0], lambda i, a: (i + 1, a + i + total), (0, x))


def loops_on_data(x):
    return torch.while_loop(lambda a: a.abs().sum() < 100, lambda a: (a * 1.5 + 1,), (x,))


def loops_never(x):
    return torch.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 2), (0, x))


def loops_in_a_loop(x):
    def body(i, a):
        a = torch.cond(i % 2 == 0, lambda b: b + 1, lambda b: b * 2, (a,))
        _, a = torch.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c + 0.5), (torch.tensor(0), a))
        return i + 1, a

    return torch.while_loop(lambda i, a: i < 4, body, (torch.tensor(0), x))


def carries_a_transposed_tensor(x):
    return torch.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, (a + 1).t().contiguous().t()), (0, x.view(2, 3).t()))


def sums_up(x):
    twice = x[0] * 0 + 2
    return scan(lambda carry, a: (carry * 0.5 + a * twice, carry + a), x.sum() * 0, x)


def scans_containers_backwards(x):
    rows = x.reshape(2, 3)
    step = lambda carry, a: ({"s": carry["s"] + a["p"]}, {"q": a["p"] * carry["s"]})  # noqa: E731
    return scan(step, {"s": rows[:, 0] * 0}, {"p": rows}, dim=1, reverse=True)


CONDS = [
    chooses, reads_outside, gives_ints, in_one_another, after_one_another, by_a_size, takes_containers,
    changes_what_is_its_own,
]  # fmt: skip
LOOPS = [
    counts, counts_with_an_int, loops_on_data, loops_never, loops_in_a_loop, carries_a_transposed_tensor, sums_up,
    scans_containers_backwards,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", CONDS + LOOPS, ids=lambda fn: fn.__name__)
def test_one_graph(fn, backend):
    fast = pyframe.compile(fn, backend=backend, fullgraph=True)
    for x in (*CALLS, *CALLS):
        torch.testing.assert_close(fast(x.clone()), meant(fn)(x.clone()))
    assert counters["graphs"] == 1


def gradients(fn, x):
    x = x.clone().requires_grad_()
    found = [t for t in pytree.tree_leaves(fn(x)) if isinstance(t, torch.Tensor) and t.requires_grad]
    return torch.autograd.grad(sum(t.pow(2).sum() for t in found), x)[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn", [chooses, reads_outside, in_one_another, counts, loops_in_a_loop, sums_up], ids=lambda fn: fn.__name__
)
def test_gradients(fn, backend):
    fast = pyframe.compile(fn, backend=backend, fullgraph=True)
    for x in CALLS:
        torch.testing.assert_close(gradients(fast, x), gradients(meant(fn), x))


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.left, self.right, (x,)).relu()


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules_are_branches_and_learn(backend):
    net = Router()
    fast = pyframe.compile(net, backend=backend, fullgraph=True)
    for x, used, unused in ((CALLS[0], net.left, net.right), (CALLS[1], net.right, net.left)):
        net.zero_grad()
        got = fast(x)
        torch.testing.assert_close(got, used(x).relu())
        got.sum().backward()
        expected = [x.grad for x in (net.left.weight, net.right.weight)]
        net.zero_grad()
        net(x).sum().backward()  # eager gives zeros to parameters of the other branch
        torch.testing.assert_close(expected, [x.grad for x in (net.left.weight, net.right.weight)])
        assert used.weight.grad.any() and not unused.weight.grad.any()
    assert counters["graphs"] == 1


def test_results_are_new_tensors():
    def fn(x):
        y = torch.cond(x.sum() > 0, lambda a: a, lambda a: a.view(-1), (x,))
        return y.mul_(2)

    for backend in BACKENDS:
        fast = pyframe.compile(fn, backend=backend, fullgraph=True)
        for x in CALLS:
            before = x.clone()
            assert torch.equal(fast(x), before * 2) and torch.equal(x, before)


def test_results_require_gradients_whichever_branch_is_taken():
    def fn(x):
        y = torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: torch.zeros(6), (x,))
        return y, y.requires_grad

    for backend in BACKENDS:
        fast = pyframe.compile(fn, backend=backend)
        for x in CALLS:
            y, recorded = fast(x.clone().requires_grad_())
            assert y.requires_grad and recorded


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("positive", [True, False])
def test_operands_that_a_branch_does_not_use_get_zeros(positive, backend):
    def fn(choice, a, b):
        return torch.cond(choice, lambda a, b: a * 2, lambda a, b: b * 3, (a, b))

    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    pyframe.compile(fn, backend=backend)(torch.tensor(positive), a, b).sum().backward()
    assert torch.equal(a.grad, torch.full((3,), 2.0 * positive))
    assert torch.equal(b.grad, torch.full((3,), 3.0 * (not positive)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_a_scan_does_not_use_get_zeros(backend):
    def fn(start, rows):
        return scan(lambda carry, row: (carry * 0.5 + 1, carry * 2), start, rows)

    start, rows = torch.ones(3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    carry, found = pyframe.compile(fn, backend=backend)(start, rows)
    (carry.sum() + found.sum()).backward()
    assert torch.equal(start.grad, torch.full((3,), 3.25)) and torch.equal(rows.grad, torch.zeros(2, 3))


def test_ints_that_vary_are_operands():
    def fn(x, n):
        return torch.cond(x.sum() > n, lambda a: a * n, lambda a: a - n, (x,))

    fast = pyframe.compile(fn, backend="eager", fullgraph=True)
    for n in (1, 3, 4, 5, 60):
        torch.testing.assert_close(fast(X, n), meant(fn)(X, n))
    assert counters["graphs"] == 2


def test_what_a_branch_reads_is_guarded():
    fast = pyframe.compile(reads_outside, backend="eager")
    fast(X)
    SCALE["value"] = 7.0
    try:
        torch.testing.assert_close(fast(X), meant(reads_outside)(X))
    finally:
        SCALE["value"] = 2.0


def test_graphs_are_as_torch_has_them():
    record = EagerAndRecordGraphs()

    def fn(x, k):
        y = x + 1
        return torch.cond(x.sum() > 0, lambda a: a * y, lambda a: a - k, (x,))

    pyframe.compile(fn, backend=record)(X, X + 2)
    (gm,) = record.graphs
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    _, true, false, operands = node.args
    assert (true.op, true.target, false.target) == ("get_attr", "cond_true_0", "cond_false_0")
    assert len(operands) == 3  # the operand and what the branches read
    for name in ("cond_true_0", "cond_false_0"):
        branch = getattr(gm, name)
        assert isinstance(branch, torch.fx.GraphModule)
        assert len(branch.graph.find_nodes(op="placeholder")) == 3
    torch.testing.assert_close(gm(*[{"x": X, "k": X + 2}[node.meta["source"]] for node in gm.graph.find_nodes(op="placeholder")]), (X * (X + 1),))


# ---- branches that cannot be in a graph ----
KEPT: list[int] = []


def changes_a_global(x):
    def fn(a):
        KEPT.append(1)
        return a + 1

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,))


def changes_a_local(x):
    found = []

    def fn(a):
        found.append(1)
        return a + 1

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,)), len(found)


def changes_a_variable(x):
    n = 0

    def fn(a):
        nonlocal n
        n = 1
        return a + 1

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,)), n


def changes_an_operand(x):
    return torch.cond(x.sum() > 0, lambda a: a.mul_(2).sin(), lambda a: a - 1, (x * 1,))


def changes_a_tensor(x):
    y = x + 1

    def fn(a):
        y[0] = 1
        return a + 1

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,)), y


def gives_other_sizes(x):
    return torch.cond(x.sum() > 0, lambda a: a[:1], lambda a: a - 1, (x,))


def gives_other_containers(x):
    return torch.cond(x.sum() > 0, lambda a: (a,), lambda a: [a], (x,))


def raises(x):
    def fn(a):
        raise ValueError("no")

    return torch.cond(x.sum() > 0, fn, lambda a: a - 1, (x,))


def carries_something_else(x):
    return torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.double()), (0, x))


REFUSED = [
    (changes_a_global, "changes an object"), (changes_a_local, "changes an object"),
    (changes_a_variable, "changes an object"), (changes_an_operand, "in place"), (changes_a_tensor, "in place"),
    (gives_other_sizes, r"\[1\].* and torch.float32 \[6\]"), (gives_other_containers, "different structure"),
    (raises, "raises ValueError"), (carries_something_else, "returns torch.float64"),
]  # fmt: skip


@pytest.mark.parametrize("fn, why", REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_graph_cannot_hold_is_named(fn, why):
    with pytest.raises(pyframe.Unsupported, match=rf"(?s)\[control-flow-operator\].*{why}.*test_control_flow_ops.py"):
        pyframe.compile(fn, backend="eager", fullgraph=True)(X)


def test_torchs_compiler_is_not_loaded():
    script = """
import sys, torch, pyframe
lin = torch.nn.Linear(4, 4)
def f(x):
    y = torch.cond(x.sum() > 0, lambda a: lin(a), lambda a: a.cos() * 2, (x,))
    _, z = torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, torch.tanh(a * 2 + y)), (0, x))
    return y * z.sum().item() + z[z > 0].sum()
for backend in ("eager", "inductor", "aot_eager"):
    pyframe.compile(f, backend=backend, fullgraph=True)(torch.ones(2, 4, requires_grad=True)).sum().backward()
assert not [m for m in ("torch._dynamo", "torch._inductor") if m in sys.modules]
"""
    done = forked_python.run(script)
    assert done.returncode == 0, done.stderr
