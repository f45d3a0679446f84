"""PlanSpec: the steps of a compiled graph at run time, as picklable data.

Code generation produces it, the graph cache stores it, and two runners execute it: the C Plan (`csrc/runtime`) and, for
the CPU, the Python reference runner (`plan_py.py`).

Buffers are numbered: first the graph inputs in order, then the constants, then the buffers that steps create. Sizes,
strides and the offsets of `View` count elements; `Slot.offset` and `Arena.nbytes` count bytes. A dtype is written as
its name after "torch." ("float32", "int64", "bool").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from .arena import Range

ARENA_ALIGNMENT = 64
INPUT_ALIGNMENT = 16  # bytes, of the addresses of inputs that kernels of a GPU read by vectors
COUNTERS = 512  # 32-bit integers that all kernels of a plan share, and that each leaves 0


ANY_DEVICE = "any"


@dataclass(frozen=True)
class InputSpec:
    """A flat graph input: a tensor with this dtype, size and strides, a Python int, or an "opaque" tensor in a layout
    of oneDNN's own, which only ATen reads.

    `device`: "cpu" or "cuda:N" if it differs from the plan's device; ANY_DEVICE if only ATen operators use the tensor.
    """

    kind: Literal["tensor", "int", "opaque"]
    dtype: str = "int64"
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = ""


@dataclass(frozen=True)
class Alloc:
    """`buf` becomes a new, uninitialized tensor from torch's allocator.

    Used for buffers that leave the call, and for large intermediates of training graphs on a GPU. `device`: "cpu" if
    that differs from the plan's device.
    """

    buf: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = ""


@dataclass(frozen=True)
class Arena:
    """One block of scratch memory for the rest of the call. A plan has at most one, before the first Slot; a plan for a
    GPU may have a second one, `on_host`, in memory of the CPU."""

    nbytes: int
    on_host: bool = False


@dataclass(frozen=True)
class Slot:
    """`buf` is a range of the arena at an offset that is a multiple of ARENA_ALIGNMENT. It never leaves the call.

    If an Extern or View reads it, the runner creates a tensor over the memory. `on_host`: it is in that arena.
    """

    buf: int
    offset: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    on_host: bool = False


@dataclass(frozen=True)
class KernelCall:
    """Call `kernel_names[kernel]`, an `extern "C" void k(void** bufs, const int64_t* ints)`.

    All buffers are on the CPU.
    """

    kernel: int
    bufs: tuple[int, ...]
    ints: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """Launch CUDA kernel `kernel_names[kernel]` on torch's current stream with `grid` blocks (x, y, z).

    The kernel's parameters are the addresses of `bufs`, `ints` as 32-bit integers, and two null pointers in place of
    the scratch memory that every Triton kernel takes. An empty grid launches nothing.

    `by_value` are the places among `bufs` of buffers on the CPU, each with a position in bytes: in the place of the
    address the kernel takes the number at that position, as it is when the kernel is launched.
    """

    kernel: int
    bufs: tuple[int, ...]
    grid: tuple[int, int, int]
    ints: tuple[int, ...] = ()
    by_value: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ResultSpec:
    """The dtype, size and strides that later steps expect of the result of an Extern."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class BufRef:
    """A reference to buffer `buf` among the arguments of an Extern, possibly inside lists and tuples."""

    buf: int


