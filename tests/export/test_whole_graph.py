"""`whole_graph`: the graph of a function with its inputs, results, state and mutations."""

import pytest
import torch
from torch import nn

import pyframe
from pyframe.export.whole_graph import whole_graph


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(1))
        self.table = torch.ones(4)

    def forward(self, x, batch, n=3, *, mask=None):
        self.calls = self.calls + 1
        y = self.norm(self.linear(x)) + batch["a"] * n + self.table
        return {"y": y.view(y.shape[0], 2, 2), "rows": y.shape[0] * 2, "x": x, "weight": self.linear.weight, "n": n}


def run(whole, *args, **kwargs):
    return whole.rebuilt(whole.graph_module(*whole.flat_inputs(args, kwargs)))


def test_inputs_state_and_results_of_a_module():
    model, x, a = Net(), torch.randn(5, 4), torch.randn(4)
    whole = whole_graph(model, (x, {"a": a}))
    assert [each.name for each in whole.leaves] == ["x", "batch['a']"]
    assert {each.name: each.kind for each in whole.inputs} == {
        "x": "input", "batch['a']": "input", "calls": "buffer", "linear.weight": "parameter",
        "linear.bias": "parameter", "norm.num_batches_tracked": "buffer", "norm.running_mean": "buffer",
        "norm.running_var": "buffer", "norm.weight": "parameter", "norm.bias": "parameter", "table": "constant",
    }  # fmt: skip
    assert set(whole.state) == {*model.state_dict(), "table"}
    assert set(whole.mutated) == {"calls", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"}
    assert model.calls.item() == 0  # traced, not run
    other = Net()
    other.load_state_dict(model.state_dict())
    expected = other(x, {"a": a})
    found = run(whole, x, {"a": a})
    assert found["n"] == 3 and found["rows"] == 10 and found["x"] is x and found["weight"] is model.linear.weight
    torch.testing.assert_close(found["y"], expected["y"], rtol=0, atol=0)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [True, {"x": {0: True}}, ({0: (2, 9)},)])
def test_sizes_that_vary(dynamic):
    model = Net().eval()
    whole = whole_graph(model, (torch.randn(5, 4), {"a": torch.randn(4)}), dynamic=dynamic)
    x, a = torch.randn(7, 4), torch.randn(4)
    found = run(whole, x, {"a": a})
    torch.testing.assert_close(found["y"], model(x, {"a": a})["y"], rtol=0, atol=0)
    assert found["rows"] == 14


def test_a_function_with_numbers_and_tensors_of_its_surroundings():
    linear, table = nn.Linear(3, 3), torch.ones(3)

    def scaled(x, n):
        return linear(x) * n + table, (n + 1, x.shape)

    whole = whole_graph(scaled, (torch.randn(5, 3), 7), dynamic={"n": True, "x": {0: True}})
    assert sorted(whole.state) == ["linear.bias", "linear.weight", "table"]
    x = torch.randn(2, 3)
    found, expected = run(whole, x, 4), scaled(x, 4)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    assert found[1] == expected[1] and type(found[1][1]) is torch.Size


def test_an_example_that_is_passed_twice_is_two_inputs():
    x = torch.randn(3)
    whole = whole_graph(lambda a, b: a - b, (x, x))
    assert run(whole, torch.ones(3), torch.zeros(3)).tolist() == [1, 1, 1]


def test_a_buffer_that_is_returned_before_it_is_assigned():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(2))

        def forward(self, x):
            old = self.n
            self.n = self.n + x
            return old, old[:1]

    model = Counter()
    whole = whole_graph(model, (torch.ones(2),))
    old, part = run(whole, torch.ones(2))
    assert (old.tolist(), part.tolist(), model.n.tolist()) == ([0, 0], [0], [1, 1])


def test_errors_say_where():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + 1

    with pytest.raises(pyframe.Unsupported, match=r"assigns the attribute 'calls'(.|\n)*self\.calls \+= 1"):
        whole_graph(Counts(), (torch.ones(2),))

    def branches(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(pyframe.Unsupported, match=r"(.|\n)*if x\.sum\(\) > 0"):
        whole_graph(branches, (torch.ones(2),))
    with pytest.raises(pyframe.UserError, match="x is a object"):
        whole_graph(lambda x: x, (object(),))
    with pytest.raises(pyframe.UserError, match=r"x\.size\(0\) was marked as dynamic"):
        whole_graph(lambda x: x + torch.ones(4), (torch.ones(4),), dynamic={"x": {0: True}})
