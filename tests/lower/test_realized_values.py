"""Which values are kept in memory instead of being computed again where they are used."""

import torch
from op_samples import lowered

from inductor.ir.buffer import ComputedBuffer
from inductor.ir.interp import run_graph


def loops(fn, *args):
    graph = lowered(fn, *args)
    for got, want in zip(run_graph(graph, list(args)), fn(*args), strict=True):
        torch.testing.assert_close(got, want)
    return sum(isinstance(buffer, ComputedBuffer) for buffer in graph.buffers)


def test_a_small_table_of_a_dear_function_that_many_large_results_use():
    def rotated(angles, *xs):
        table = angles.cos()
        return tuple(x * table for x in xs)

    angles, xs = torch.randn(8), [torch.randn(n, 8) for n in (4, 5, 6, 7)]
    assert loops(rotated, angles, *xs) == 5
    assert loops(rotated, angles, *xs[:2]) == 2  # few uses
    assert loops(rotated, torch.randn(4, 8), *[torch.randn(4, 8) for _ in range(4)]) == 4  # of the same size
    assert loops(lambda a, *xs: tuple(x * (a + 1) for x in xs), angles, *xs) == 4  # a cheap one


def test_one_of_several_results_that_many_nodes_use():
    def normalized(x, mean, variance):
        y = torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)[0]
        return tuple(y * k for k in range(5))

    assert loops(normalized, torch.randn(4, 3, 2), torch.randn(3), torch.rand(3)) == 5
