"""The loop IR: what ATen graphs are lowered to and what kernels are generated from.

It consists of operations on elements, handlers that interpret them, symbolic sizes and indices, buffers, and loop
bodies.
"""

from .body import Dep, LoopBody, Op, Ref, SubBody, TracingHandler, trace, walk
from .buffer import Buffer, ComputedBuffer, ConstantBuffer, ExternKernel, InputBuffer, Layout, MultiOutput, View
from .handler import Handler, ops
from .nodes import BufferView, GraphIR, Pointwise, TensorValue, compute_dtype
from .symbolic import Expr, FloorDiv, Index, Mod, Sym

__all__ = [
    "Buffer",
    "ComputedBuffer",
    "ConstantBuffer",
    "Dep",
    "Expr",
    "ExternKernel",
    "FloorDiv",
    "GraphIR",
    "Handler",
    "Index",
    "InputBuffer",
    "Layout",
    "Pointwise",
    "LoopBody",
    "Mod",
    "MultiOutput",
    "Op",
    "Ref",
    "BufferView",
    "SubBody",
    "Sym",
    "TensorValue",
    "TracingHandler",
    "View",
    "compute_dtype",
    "ops",
    "trace",
    "walk",
]
