"""Runs Triton kernels on CPU tensors through Triton's interpreter. Import this before anything imports triton."""

import builtins
import functools
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton.language as tl  # noqa: E402
from triton._utils import validate_block_shape  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.language.semantic import TritonSemantic  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from inductor.codegen.triton import TritonSource  # noqa: E402
from inductor.codegen.triton.gpu import DEFAULT  # noqa: E402
from inductor.codegen.values import COUNTERS, STATUS  # noqa: E402
from inductor.dtypes import dtype_name  # noqa: E402
from inductor.ir.buffer import Buffer, ComputedBuffer, ExternKernel, View, part_dtype  # noqa: E402
from inductor.ir.interp import flatten  # noqa: E402
from inductor.ir.nodes import BufferView  # noqa: E402
from inductor.ir.substitute import substitute_sizes  # noqa: E402
from inductor.runtime import plan_spec as spec  # noqa: E402
from inductor.schedule import Group, schedule  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from op_samples import lowered  # noqa: E402

GPU = DEFAULT  # for which block sizes are chosen
FOLDER = tempfile.TemporaryDirectory(prefix="pyframe-triton-test-")


# ---- what Triton's interpreter lacks: libdevice, and reductions by any function at the speed of numpy


def _elementwise(fn):
    def call(*args):
        dtype = next(a.dtype for a in args if isinstance(a, tl.tensor))
        arrays = [a.handle.data if isinstance(a, tl.tensor) else getattr(a, "value", a) for a in args]
        wanted = {tl.float32: torch.float32, tl.float64: torch.float64}[dtype]
        out = fn(*[torch.as_tensor(np.asarray(a)).to(wanted) for a in arrays]).numpy()
        shape = next((a.shape for a in args if isinstance(a, tl.tensor) and a.shape), ())
        kind = tl.block_type(dtype, list(out.shape)) if shape else dtype
        return tl.tensor(interpreter.TensorHandle(out, dtype), kind)

    return call


NAMES = {"rint": torch.round, "pow": torch.pow, "fmod": torch.fmod, "atan2": torch.atan2, "trunc": torch.trunc, "fast_logf": torch.log}
NAMES |= {n: getattr(torch, n) for n in (
    "expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc lgamma".split())}
for _name, _fn in NAMES.items():
    setattr(libdevice, _name, _elementwise(_fn))


# ---- what takes a fifth of the interpreter's time: a table made for each conversion, names replaced in each inner call


_np_dtype = interpreter._get_np_dtype
_np_dtypes = {}  # by the name of Triton's type


def _remembered_np_dtype(kind):
    name = kind.scalar.name
    if name not in _np_dtypes:
        _np_dtypes[name] = _np_dtype(kind.scalar)
    return _np_dtypes[name]


def _call_inner(self, *args, **kwargs):
    """A function that a kernel calls. The names of triton.language are replaced unless an earlier call has done so."""
    if any(tl.core.is_builtin(module.load) for module in (tl, tl.core)):
        interpreter._patch_lang(self.fn)
    return self.rewrite()(*args, **kwargs)


interpreter._get_np_dtype = _remembered_np_dtype
interpreter.InterpretedFunction.__call__ = _call_inner


# ---- what takes half of the rest: the shape of each value, which Triton makes and compares as a tuple of its own


@functools.cache
def _shape(sizes):
    """A shape as Triton has it in types and in values, and the number of elements; one object of each for all types."""
    numel = validate_block_shape(sizes)
    return tl.core.tuple(sizes), tl.core.tuple([tl.constexpr(n) for n in sizes]), numel, tl.constexpr(numel)


def _block_type_init(self, element_ty, shape):
    self.element_ty = element_ty
    shape = shape.value if isinstance(shape, tl.constexpr) else shape
    self.sizes = builtins.tuple(n.value if isinstance(n, tl.constexpr) else n for n in shape)
    if not self.sizes:
        raise TypeError("0d block_type is forbidden")
    self.shape, _, self.numel, _ = _shape(self.sizes)


def _tensor_init(self, handle, type):
    self.handle, self.type, self.dtype = handle, type, type.scalar
    _, self.shape, _, self.numel = _shape(type.sizes if type.is_block() else ())


def _broadcast_impl_value(self, lhs, rhs, _broadcast=TritonSemantic.broadcast_impl_value):
    if lhs.type.is_block() and rhs.type.is_block() and lhs.type.sizes == rhs.type.sizes:
        return lhs, rhs
    return _broadcast(self, lhs, rhs)


tl.block_type.__init__ = _block_type_init
tl.block_type.__eq__ = lambda self, other: (
    isinstance(other, tl.block_type) and self.sizes == other.sizes and self.element_ty == other.element_ty
)
tl.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
tl.tensor.__init__ = _tensor_init
TritonSemantic.broadcast_impl_value = _broadcast_impl_value


