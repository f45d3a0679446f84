"""Operators that make a tensor of a size that is not known at compile time."""

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import pyframe
from inductor.aot.fake import fake_mode, make_fx


def test_size_that_the_program_never_reads():
    def f(x):
        counts = torch.unique(x, return_counts=True)[1]
        return torch.where(torch.arange(2) > 0, counts, -counts)

    x = torch.tensor([1.0, 2.0, 2.0])
    torch.testing.assert_close(pyframe.compile(f)(x), f(x))


def test_symbols_made_before_a_trace_are_none_of_its_own():
    """torch asks each operator of a trace for every symbol that was made and is not bound to a result yet."""
    mode = fake_mode(shape_env=ShapeEnv())
    with mode:
        x = torch.empty(3)
        torch.nonzero(x)
        graph = make_fx(lambda x: (x + 1,))(x)
    assert [n.target for n in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)]
