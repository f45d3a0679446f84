"""The reference runner of a PlanSpec on the CPU: a Python version of what the C Plan does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dtypes import dtype_of
from ..overlap import address_span, intersect
from .aten import map_refs, overload
from .plan_spec import (
    ANY_DEVICE,
    Alloc,
    Arena,
    BufRef,
    Counters,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    OutputRef,
    PlanSpec,
    ResultSpec,
    Slot,
    Status,
    View,
)


class PythonPlan:
    """A callable over the flat graph inputs. It takes microseconds more per step than the C Plan, otherwise it behaves
    the same."""

    def __init__(
        self, spec: PlanSpec, kernels: tuple[int, ...], bound: tuple[torch.Tensor, ...], form: str = "tuple",
        fallback: Callable[..., Any] | None = None,
    ) -> None:
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self._spec, self._bound, self._form, self._fallback = spec, bound, form, fallback
        self._kernels = [prototype(address) for address in kernels]

    def __call__(self, *args: Any) -> Any:
        expected = len(self._spec.inputs) - len(self._bound)
        if len(args) != expected:
            raise TypeError(f"a compiled graph takes {expected} positional arguments, not {len(args)}")
        inputs = (*args, *self._bound)
        for i, (value, spec) in enumerate(zip(inputs, self._spec.inputs)):
            if spec.kind == "tensor":
                check_input(i, value, spec)
        buffers: dict[int, Any] = dict(enumerate((*inputs, *self._spec.constants)))
        if _mutated_overlaps(self._spec, buffers):
            if self._fallback is None:
                raise ValueError("an input that a compiled graph mutates shares memory with another input")
            return self._fallback(*args)
        with torch.no_grad():
            self._run(buffers)
            for step in self._spec.steps:
                status = int(buffers[step.buf]) if isinstance(step, Status) else 0
                if status == 2:
                    raise RuntimeError("ZeroDivisionError")  # what ATen raises
                if status:
                    raise IndexError("index out of range in a compiled graph")
            written(self._spec)([inputs[i] for i in self._spec.mutated])
            outputs = [self._output(ref, buffers) for ref in self._spec.outputs]
        if self._form == "single":
            return outputs[0]
        return outputs if self._form == "list" else tuple(outputs)

    def take(self, given: list[Any]) -> Any:
        """Calls the plan with the arguments in `given` and clears that list, so that it keeps no tensor alive."""
        args = tuple(given)
        given.clear()
        return self(*args)

    def _run(self, buffers: dict[int, Any]) -> None:
        arenas = {False: torch.empty(0, dtype=torch.uint8)}
        for step in self._spec.steps:
            if isinstance(step, Alloc):
                buffers[step.buf] = torch.empty_strided(step.size, step.stride, dtype=dtype_of(step.dtype))
            elif isinstance(step, Arena):
                arenas[step.on_host] = torch.empty(step.nbytes, dtype=torch.uint8)
            elif isinstance(step, Slot):
                buffers[step.buf] = _slot(arenas[step.on_host], step)
            elif isinstance(step, KernelCall):
                self._call_kernel(step, buffers)
            elif isinstance(step, View):
                base = buffers[step.base]
                buffers[step.buf] = base.as_strided(step.size, step.stride, base.storage_offset() + step.offset)
            elif isinstance(step, Extern):
                _call_extern(step, buffers)
            elif isinstance(step, Status):
                buffers[step.buf] = torch.zeros((), dtype=torch.int64)
            elif isinstance(step, Counters):
                buffers[step.buf] = torch.zeros(step.words, dtype=torch.int32)
            elif isinstance(step, Free):
                del buffers[step.buf]

    def _call_kernel(self, step: KernelCall, buffers: dict[int, Any]) -> None:
        addresses = (ctypes.c_void_p * max(len(step.bufs), 1))(*[buffers[buf].data_ptr() for buf in step.bufs])
        ints = (ctypes.c_int64 * max(len(step.ints), 1))(*step.ints)
        self._kernels[step.kernel](ctypes.addressof(addresses), ctypes.addressof(ints))

    def _output(self, ref: OutputRef, buffers: dict[int, Any]) -> Any:
        return ref.value if ref.kind == "const" else buffers[ref.value]


_is_mode_enabled = torch._C._is_torch_function_mode_enabled


def view_of_input(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A view of a plan's input, `offset` elements after its first element, that autograd tracks as a view.

    It requires a gradient if the input does, and autograd takes later in-place writes to either into account.
    """
    if _is_mode_enabled():  # this call must not be visible to the program's torch function modes
        with torch._C.DisableTorchFunction():
            return x.as_strided(size, stride, x.storage_offset() + offset)
    return x.as_strided(size, stride, x.storage_offset() + offset)