def _reduce(self, inputs):
    """Halves of the axis combined until one element is left."""
    parts = list(inputs)
    while parts[0].shape[self.axis] > 1:
        half = parts[0].shape[self.axis] // 2
        sides = []
        for cut in (slice(None, half), slice(half, None)):
            at = tuple(cut if d == self.axis else slice(None) for d in range(len(parts[0].shape)))
            sides += [self.to_tensor(p.handle.data[at], p.dtype.scalar) for p in parts]
        out = self.combine_fn.fn(*sides)
        parts = list(out) if isinstance(out, tuple) else [out]
    if self.keep_dims:
        return parts
    return [self.to_tensor(p.handle.data.squeeze(self.axis), p.dtype.scalar) for p in parts]


interpreter.ReduceOps.generic_reduce = _reduce


def _scan(self, inputs):
    """Runs that double their length in each step, until they reach the start of the axis. Shapes stay powers of 2."""
    parts = [p.handle.data for p in inputs]
    kinds, length, step = [p.dtype.scalar for p in inputs], parts[0].shape[self.axis], 1
    place = np.arange(length).reshape([-1 if d == self.axis else 1 for d in range(parts[0].ndim)])
    while step < length:
        earlier = [np.roll(p, step, self.axis) for p in parts]
        out = self.combine_fn.fn(*map(self.to_tensor, earlier + parts, kinds * 2))
        joined = out if isinstance(out, tuple) else (out,)
        parts = [np.where(place >= step, q.handle.data, p) for p, q in zip(parts, joined)]
        step *= 2
    return [self.to_tensor(p, kind) for p, kind in zip(parts, kinds)]


interpreter.ScanOps.generic_scan = _scan


def _binary_op(self, lhs, rhs, op, _binary=interpreter.InterpreterBuilder.binary_op):
    """What a comparison gives is of dtype int1, not of its operands': broadcasting a number would convert it."""
    out = _binary(self, lhs, rhs, op)
    return interpreter.TensorHandle(out.data, tl.int1) if out.data.dtype == np.bool_ else out


interpreter.InterpreterBuilder.binary_op = _binary_op


def _create_dot(self, a, b, d, input_precision, max_num_imprecise_acc, _dot=interpreter.InterpreterBuilder.create_dot):
    """The interpreter holds the bits of bfloat16 as uint16, and multiplies those."""
    wide = [
        interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32) if x.dtype.scalar == tl.bfloat16 else x
        for x in (a, b)
    ]
    return _dot(self, *wide, d, input_precision, max_num_imprecise_acc)


interpreter.InterpreterBuilder.create_dot = _create_dot


def _patch_lang_tensor(tensor, *scope, _patch=interpreter._patch_lang_tensor):
    """The interpreter holds a number as an array of one element, which newer numpy does not convert to an int."""
    _patch(tensor, *scope)
    index = lambda self: self.handle.data.item()  # noqa: E731
    if scope:
        scope[0].set_attr(tensor, "__index__", index)
    else:
        tensor.__index__ = index


interpreter._patch_lang_tensor = _patch_lang_tensor

# Instructions of the GPU, which kernels use for an order that the interpreter keeps anyway.
tl.inline_asm_elementwise = lambda *args, **named: None

# Each sum and product of integers is computed in int64 too, for an assertion that is left out unless debug is set:
# a third of the time.
assert not interpreter.interpreter_builder.options.debug
object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)


# ---- a plan in Python


def number(tensor, position):
    """An element of a tensor, counted from its first one, as an argument that a kernel takes by value."""
    dtype = getattr(tl, dtype_name(tensor.dtype))
    value = tensor.as_strided((1,), (1,), tensor.storage_offset() + position).numpy().copy()
    return tl.tensor(interpreter.TensorHandle(value, dtype), dtype)


def load(kernel):
    """The function of a TritonKernel. Kernels of the same text are one function: the interpreter reads and rewrites the
    source of each function once."""
    return _loaded(kernel.name, kernel.text)


@functools.cache
def _loaded(name, text):
    path = Path(FOLDER.name) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def in_parts(flat):
    """Memory as kernels access it: of complex numbers, their parts."""
    return torch.view_as_real(flat).flatten() if flat.is_complex() else flat