@dataclass(frozen=True)
class Extern:
    """Call an ATen overload, named like "aten.addmm.default".

    Without `out`, the results become the new buffers `outs`; -1 marks a result that is not used. With `out`, the target
    is an overload like "aten.addmm.out", and the existing buffers `outs` are passed as the keyword arguments that `out`
    names, in order. `kwargs` is a tuple of pairs.

    `results` states for each of `outs` the expected metadata, or None. A result with other strides is copied; one with
    another size or dtype raises RuntimeError. If `results` is empty, nothing is checked.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outs: tuple[int, ...]
    out: tuple[str, ...] = ()
    results: tuple[ResultSpec | None, ...] = ()


@dataclass(frozen=True)
class View:
    """`buf` shares the storage of `base`; `offset` counts elements from the first element of `base`.

    `dtype` is that of the base. It is required only for views of an Extern's result, whose dtype no step states.
    """

    buf: int
    base: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    dtype: str = ""


@dataclass(frozen=True)
class Free:
    """No later step reads `buf`."""

    buf: int


@dataclass(frozen=True)
class Status:
    """`buf` is one int64, initially 0. A kernel sets it to 1 if an index is out of bounds, to 2 if an integer is
    divided by zero, and then the call fails.

    On CUDA a later call fails instead, since a call does not wait for its kernels. Kernels may only store to it: it is
    host memory, which the device accesses over the bus.
    """

    buf: int


@dataclass(frozen=True)
class Counters:
    """`buf` holds `words` 32-bit integers that are 0 at first. What kernels leave in them, the next call finds there.

    Calls of the plan on one stream share them, since its kernels run one after the other. Each stream has its own, and
    so has each CUDA graph, of which two may run at the same time whatever stream they were captured on: there they are
    0 at each replay.
    """

    buf: int
    words: int = COUNTERS


Step: TypeAlias = Alloc | Arena | Slot | KernelCall | Launch | Extern | View | Free | Status | Counters


@dataclass(frozen=True)
class OutputRef:
    """One result: ("buf", number), ("input", position among the inputs) or ("const", a picklable value or None).

    ("view", number) is a buffer that autograd must track as a view of an input.
    """

    kind: Literal["buf", "input", "const", "view"]
    value: Any


@dataclass(frozen=True)
class CallOrigin:
    """What one call of a kernel computes: the names of its first operators, and the numbers of the captured graph's
    nodes that they may come from."""

    operators: tuple[str, ...]
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlanSpec:
    """A whole plan. Buffers 0..len(inputs)-1 are the inputs, the next len(constants) the constants.

    `mutated`: positions of the inputs that kernels write. `uncounted`: those of them whose version counters must not
    change, since the program writes to them through `x.data`. `device`: "cpu" or "cuda:N", where steps allocate memory.
    `aligned`: positions of the inputs whose address must be a multiple of 16. Kernels are called by `KernelCall` steps
    on the CPU and by `Launch` steps on CUDA. A plan for CUDA has both if it computes on the CPU as well.

    `call_origins`: for each KernelCall and Launch in order, what the kernel computes, for profiles; or empty.

    In a spec for many sizes, numbers that depend on them are Sizes, and `ranges` are the live ranges of the Slots.
    `inductor.dynamic.template` derives from it a spec for given sizes, which can be run.
    """

    inputs: tuple[InputSpec, ...]
    constants: tuple[torch.Tensor, ...]
    steps: tuple[Step, ...]
    outputs: tuple[OutputRef, ...]
    kernel_names: tuple[str, ...] = ()
    mutated: tuple[int, ...] = ()
    device: str = "cpu"
    aligned: tuple[int, ...] = ()
    ranges: tuple[Range[int], ...] = ()
    call_origins: tuple[CallOrigin, ...] = ()
    uncounted: tuple[int, ...] = ()

    def buffer_count(self) -> int:
        """One more than the highest buffer number in use."""
        highest = len(self.inputs) + len(self.constants) - 1
        for step in self.steps:
            if isinstance(step, (Alloc, Slot, View, Status, Counters)):
                highest = max(highest, step.buf)
            elif isinstance(step, Extern):
                highest = max(highest, *step.outs, -1)
        return highest + 1


def print_plan(spec: PlanSpec) -> str:
    """The spec as text: one line for each input, constant, step and output."""
    constants = [f"constant {tuple(c.shape)} {c.stride()} {c.dtype}" for c in spec.constants]
    rest = f"device={spec.device} mutated={spec.mutated} aligned={spec.aligned} kernels={spec.kernel_names}"
    return "\n".join([rest, *map(str, spec.inputs), *constants, *map(str, spec.steps), *map(str, spec.outputs)])
