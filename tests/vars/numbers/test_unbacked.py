"""Numbers read from tensors, and sizes that depend on data: in the graph where the program allows it, results eager's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from util import alike

import pyframe
from pyframe.metrics import counters
from pyframe.testing import CompileCounter, EagerAndRecordGraphs

BACKENDS = ["eager", "aot_eager", "inductor"]
X = torch.arange(6.0)
CALLS = [X, torch.tensor([0.0, 2, 0, 5, 1, 0]), torch.tensor([3.0, 1, 2, 7, 7, 1])]


# ---- numbers ----
def a_float(x):
    total = x.sum().item()
    return x * total + 1, total


def an_int(x):
    n = int(x.sum())
    return x + n, n * 2, float(x.max().long())


def a_bool(x):
    found = (x > 3).any().item()
    return x + found, found, int((x > 2).any())


def a_size(x):
    n = x.max().long().item()
    torch._check(n >= 0)
    return torch.zeros(n) + 1, torch.arange(n) * 2, x.new_ones(n, 2), n


def a_list(x):
    a, b = x[:2].tolist()
    return x * a + b, x.view(3, 2).long().tolist(), torch.empty(0).tolist()


def sizes_of_a_list(x):
    sizes = x[:2].long().tolist()
    for size in sizes:
        torch._check_is_size(size)
    return x.new_zeros(sizes[0], sizes[1] + 1)


def slices(x):
    n = x[1].long().item()
    torch._check_is_size(n, max=x.shape[0])
    return x[:n] * 2, x.narrow(0, 0, n)


def keeps(x):
    n = x.sum().item()
    held = {"n": n}
    return x + held["n"], held["n"], [n, n + 1]


# ---- sizes ----
def nonzero(x):
    places = x.nonzero()
    return places * 2, places.shape[0]


def where_alone(x):
    return torch.where(x > 0)[0] + 1


def masked(x):
    chosen = x[x > 1]
    return chosen * 2 + 1, chosen.numel(), chosen.sort()[0], chosen.softmax(0), chosen.reshape(-1, 1) * chosen


def masked_rows(x):
    rows = x.reshape(3, 2)
    chosen = rows[rows[:, 0] > 0]
    return chosen @ torch.ones(2, 3) + 1, chosen.mean(0), chosen[:1]


def selected(x):
    return torch.masked_select(x, x > 2).sum(), torch.cat([x[x > 1], x[x > 3]])


def empty(x):
    nothing = x[x > 100]
    return nothing * 2, nothing.shape[0], nothing.sum()


def unique(x):
    values, counts = x.unique(return_counts=True)
    return values.sin(), counts + 1, torch.unique(x)


def repeated(x):
    return torch.repeat_interleave(x, x.long()) * 2


def masked_store(x):
    y = x.clone()
    y[y > 2] = 0
    return y


def promised(x):
    positive, large = x[x > 0], x[x > 0.5]
    torch._check(positive.shape[0] == large.shape[0], lambda: "as many above one half as above zero")
    return positive * large


ONE_GRAPH = [
    a_float, an_int, a_bool, a_size, a_list, sizes_of_a_list, slices, keeps, nonzero, where_alone, masked, masked_rows,
    selected, empty, unique, repeated, masked_store, promised,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:_check_is_size")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", ONE_GRAPH, ids=lambda fn: fn.__name__)
def test_one_graph(fn, backend):
    fast = pyframe.compile(fn, backend=backend, fullgraph=True)
    for x in CALLS:
        alike(fast(x), fn(x))
    assert counters["graphs"] == 1


# ---- what the program has to know breaks the graph ----
def branches(x):
    n = x.sum().item()
    if n > 12:
        return x + 1
    return x - n


def branches_on_a_size(x):
    chosen = x[x > 4]
    return chosen + 1 if chosen.shape[0] > 1 else x


def counts_to_it(x):
    for i in range(int(x[1])):
        x = x + i
    return x


def writes_it(x):
    n = x.sum().item()
    return x + 1, f"{n}"


def broadcasts(x):
    return x[x > 1] * x[x > 4]  # of as many or one


def squeezes(x):
    y = x[x > 4].squeeze()
    return y, y.dim()


def broadcast_calls(x):
    return [torch.tensor([0.0, 5, 0, 0, 0, 0]), torch.tensor([2.0, 5, 0, 3, 0, 0]), torch.tensor([0.0, 5, 7, 0, 0, 0])]


BREAKING = [
    (branches, "data-dependent-branch"), (branches_on_a_size, "data-dependent-branch"),
    (counts_to_it, "data-dependent-branch"), (writes_it, "data-dependent-branch"),
    (squeezes, "data-dependent-shape"),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn, kind", BREAKING, ids=lambda value: getattr(value, "__name__", ""))
def test_breaks(fn, kind, backend):
    fast = pyframe.compile(fn, backend=backend)
    calls = broadcast_calls(X) if fn in (broadcasts, squeezes) else CALLS
    for x in calls:
        alike(fast(x), fn(x))
    assert set(counters["graph_breaks"]) == {kind}
    with pytest.raises(pyframe.Unsupported, match=kind):
        pyframe.compile(fn, backend="eager", fullgraph=True)(calls[0])


def test_a_promise_that_is_not_kept_is_an_error():
    def fn(x):
        n = x.sum().item()
        torch._check(n > 12, lambda: "the sum is too small")
        return x * 2 + n

    for backend in BACKENDS:
        pyframe.reset()
        fast = pyframe.compile(fn, backend=backend, fullgraph=True)
        alike(fast(X), fn(X))
        with pytest.raises(RuntimeError, match="the sum is too small"):
            fast(X / 4)

    def impossible(x):
        n = x.long().sum().item()
        torch._check(n * 0 != 0)
        return x + n

    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        pyframe.compile(impossible, backend="eager")(X)


def test_a_branch_that_a_promise_decides():
    def fn(x):
        n = x.long().max().item()
        torch._check(n >= 2)
        return x[:n] + 1 if n > 1 else x

    alike(pyframe.compile(fn, backend="eager", fullgraph=True)(X), fn(X))


# ---- settings ----
def test_settings():
    def number(x):
        return x + x.sum().item()

    def size(x):
        return x[x > 1] + 1

    for setting, fn, kind in (
        ("capture_scalar_outputs", number, "tensor-to-python"),
        ("capture_dynamic_output_shape_ops", size, "data-dependent-shape"),
    ):
        with pyframe.config.patch(setting, False):
            pyframe.reset()
            alike(pyframe.compile(fn, backend="eager")(X), fn(X))
            assert counters["graph_breaks"] == {kind: 1}
        assert setting in pyframe.config.describe()
        with pytest.raises(pyframe.UserError, match=setting):
            setattr(pyframe.config, setting, 1)


def test_a_loop_is_not_unrolled_for_numbers():
    def fn(x):
        found = []
        for i in range(20):
            x = x + i
            found.append(x.sum().item())
        return x, found

    record = EagerAndRecordGraphs()
    fast = pyframe.compile(fn, backend=record)
    alike(fast(X), fn(X))
    assert all(len(gm.graph.nodes) < 20 for gm in record.graphs)
    pyframe.reset()
    alike(pyframe.compile(fn, backend="eager", fullgraph=True)(X), fn(X))
    assert counters["graphs"] == 1


# ---- the graph ----
def test_nodes_are_used_where_they_are_needed():
    record = EagerAndRecordGraphs()

    def fn(x):
        chosen = x[x > 1]
        return chosen.sum() / chosen.shape[0], x.sum().item() * 2

    alike(pyframe.compile(fn, backend=record, fullgraph=True)(X), fn(X))
    targets = [node.target for node in record.graphs[0].graph.nodes if node.op == "call_method"]
    assert targets.count("item") == 1 and targets.count("size") == 1
    alike(record.graphs[0](X), (fn(X)[0], X.sum().item()))  # the product is made outside


class Pruned(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        hidden = self.first(x).relu()
        kept = hidden[x[:, 0] > 0]
        return self.second(kept).sin(), kept.shape[0]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_training_through_sizes_that_depend_on_data(backend):
    torch.manual_seed(0)
    net = Pruned()
    fast = pyframe.compile(net, backend=backend, fullgraph=True)
    for rows in ([1.0, -1, 1], [-1.0, -1, 1], [1.0, 1, 1]):
        x = torch.stack([torch.tensor(rows), torch.randn(3)], 1)
        (want, count), (got, found) = net(x), fast(x)
        torch.testing.assert_close(got, want)
        assert count == found
        wanted = torch.autograd.grad(want.sum(), list(net.parameters()))
        torch.testing.assert_close(torch.autograd.grad(got.sum(), list(net.parameters())), wanted)
    assert counters["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_sizes_that_vary_and_sizes_that_depend_on_data(backend):
    def fn(x, n):
        chosen = x[x > 0]
        with torch.no_grad():
            return chosen * n + x.shape[0], (x * 2).sum().item() + n

    fast = pyframe.compile(fn, backend=backend, fullgraph=True)
    for length, n in ((6, 2), (7, 3), (9, 4), (12, 5)):
        x = torch.linspace(-1, 1, length)
        got, want = fast(x, n), fn(x, n)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == pytest.approx(want[1], abs=1e-5)
    assert counters["graphs"] == 2


def test_pieces_are_compiled():
    def fn(x):
        y = (x * 2).sin() + 1
        return y[y > 1].cos() * 2

    report = pyframe.explain(fn, backend="inductor")(X)
    assert report.graph_count == 1
    (gm,) = [gm for capture in report.captures for gm in capture.graphs]
    assert gm.meta["compile_report"].kernels and gm.meta["compile_report"].fallback is None


def test_a_marked_dimension_is_unbacked():
    fast = pyframe.compile(lambda x: x[x > 0] * x.shape[0], backend="eager", fullgraph=True)
    for n in (3, 1, 0, 7):
        x = torch.linspace(-1, 1, n)
        pyframe.mark_unbacked(x, 0)
        torch.testing.assert_close(fast(x), x[x > 0] * n)
    assert counters["graphs"] == 1


def _kept(x):
    """The positive elements, of which the data decide how many there are."""
    return x[x > 0]


def _first(x):
    return x[: x.sum().int().item() % 3 + 1]


@pytest.mark.parametrize("layer", [_kept, _first])
def test_functions_called_in_a_loop_make_numbers(layer):
    """Layers of a model, for example."""

    def program(x, layers):
        total = 0.0
        for scale, each in layers:
            total = total + each(x * scale).sin().sum()
        return total

    layers = [(1.0, layer), (-2.0, layer), (0.5, layer)]
    counter = CompileCounter()
    compiled = pyframe.compile(program, backend=counter)
    for x in (torch.tensor([1.0, -2.0, 3.0, 4.0]), torch.tensor([-1.0, 2.0, -3.0, 5.0])):
        torch.testing.assert_close(compiled(x, layers), program(x, layers))
    assert counter.frame_count == 1


def test_functions_called_in_a_loop_that_breaks():
    """The body of the loop becomes a function, in which they are read eagerly."""

    def program(x, count):
        total = 0.0
        for k in range(count):
            part = _first(x + k)
            print(end="")
            total = total + part.sum() * _kept(x - k).sum()
        return total

    counter = CompileCounter()
    compiled = pyframe.compile(program, backend=counter)
    x = torch.tensor([1.0, -2.0, 3.0, 4.0])
    for count in (3, 4, 9, 2):
        torch.testing.assert_close(compiled(x, count), program(x, count))
    assert counter.frame_count <= 12


def written_up_to(x):
    size = int(x[0].item())
    y = torch.zeros(4)
    y[:size] = x[:size]
    return y + 1


ASSUMING = {
    broadcasts: [[0.0, 5, 0, 7, 0, 0], [2.0, 5, 0, 0, 0, 0], [0.0, 5, 7, 0, 0, 0], [5.0, 5, 0, 0, 0, 0]],
    written_up_to: [[2.0, 5, 3, 4, 5, 6], [4.0, 3, 2, 3, 0, 0], [1.0, 5, 7, 0, 0, 0], [3.0, 5, 0, 0, 0, 0]],
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", ASSUMING, ids=lambda fn: fn.__name__)
def test_assumptions_about_sizes_are_checked_in_the_graph(fn, backend):
    fast = pyframe.compile(fn, backend=backend)
    for values in ASSUMING[fn]:
        x = torch.tensor(values)
        torch.testing.assert_close(fast(x), fn(x), rtol=0, atol=0)
    assert not counters["graph_breaks"] or fn is broadcasts


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_failed_assumption_is_not_made_again(backend):
    fast = pyframe.compile(broadcasts, backend=backend)
    equal, one = torch.tensor([0.0, 5, 7, 0, 0, 0]), torch.tensor([2.0, 5, 0, 3, 0, 0])
    for x in (equal, one, one, equal, one):
        torch.testing.assert_close(fast(x), broadcasts(x), rtol=0, atol=0)
    assert counters["eager_retries"] == 1 and set(counters["graph_breaks"]) == {"data-dependent-shape"}


def test_sizes_that_do_not_fit_raise_as_in_eager():
    fast = pyframe.compile(written_up_to, backend="eager")
    for size in (2.0, 5.0, 3.0):
        x = torch.tensor([size, 1, 2, 3, 4, 5])
        if size < 5:
            torch.testing.assert_close(fast(x), written_up_to(x))
        else:
            with pytest.raises(RuntimeError, match="expanded size"):
                fast(x)


def test_assumptions_about_what_was_written_before():
    def program(x):
        x.add_(1)
        return x[x > 1] * x[x > 4]

    fast = pyframe.compile(program, backend="eager")
    for values in ASSUMING[broadcasts]:
        found, wanted = torch.tensor(values), torch.tensor(values)
        torch.testing.assert_close(fast(found), program(wanted), rtol=0, atol=0)
        assert torch.equal(found, wanted)


def test_gradients_through_sizes_that_are_assumed_to_be_equal():
    def program(x, chosen):
        return (x[chosen] * x[~chosen]).sum()

    fast = pyframe.compile(program)
    for chosen in ([True, False, True, False], [True, True, True, False], [True, True, False, False]):
        x, mask = torch.arange(4.0, requires_grad=True), torch.tensor(chosen)
        found, wanted = (torch.autograd.grad(fn(x, mask), x)[0] for fn in (fast, program))
        torch.testing.assert_close(found, wanted)
