"""Each lowering, run by the IR's interpreter, against torch itself."""


import pytest
import torch
from op_samples import BINARY, CASES, EXTERN, UNARY, UNARY_POS, aten, f32, i64, lowered, pos

from inductor.ir import ComputedBuffer, ExternKernel
from inductor.ir.interp import run_graph
from inductor.ir.printer import print_graph


def check(fn, *args, externs=0, tol=1e-5):
    graph = lowered(fn, *args)
    expected = fn(*[a.clone(memory_format=torch.preserve_format) for a in args])
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    actual = run_graph(graph, args)
    print_graph(graph)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        low = e.dtype in (torch.bfloat16, torch.float16)
        torch.testing.assert_close(a, e, rtol=2e-2 if low else tol, atol=2e-2 if low else tol, equal_nan=True)
        assert all(n <= 1 or x == y for n, x, y in zip(e.shape, a.stride(), e.stride()))
    found = sum(isinstance(b, ExternKernel) for b in graph.buffers)
    assert found == externs, [b.target for b in graph.buffers if isinstance(b, ExternKernel)]
    return graph


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check(getattr(aten, name), f32(3, 5))


@pytest.mark.parametrize("name", UNARY_POS)
def test_unary_of_positive(name):
    check(getattr(aten, name), pos(3, 5))


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts(name):
    check(getattr(aten, name), f32(3, 1, 4), f32(5, 1))


@pytest.mark.parametrize("name", "add sub mul div maximum minimum eq lt remainder bitwise_and bitwise_or bitwise_xor".split())
def test_binary_of_integers(name):
    check(getattr(aten, name), i64(9, 4, 3), i64(9, 3) + 1)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("make", [lambda: f32(4, 3), lambda: i64(9, 4, 3) - 4])
def test_rounding_division(mode, make):
    check(lambda a, b: torch.div(a, b, rounding_mode=mode), make(), make().abs() + 1)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    torch.manual_seed(0)
    fn, *args = CASES[name]
    check(fn, *args)


@pytest.mark.parametrize("name", EXTERN)
def test_extern(name):
    externs, fn, *args = EXTERN[name]
    check(fn, *args, externs=externs)


def mutated(fn, *args):
    """Run fn, whose arguments it mutates, both ways."""
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    actual, expected = run_graph(lowered(fn, *args), mine), fn(*theirs)
    for a, e in zip([*actual, *mine], [*expected, *theirs]):
        torch.testing.assert_close(a, e)


def test_copy_into_an_input():
    def fn(x, y):
        out = x * y
        new = x + 1
        aten.copy_(x, new)
        return [out]

    mutated(fn, f32(3, 4), f32(3, 4))


def test_copy_that_reads_what_it_overwrites_elsewhere():
    def fn(x):
        new = x.flip(0) + 1
        aten.copy_(x, new)
        return []

    mutated(fn, f32(5))


def test_exchange_of_two_inputs():
    def fn(x, y):
        a, b = y + 1, x + 1
        aten.copy_(x, a)
        aten.copy_(y, b)
        return []

    mutated(fn, f32(5), f32(5))


def test_pointwise_chains_stay_one_body():
    graph = check(lambda a, b: torch.relu(a * b + 1).t() * 2, f32(3, 4), f32(3, 4))
    assert sum(isinstance(b, ComputedBuffer) for b in graph.buffers) == 1


def test_costly_value_with_two_readers_is_kept():
    graph = check(lambda a: ((y := a.exp().tanh().sin()) + 1, y.sum()), f32(3, 4))
    assert len(graph.buffers) == 3
