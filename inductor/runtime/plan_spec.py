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


ANY_DEVICE = "any"


@dataclass(frozen=True)
class InputSpec:
    """A flat graph input: a tensor of this dtype and these strides, or a Python int.

    `device`: "cpu" or "cuda:N" where it is another than the plan's; ANY_DEVICE where only operators see the tensor.
    """

    kind: Literal["tensor", "int"]
    dtype: str = "int64"
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = ""


@dataclass(frozen=True)
class Alloc:
    """`buf` becomes a new, uninitialised tensor from torch's allocator: whatever escapes or meets an `Extern`."""

    buf: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Arena:
    """One block of scratch memory for the rest of the call. At most one a plan, before the first Slot."""

    nbytes: int


@dataclass(frozen=True)
class Slot:
    """`buf` is a range of the arena, its offset a multiple of ARENA_ALIGNMENT; it never escapes the call.

    An Extern or View may still read it: the runner makes a tensor over the memory then.
    """

    buf: int
    offset: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """Call `kernel_names[kernel]`, an `extern "C" void k(void** bufs, const int64_t* ints)`."""

    kernel: int
    bufs: tuple[int, ...]
    ints: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """Launch CUDA kernel `kernel_names[kernel]` on torch's current stream with `grid` blocks (x, y, z).

    Its parameters: the addresses of `bufs`, `ints` as 32-bit integers, and two null pointers, the scratch memory that
    every kernel of Triton takes. An empty grid launches nothing.
    """

    kernel: int
    bufs: tuple[int, ...]
    grid: tuple[int, int, int]
    ints: tuple[int, ...] = ()


@dataclass(frozen=True)
class ResultSpec:
    """The result of an Extern as what reads it expects it."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class BufRef:
    """Stands for buffer `buf` among the arguments of an Extern; also inside lists and tuples."""

    buf: int


@dataclass(frozen=True)
class Extern:
    """Call an ATen overload, named like "aten.addmm.default".

    Without `out` the results become new buffers `outs`. With `out` ("aten.addmm.out"'s overload name is in `target`)
    the results are written into the existing buffers `outs`, passed as keyword arguments `out` names in order.
    An out of -1 is a result that nobody reads. `kwargs` is a tuple of pairs. `results` says for each of `outs` what it
    must be like, or None where that does not matter: a result with other strides is copied, one of another size or
    dtype is a RuntimeError. Empty: nothing is checked.
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

    `dtype` is the base's, and must be given only where no step says it: a view of an extern's result.
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
    """`buf` is one int64, 0 at first; if a kernel changes it, an index was out of bounds and the call fails.

    On CUDA a later call fails instead, since no call waits for its kernels. They may only store into it: it is memory
    of the host, which the device reaches over the bus.
    """

    buf: int


Step: TypeAlias = Alloc | Arena | Slot | KernelCall | Launch | Extern | View | Free | Status


@dataclass(frozen=True)
class OutputRef:
    """One result: ("buf", number), ("input", position among the inputs) or ("const", a picklable value or None).

    ("view", number) is a buffer of which autograd has to know that it is a view of an input.
    """

    kind: Literal["buf", "input", "const", "view"]
    value: Any


@dataclass(frozen=True)
class PlanSpec:
    """A whole program. Buffers 0..len(inputs)-1 are the inputs, the next len(constants) the constants.

    `mutated`: positions of the inputs that kernels write; `uncounted`: of those whose version counters stay as they
    are, since the program writes to them through `x.data`. `device`: "cpu" or "cuda:N", where every step makes its
    memory. `aligned`: positions of the inputs whose address must be a multiple of 16. Kernels are called by
    `KernelCall` steps on the CPU and by `Launch` steps on CUDA.

    `kernel_labels`: what profiles show for the kernels of the CPU, one for each of `kernel_names`, or empty.

    A spec may be for many sizes: what follows from them is then not an int, and `ranges` say when each Slot's buffer is
    in use. `inductor.dynamic.template` makes it a spec for given sizes; only that can be run.
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
    kernel_labels: tuple[str, ...] = ()
    uncounted: tuple[int, ...] = ()

    def buffer_count(self) -> int:
        """One more than the highest buffer number in use."""
        highest = len(self.inputs) + len(self.constants) - 1
        for step in self.steps:
            if isinstance(step, (Alloc, Slot, View, Status)):
                highest = max(highest, step.buf)
            elif isinstance(step, Extern):
                highest = max(highest, *step.outs, -1)
        return highest + 1


def print_plan(spec: PlanSpec) -> str:
    """One line for each input, constant, step and result."""
    constants = [f"constant {tuple(c.shape)} {c.stride()} {c.dtype}" for c in spec.constants]
    rest = f"device={spec.device} mutated={spec.mutated} aligned={spec.aligned} kernels={spec.kernel_names}"
    return "\n".join([rest, *map(str, spec.inputs), *constants, *map(str, spec.steps), *map(str, spec.outputs)])


def dtype_name(dtype: torch.dtype) -> str:
    """The name by which a PlanSpec knows a dtype: torch.float32 is "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The torch.dtype of a PlanSpec's dtype name."""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"not a dtype: {name}")
    return dtype
