"""Asserts on data: checks in the graph, which raise what eager raises, with the same done before."""

import assert_programs as programs
import pytest
import torch

import pyframe
from pyframe.metrics import counters

CALLS = [[2.0, 3, 1], [2.0, 5, 1], [0.0, 0, 0], [9.0, 9, 9], [1.0, 2, 3]]


def outcome(fn, *args):
    try:
        return fn(*args).tolist()
    except AssertionError as error:
        return type(error), error.args


def compare(fn, backend="eager"):
    fast = pyframe.compile(fn, backend=backend)
    for values in CALLS:
        ours, plain = torch.tensor(values), torch.tensor(values)
        assert outcome(fast, ours) == outcome(fn, plain)
        assert torch.equal(ours, plain)
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("fn", programs.ONE_GRAPH, ids=lambda fn: fn.__name__)
def test_in_the_graph(fn):
    compare(fn)
    assert counters["graphs"] == 1 and not counters["graph_breaks"]


def test_compiled_what_comes_before_is_done():
    compare(programs.after_a_write, "inductor")
    assert counters["graphs"] == 1


@pytest.mark.parametrize("fn", programs.BREAKS, ids=lambda fn: fn.__name__)
def test_breaks_where_the_graph_cannot_raise_it(fn):
    compare(fn)
    retried = fn.__name__ in ("in_a_block", "words_of_data")  # the graph returns that the check failed
    assert counters["eager_retries"] and not counters["graph_breaks"] if retried else counters["graph_breaks"]


def test_the_frame_runs_eagerly_after_an_effect():
    fast = pyframe.compile(programs.after_an_effect, backend="eager")
    for values in CALLS:
        ours, plain = [], []
        assert outcome(fast, torch.tensor(values), ours) == outcome(programs.after_an_effect, torch.tensor(values), plain)
        assert ours == plain
    assert counters["eager_retries"] and not counters["graph_breaks"]
