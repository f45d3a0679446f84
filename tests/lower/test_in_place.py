"""Partial writes to inputs are done in the memory of the input, and give what eager gives."""

import copy

import pytest
import torch
from in_place_programs import (
    PROGRAMS,
    arguments,
    index_copy,
    layouts,
    masked,
    nested,
    put_into_a_view,
    several_writes,
    slice_of_a_cache,
    through_data,
)
from torch.profiler import ProfilerActivity, profile

import pyframe
from inductor.lower.in_place import in_place_writes


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_results_and_inputs_are_those_of_eager(program, dynamic):
    compiled = pyframe.compile(program, dynamic=dynamic, fullgraph=program is not masked)
    for args in layouts(arguments()):
        expected, given = copy.deepcopy(args), copy.deepcopy(args)
        with torch.no_grad():
            want, got = program(*expected), compiled(*given)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(given, expected)
        for a, b in zip(*map(torch.utils._pytree.tree_leaves, (got, want))):
            assert not isinstance(a, torch.Tensor) or a.stride() == b.stride()
            same = [any(x is y for y in g) for x, g in ((a, given), (b, expected))]
            assert same[0] == same[1]


@pytest.mark.parametrize("program", [slice_of_a_cache, nested, index_copy, put_into_a_view], ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager(program):
    compiled = pyframe.compile(program)
    results = []
    for fn in (program, compiled):
        c, k, pos = arguments(torch.float64)
        k.requires_grad_()
        out = fn(c.clone(), k, pos)
        results.append((out, torch.autograd.grad(out.sum(), k)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("program", [slice_of_a_cache, index_copy, nested, several_writes], ids=lambda f: f.__name__)
def test_a_cache_is_neither_cloned_nor_copied_back(program):
    """No step of the call writes as many bytes as the cache has."""
    c, k, pos = torch.zeros(2, 8, 4), torch.ones(2, 2, 4), torch.tensor([2, 6])
    wide = [x.repeat(1, 1, 4096) for x in (c, k)]
    compiled = pyframe.compile(lambda c, k, pos: program(c, k, pos) is None)
    with torch.no_grad():
        compiled(*wide, pos)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            compiled(*wide, pos)
    names = {event.key for event in found.key_averages()}
    assert not names & {"aten::clone", "aten::copy_", "aten::index_copy", "aten::index_put"}, names


def test_a_version_counter_rises_once_a_write_is_seen_and_not_for_data():
    c, k, pos = arguments()
    with torch.no_grad():
        before = c._version
        pyframe.compile(through_data)(c, k, pos)
        assert c._version == before
        pyframe.compile(index_copy)(c, k, pos)
        assert c._version > before


def graph_of(fn, *args):
    from inductor.aot.decompositions import decompositions
    from inductor.aot.functionalize import to_aten

    captured = torch.fx.symbolic_trace(fn)
    return to_aten(captured, args, decompositions()).graph.graph


def test_a_write_whose_input_is_read_later_makes_a_new_tensor():
    def f(c, k):
        old = c.view(-1)
        new = c.index_copy(0, torch.tensor([1]), k)
        total = old.sum() + new.sum()
        c.copy_(new)
        return total

    assert not in_place_writes(graph_of(f, torch.zeros(4, 4), torch.ones(1, 4)))
