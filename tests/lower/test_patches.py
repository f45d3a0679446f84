"""im2col and col2im as loops, in the interpreter of the loop IR."""

import pytest
import torch
from op_samples import lowered

from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph

aten = torch.ops.aten


def check(fn, *args):
    graph = lowered(fn, *args)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    torch.testing.assert_close(run_graph(graph, list(args)), list(fn(*args)))


# (kernel, dilation, padding, stride)
SHAPES = [
    ((3, 3), (1, 1), (1, 1), (2, 2)), ((2, 2), (1, 1), (0, 0), (2, 2)), ((3, 2), (2, 1), (2, 0), (1, 3)),
    ((1, 3), (1, 2), (0, 3), (1, 1)), ((4, 4), (1, 1), (0, 0), (4, 4)), ((2, 3), (1, 1), (1, 2), (3, 2)),
    ((2, 2), (1, 1), (0, 0), (3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["last", "contiguous"])
def test_patches_and_their_gradients(shape, layout):
    shape = [list(pair) for pair in shape]
    x = torch.randn(2, 3, 8, 7).to(memory_format=layout)
    check(lambda x: [aten.im2col(x, *shape)], x)
    columns = torch.randn_like(aten.im2col(x, *shape))
    check(lambda g: [aten.col2im(g, [8, 7], *shape)], columns)
    check(lambda g: [aten.col2im(g.sin(), [8, 7], *shape) * 2], columns)


def test_an_image_alone():
    x = torch.randn(3, 8, 7)
    check(lambda x: [aten.im2col(x, [3, 3], [1, 1], [1, 1], [1, 1])], x)
    check(lambda g: [aten.col2im(g, [8, 7], [3, 3], [1, 1], [1, 1], [1, 1])], torch.randn(27, 56))
