"""Lowerings of the operators between complex numbers in memory and their parts; loops compute with the parts."""

from __future__ import annotations

import torch

from ..ir.buffer import Layout
from ..ir.nodes import BufferView, TensorValue, store_complex
from .registry import LoweringGraph, Unlowered, lowering

OF_PARTS = frozenset({torch.ops.aten.view_as_real.default, torch.ops.aten.complex.default})


@lowering("view_as_real")
def view_as_real(graph: LoweringGraph, x: TensorValue) -> BufferView:
    """The parts of complex numbers, read in place."""
    memory = x.realize(graph)
    return BufferView(memory.buffer, memory.layout.parts())


@lowering("complex")
def complex_numbers(graph: LoweringGraph, real: TensorValue, imag: TensorValue) -> BufferView:
    """Complex numbers of two parts of the same size, in memory."""
    like = Layout.of(graph.val)
    if tuple(real.size) != like.size or tuple(imag.size) != like.size or real.dtype != imag.dtype:
        raise Unlowered
    return store_complex(graph, real, imag, like)
