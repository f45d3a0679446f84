"""Hand-made loop bodies: the shapes of the IR that scheduling and code generation read, and a runner by ctypes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import torch

from inductor.codegen import codegen
from inductor.runtime import cpp_build
from inductor.runtime.plan_spec import Alloc, Arena, KernelCall, Slot, dtype_of
from inductor.schedule import schedule


@dataclass(frozen=True)
class Ref:
    index: int


@dataclass(frozen=True)
class Op:
    name: str
    args: tuple
    dtype: torch.dtype | None


@dataclass
class Layout:
    dtype: torch.dtype
    size: tuple
    stride: tuple


@dataclass
class Body:
    iter_vars: tuple
    iter_sizes: tuple
    reduce_vars: tuple
    reduce_sizes: tuple
    ops: tuple


@dataclass
class Buf:
    name: str
    layout: Layout
    body: Body | None = None
    origins: tuple = ()


def contiguous(size):
    stride, n = [], 1
    for s in reversed(size):
        stride.insert(0, n)
        n *= s
    return tuple(stride)


@dataclass
class Graph:
    inputs: list = field(default_factory=list)
    buffers: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    count: int = 0

    def input(self, t: torch.Tensor) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(Buf(name, Layout(t.dtype, tuple(t.shape), t.stride())))
        return name

    def node(self, size, reduce, dtype, write, out: bool = False) -> str:
        """`write(b, idx, ridx) -> Ref` builds the body; a reduction kind comes from b.reduce."""
        name = f"buf{len(self.buffers)}"
        vs = [f"i{k}" for k in range(len(size))]
        rs = [f"j{k}" for k in range(len(reduce))]
        b = Builder()
        value = write(b, vs, rs)
        b.op("store", name, flat(vs, contiguous(size)), value, None)
        body = Body(tuple(vs), tuple(size), tuple(rs), tuple(reduce), tuple(b.ops))
        self.buffers.append(Buf(name, Layout(dtype, tuple(size), contiguous(size)), body))
        if out:
            self.outputs.append(name)
        return name


class Builder:
    def __init__(self):
        self.ops = []

    def op(self, name, *args, dtype=torch.float32) -> Ref:
        self.ops.append(Op(name, args, dtype))
        return Ref(len(self.ops) - 1)

    def c(self, v, dtype=torch.float32):
        return self.op("constant", v, dtype=dtype)


def flat(vs, strides) -> str:
    return " + ".join(f"{s}*{v}" for v, s in zip(vs, strides)) or "0"


def compile_graph(graph: Graph):
    """(groups, source, call): call(*tensors) runs the plan through ctypes."""
    groups = schedule(graph)
    source, spec = codegen(groups, graph)
    library = ctypes.CDLL(str(cpp_build.build(source)))

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        bufs: dict[int, Any] = dict(enumerate(tensors))
        arena = None
        for step in spec.steps:
            if isinstance(step, Arena):
                arena = torch.empty(step.nbytes, dtype=torch.uint8)
            elif isinstance(step, Alloc):
                bufs[step.buf] = torch.empty_strided(step.size, step.stride, dtype=dtype_of(step.dtype))
            elif isinstance(step, Slot):
                bufs[step.buf] = arena[step.offset :]
            elif isinstance(step, KernelCall):
                pointers = (ctypes.c_void_p * len(step.bufs))(*[bufs[b].data_ptr() for b in step.bufs])
                getattr(library, spec.kernel_names[step.kernel])(pointers, None)
        return [bufs[o.value] for o in spec.outputs]

    return groups, source, call
