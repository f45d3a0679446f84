"""What breaks leave over: pieces with nothing to compile, and sizes that vary between them."""

import pytest
import torch

import pyframe
from pyframe.metrics import counters


def compare(fn, calls, **options):
    fast = pyframe.compile(fn, backend="eager", **options)
    for args in calls:
        ours, eager = fast(*args), fn(*args)
        assert all(torch.equal(a, b) for a, b in zip(ours, eager, strict=True))
        assert all((a.data_ptr() == x.data_ptr()) == (b.data_ptr() == x.data_ptr())
                   for a, b in zip(ours, eager) for x in args if isinstance(x, torch.Tensor))  # fmt: skip


def ends_with_views(x):
    y = x * 2
    pyframe.graph_break()
    first, second = y.unbind()
    return first.view(1, -1), second[1:], x.t()


def only_views(x):
    return x.t(), x[0]


def numbers_in_a_loop(x):
    total = x.sum()
    for number in x.diag().unbind():
        pyframe.graph_break()
        total = total + number
    return total.sin() * 2, total


def rows_in_a_loop(x):
    total, rows = x + 0, []
    for row in x.unbind():
        pyframe.graph_break()
        total = total + row
        rows.append(total)
    return total.sin() * 2, rows[0]


def test_views_that_a_break_leaves_are_no_graph():
    compare(ends_with_views, [(torch.randn(2, 3),)] * 2)
    assert counters["graphs"] == 1


def test_the_function_itself_is_one():
    compare(only_views, [(torch.randn(2, 3),)] * 2)
    assert counters["graphs"] == 1


def test_the_sum_of_two_numbers_in_a_loop_is_no_graph():
    compare(numbers_in_a_loop, [(torch.randn(3, 3),)] * 2)
    assert counters["graphs"] == 2


def test_one_graph_for_all_iterations():
    """The list that grows is no constant of it."""
    compare(rows_in_a_loop, [(torch.randn(3, 3),)] * 2)
    assert counters["graphs"] == 3


def sizes_of_data(x):
    chosen = x[x > 0]
    pyframe.graph_break()
    return chosen * 2 + 1, chosen


def test_sizes_that_depend_on_data_are_symbols_after_a_break():
    calls = [(torch.tensor(values),) for values in ([1.0, 2, 3], [1.0, 2, -3], [4.0, 5, 6])]
    compare(sizes_of_data, calls)
    assert counters["graphs"] == 2 and not counters["recompiles"]


def passed_on(x, text):
    chosen = x[x > 0]
    pyframe.graph_break()
    pyframe.graph_break()
    return chosen * 2 + 1, chosen


def test_they_are_when_another_piece_only_passes_them_on():
    calls = [(torch.tensor(values), "a") for values in ([1.0, 2, 3], [1.0, 2, -3])]
    compare(passed_on, calls)
    assert counters["graphs"] == 2 and not counters["recompiles"]


def grows(x):
    found = [row * 2 + (row > 0).any().item() - 1 for row in x.unbind()]
    return [each + 1 for each in found]


def test_the_list_of_a_comprehension_is_no_constant():
    compare(grows, [(torch.randn(3, 2),)] * 2)
    assert not counters["recompiles"]


def helper(x, text):
    return x * len(text) + 1


def calls_a_helper(x, text):
    return helper(x, text) - 1, x


def test_callees_are_not_captured_at_the_recompile_limit():
    fast = pyframe.compile(calls_a_helper, backend="eager", options={"recompile_limit": 2})
    with pytest.warns(UserWarning, match="recompile limit"):
        for text in ("a", "bb", "ccc", "dddd", "a"):
            assert torch.equal(fast(torch.ones(2), text)[0], torch.ones(2) * len(text))
    assert counters["graphs"] == 2


def test_calls_with_nothing_to_compile_are_captured_once_beside_others():
    def maybe(a, k):
        return a + k if isinstance(a, torch.Tensor) else k

    fast = pyframe.compile(maybe, backend="eager")
    assert torch.equal(fast(torch.ones(2), 1), torch.ones(2) + 1)
    assert fast("x", "y") == "y"
    before = counters["recompiles"]
    assert [fast("x", "y") for _ in range(5)] == ["y"] * 5
    assert counters["recompiles"] == before