class Runner:
    """A lowered graph, its kernels, and a way to run it."""

    def __init__(self, fn, *args, graph=None):
        self.graph = lowered(fn, *args) if graph is None else graph
        self.values = {}  # of symbols, in a graph of many sizes
        self.steps = schedule(self.graph)
        self.buffers = {}
        for b in [*self.graph.inputs, *self.graph.constants, *self.graph.buffers]:
            for buffer in b.outputs if isinstance(b, ExternKernel) else (b,):
                if isinstance(buffer, Buffer):
                    self.buffers[buffer.name] = buffer
        self.dtypes = {n: dtype_name(part_dtype(b.dtype)) for n, b in self.buffers.items()}
        self.source = TritonSource(GPU)
        self.launches = {id(g): self.source.group(g, self.dtypes) for g in self.steps if isinstance(g, Group)}
        self.places = None
        self.kept = {}  # memory that kernels keep from one run to the next

    def share_sizes(self):
        """One kernel for those that are equal but for sizes, as in a plan. No kernel may be generated afterwards."""
        self.places = self.source.share_sizes()

    def run(self, *args):
        memory = {STATUS: torch.zeros(1, dtype=torch.int64), COUNTERS: torch.zeros(spec.COUNTERS, dtype=torch.int32)}
        for buffer, value in zip(self.graph.inputs, args):
            if isinstance(buffer, Buffer):
                memory[buffer.name] = flatten(value)
        for buffer in self.graph.constants:
            memory[buffer.name] = flatten(buffer.value)
        self.memory = memory
        for step in self.steps:
            if isinstance(step, ExternKernel):
                self.extern(step)
            else:
                self.group(step)
        assert not memory[COUNTERS].any()
        if memory[STATUS].item():
            raise IndexError("index out of range")
        return [self.operand(out) for out in self.graph.outputs]

    def group(self, group):
        made = self.launches[id(group)]
        for name in made.bufs:
            if name not in self.memory:
                layout = substitute_sizes(self.buffers[name].layout, self.values)
                # what no kernel writes is seen
                poison = torch.full((layout.extent,), 77, dtype=layout.dtype)
                self.memory[name] = poison
        for name in group.stored - set(made.bufs):
            layout = substitute_sizes(self.buffers[name].layout, self.values)
            self.memory.setdefault(name, torch.empty(layout.extent, dtype=layout.dtype))
        for scratch in made.scratch:
            if scratch.kept:
                kept = torch.zeros(scratch.size, dtype=getattr(torch, scratch.dtype))
                self.memory[scratch.name] = self.kept.setdefault(scratch.name, kept)
                continue
            self.memory[scratch.name] = torch.full((substitute_sizes(scratch.size, self.values),), 77, dtype=getattr(torch, scratch.dtype))
        for launch in made.launches:
            place = self.places[launch.kernel] if self.places else None
            kernel = self.source.kernels[place.kernel if place else launch.kernel]
            bufs = [in_parts(self.memory[b]) for b in launch.bufs][: len(kernel.signature)]
            for buf, kind in zip(bufs, kernel.signature):
                assert kind == POINTER[buf.dtype], (kind, buf.dtype)
            ints = place.sizes if place and place.sizes else launch.ints(kernel.sizes)
            sizes = [self.values[x] if isinstance(x, str) else x for x in ints]
            grid = substitute_sizes(place.grid if place else kernel.grid, self.values)
            load(kernel)[grid](*bufs, *sizes, **kernel.constants)

    def tensor(self, buffer, layout):
        layout = substitute_sizes(layout, self.values)
        flat = self.memory[buffer.name]
        return flat.as_strided(layout.size, layout.stride, flat.storage_offset() + layout.offset)

    def operand(self, arg):
        if isinstance(arg, View | BufferView):
            return self.tensor(arg.buffer, arg.layout)
        if isinstance(arg, Buffer):
            return self.tensor(arg, arg.layout)
        return type(arg)(map(self.operand, arg)) if isinstance(arg, list | tuple) else arg

    def extern(self, node):
        result = node.target(*map(self.operand, node.args), **{k: self.operand(v) for k, v in node.kwargs.items()})
        for out, value in zip(node.outputs, result if node.returns_tuple else (result,)):
            if out is not None and all(n <= 1 or a == b for n, a, b in zip(value.shape, value.stride(), out.layout.stride)):
                self.memory[out.name] = flatten(value)
            elif out is not None:  # rows with gaps between them
                self.memory[out.name] = torch.full((out.layout.extent,), 77, dtype=value.dtype)
                self.tensor(out, out.layout).copy_(value)


POINTER = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.bool: "*i1",
    torch.float8_e4m3fn: "*fp8e4nv", torch.float8_e5m2: "*fp8e5",
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8",
}


def check(fn, *args, rtol=1e-5, atol=1e-5, kinds=None):
    """Run `fn` as kernels and with torch. `kinds`: what the names of the kernels start with, in order."""
    runner = Runner(fn, *args)
    runner.share_sizes()
    want = fn(*[a.clone(memory_format=torch.preserve_format) for a in args])
    want = list(want) if isinstance(want, (list, tuple)) else [want]
    got = runner.run(*args)
    assert len(got) == len(want)
    for a, e in zip(got, want):
        tol = 2e-2 if e.dtype in (torch.bfloat16, torch.float16) else None
        torch.testing.assert_close(a, e, rtol=tol or rtol, atol=tol or atol, equal_nan=True)
        assert all(n <= 1 or x == y for n, x, y in zip(e.shape, a.stride(), e.stride()))
    if kinds is not None:
        found = [k.name.split("_")[0] for k in runner.source.kernels]
        assert found == kinds, found
    return runner


__all__ = ["ComputedBuffer", "Runner", "check"]