def report_writes(tensors: Sequence[torch.Tensor]) -> None:
    """Increments the version counters of tensors that were written. Inference tensors have none; RuntimeError, as in
    eager, if one was written outside of inference mode."""
    refuse_inference(tensors)
    torch.autograd.graph.increment_version([x for x in tensors if not x.is_inference()])


def refuse_inference(tensors: Sequence[torch.Tensor]) -> None:
    """RuntimeError, that of a write in eager, for an inference tensor outside of inference mode."""
    if not torch.is_inference_mode_enabled():
        for x in tensors:
            if x.is_inference():
                x.copy_(x)


def written(spec: PlanSpec) -> Callable[[Sequence[torch.Tensor]], None]:
    """The function to call with the inputs that a plan has written, which increments their version counters."""
    if not spec.uncounted:
        return report_writes
    counted = [k for k, i in enumerate(spec.mutated) if i not in spec.uncounted]

    def report(tensors: Sequence[torch.Tensor]) -> None:
        refuse_inference(tensors)
        report_writes([tensors[k] for k in counted])

    return report


def _mutated_overlaps(spec: PlanSpec, buffers: dict[int, Any]) -> bool:
    constants = [InputSpec("tensor", "", tuple(c.shape), c.stride()) for c in spec.constants]
    every: list[InputSpec] = [*spec.inputs, *constants]

    tensors = [i for i in range(len(every)) if every[i].kind == "tensor"]
    spans = {i: address_span(buffers[i], every[i].size, every[i].stride) for i in tensors}
    return any(i != j and intersect(spans[i], spans[j]) for i in spec.mutated for j in tensors)


def check_input(i: int, value: torch.Tensor, spec: InputSpec) -> None:
    """Raises ValueError unless device, dtype, size and strides match; strides of dimensions of size 1 are ignored."""
    wrong = ""
    size, stride = spec.size, spec.stride
    if value.device.type != "cpu" and spec.device != ANY_DEVICE:
        wrong = "device"
    elif value.dtype != dtype_of(spec.dtype):
        wrong = "dtype"
    elif tuple(value.shape) != tuple(size):
        wrong = "size" if value.dim() == len(size) else "number of dimensions"
    elif value.numel() and any(n > 1 and have != want for n, have, want in zip(size, value.stride(), stride)):
        wrong = "stride"
    if wrong:
        raise ValueError(f"input {i} of a compiled graph has another {wrong} than at compile time")


def _slot(arena: torch.Tensor, step: Slot) -> torch.Tensor:
    dtype = dtype_of(step.dtype)
    typed = arena[step.offset :]
    typed = typed[: typed.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return typed.as_strided(step.size, step.stride, typed.storage_offset())


def _call_extern(step: Extern, buffers: dict[int, Any]) -> None:
    def get(ref: BufRef) -> Any:
        return buffers[ref.buf]

    kwargs = {name: map_refs(value, get) for name, value in step.kwargs}
    kwargs |= {name: buffers[buf] for name, buf in zip(step.out, step.outs)}
    target = step.target
    result = overload(target)(*[map_refs(arg, get) for arg in step.args], **kwargs)
    if step.out:
        return
    results = result if isinstance(result, (tuple, list)) else (result,)
    expected = step.results or (None,) * len(step.outs)
    buffers.update((buf, _as_expected(value, e)) for buf, value, e in zip(step.outs, results, expected) if buf >= 0)


def _as_expected(value: Any, expected: ResultSpec | None) -> Any:
    if expected is None or value is None:
        return value
    if value.dtype != dtype_of(expected.dtype) or tuple(value.shape) != expected.size:
        raise RuntimeError("plan: an operator returned a tensor whose size or dtype differs from its fake tensor's")
    if any(n > 1 and a != b for n, a, b in zip(expected.size, value.stride(), expected.stride)):
        return torch.empty_strided(expected.size, expected.stride, dtype=value.dtype).copy_(value)
    return value
