"""Turns a PlanSpec into a callable: the C Plan, or the Python reference runner if the C extension is not built."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ..dtypes import dtype_name, dtype_of
from ..extension import _C
from .aten import has_refs, overload
from .cuda import CudaKernel
from .plan_py import PythonPlan, view_of_input, written
from .plan_spec import (
    ANY_DEVICE,
    Alloc,
    Arena,
    BufRef,
    CallOrigin,
    Counters,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    Launch,
    OutputRef,
    PlanSpec,
    ResultSpec,
    Slot,
    Status,
    Step,
    View,
)

Form = Literal["tuple", "list", "single"]

# Shared with csrc/runtime/plan.h.
ALLOC, ARENA, SLOT, KERNEL, EXTERN, MATMUL, VIEW, FREE, STATUS, LAUNCH, ZEROS = range(11)
_MATMULS = {"aten.mm": 0, "aten.addmm": 1, "aten.bmm": 2, "aten.baddbmm": 3}
_OUTPUTS = {"buf": 0, "input": 1, "const": 2, "view": 3}
_FORMS: dict[str, int] = {"tuple": 0, "list": 1, "single": 2}
_DEVICE_TYPES = {"cpu": 0, "cuda": 1}  # c10::DeviceType's numbers
# c10::ScalarType's numbers, as in csrc/tensor_view.c.
_DTYPE_CODES = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
    "complex32": 8, "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15, "float8_e5m2": 23,
    "float8_e4m3fn": 24, "float8_e5m2fnuz": 25, "float8_e4m3fnuz": 26, "uint16": 27, "uint32": 28, "uint64": 29,
    "float8_e8m0fnu": 44,
}  # fmt: skip
_CPU = (0, -1)
_ANY = (-1, -1)
# Kernels over fewer bytes finish sooner than it takes to release and reacquire the GIL.
_RELEASE_BYTES = 1 << 20


def make_plan(
    spec: PlanSpec, kernels: Sequence[int | CudaKernel], bound: Sequence[torch.Tensor] = (),
    form: Form = "tuple", python: bool = False, fallback: Callable[..., Any] | None = None, label: str | None = None,
    places: Callable[[Sequence[int]], str] | None = None,
) -> Callable[..., Any]:
    """A callable that runs the plan. It takes the graph inputs except the last `len(bound)`, which are fixed to
    `bound`.

    `fallback` is called with the same arguments if an input that the plan writes overlaps another input in memory, or
    if an input is not aligned as the spec demands; without a fallback both raise ValueError. On the CPU the C runner
    also calls it if a step raises and the plan writes no inputs, or few enough bytes of them to put them back first.
    Inputs whose size, stride, dtype or device differs from the spec raise ValueError. An index out of bounds raises
    IndexError. The plan does not record autograd history.

    `kernels`: addresses of functions on the CPU, and CudaKernels, in the order of `spec.kernel_names`. `form`: the
    container of the outputs. `python`: use the reference runner even if the C extension is available (CPU only).
    `label`: the name of a call in torch's profiler, within which calls of kernels appear as ranges.
    `places`: where in the program the nodes with these numbers come from, for the names of these ranges.

    For a CUDA device, RuntimeError is raised if there is no device or a kernel cannot be loaded. A call only queues
    work on torch's current stream, so an index out of bounds raises IndexError in a later call.
    """
    if len(kernels) != len(spec.kernel_names):
        raise ValueError(f"{len(spec.kernel_names)} kernels are needed, {len(kernels)} were given")
    device = parse_device(spec.device)
    if device != _CPU and (python or _C is None):
        raise ValueError("only the C extension runs plans for CUDA")
    if python or _C is None:
        addresses = [k for k in kernels if not isinstance(k, CudaKernel)]
        return PythonPlan(spec, tuple(addresses), tuple(bound), form, fallback)
    fixed = (*bound, *spec.constants)
    inputs = (*spec.inputs, *map(input_spec, spec.constants))
    facts = _BufferFacts(spec, inputs)
    products = device == _CPU or _C.has_cuda_products()
    plan = _C.Plan(
        tuple(_encode_input(i, device) for i in inputs),
        fixed,
        tuple(_encode(step, facts, products, device) for step in delay_frees(spec.steps)),
        tuple(_encode_output(ref) for ref in spec.outputs),
        tuple(k.encode() if isinstance(k, CudaKernel) else k for k in kernels),
        spec.buffer_count(),
        _FORMS[form],
        spec.mutated,
        spec.aligned,
        fallback,
        written(spec),
        device,
    )
    if label is not None:
        plan.label((label, *_step_labels(spec, places)))
    return plan


def _step_labels(spec: PlanSpec, places: Callable[[Sequence[int]], str] | None) -> list[str]:
    """The name in profiles of each step, "" for those that call no kernel."""
    calls = [step for step in spec.steps if isinstance(step, KernelCall | Launch)]
    if len(spec.call_origins) == len(calls):
        named = [_call_label(step, origin, places) for step, origin in zip(calls, spec.call_origins)]
    else:
        named = [spec.kernel_names[step.kernel] for step in calls]
    names = iter(named)
    return [next(names) if isinstance(step, KernelCall | Launch) else "" for step in delay_frees(spec.steps)]


def call_labels(spec: PlanSpec) -> list[str]:
    """The kernel and the operators of each KernelCall and Launch in order, where the plan has that."""
    calls = [step for step in spec.steps if isinstance(step, KernelCall | Launch)]
    return [_call_label(step, origin, None) for step, origin in zip(calls, spec.call_origins)]


def _call_label(
    step: KernelCall | Launch, origin: CallOrigin, places: Callable[[Sequence[int]], str] | None
) -> str:
    where = places(origin.nodes) if places is not None and origin.nodes else ""
    what = f"kernel {step.kernel}" + (": " if origin.operators else "") + " ".join(origin.operators)
    return what + (f" ({where})" if where else "")


def input_spec(tensor: torch.Tensor) -> InputSpec:
    """The InputSpec that accepts exactly this tensor's metadata."""
    shape = tuple(tensor.shape), tuple(tensor.stride())
    return InputSpec("tensor", dtype_name(tensor.dtype), *shape, str(tensor.device))


def parse_device(name: str) -> tuple[int, int]:
    """The c10 device type and the index (-1 for the CPU) of "cpu" or "cuda:N". ValueError for anything else."""
    kind, _, index = name.partition(":")
    if kind not in _DEVICE_TYPES or (kind == "cuda") != index.isdecimal():
        raise ValueError(f"a plan runs on 'cpu' or on 'cuda:N', not on {name!r}")
    return _DEVICE_TYPES[kind], int(index) if index else -1


def delay_frees(steps: Sequence[Step]) -> list[Step]:
    """The steps reordered so that a buffer is freed only after its views, whose tensors may be created late."""
    base_of = {step.buf: step.base for step in steps if isinstance(step, View)}
    freed = {step.buf for step in steps if isinstance(step, Free)}
    waiting: dict[int, int] = {}  # views of a buffer that are not freed yet; a view that is never freed keeps its base
    for base in base_of.values():
        waiting[base] = waiting.get(base, 0) + 1
    result: list[Step] = []
    postponed: set[int] = set()

    def free(buf: int) -> None:
        if waiting.get(buf, 0):
            postponed.add(buf)
            return
        result.append(Free(buf))
        base = base_of.get(buf)
        if base is not None:
            waiting[base] -= 1
            if base in postponed and base in freed:
                postponed.discard(base)
                free(base)

    for step in steps:
        if isinstance(step, Free):
            free(step.buf)
        else:
            result.append(step)
    return result


def _shape(dtype: str, size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[Any, ...]:
    return (_DTYPE_CODES[dtype], dtype_of(dtype).itemsize, tuple(map(int, size)), tuple(map(int, stride)))


def shape_code(dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> tuple[Any, ...]:
    """A dtype, sizes and strides, as the C runner takes them."""
    return _shape(dtype_name(dtype), tuple(size), tuple(stride))


def _encode_input(spec: InputSpec, device: tuple[int, int]) -> tuple[Any, ...]:
    if spec.kind != "tensor":
        return (-1, 0, (), (), *_CPU)
    if spec.device:
        device = _ANY if spec.device == ANY_DEVICE else parse_device(spec.device)
    return (*_shape(spec.dtype, spec.size, spec.stride), *device)


class _BufferFacts:
    """The dtype and the size in bytes of each buffer, as far as inputs and steps state them."""

    def __init__(self, spec: PlanSpec, inputs: Sequence[InputSpec]) -> None:
        self.dtype: dict[int, str] = {}
        self.nbytes: dict[int, int] = {}
        for i, item in enumerate(inputs):
            self._note(i, item.dtype, item.size)
        for step in spec.steps:
            if isinstance(step, (Alloc, Slot)):
                self._note(step.buf, step.dtype, step.size)
            elif isinstance(step, View):
                dtype = step.dtype or self.dtype.get(step.base)
                if dtype is None:
                    raise ValueError(f"the view {step.buf} of an extern's result must say its dtype")
                self._note(step.buf, dtype, step.size)

    def _note(self, buf: int, dtype: str, size: tuple[int, ...]) -> None:
        self.dtype[buf] = dtype
        self.nbytes[buf] = math.prod(size) * dtype_of(dtype).itemsize


def _encode(step: Step, facts: _BufferFacts, products: bool, device: tuple[int, int]) -> tuple[Any, ...]:
    if isinstance(step, Alloc):
        place = parse_device(step.device) if step.device else device
        return (ALLOC, step.buf, *_shape(step.dtype, step.size, step.stride), *place)
    if isinstance(step, Arena):
        return (ARENA, step.nbytes, int(step.on_host))
    if isinstance(step, Slot):
        return (SLOT, step.buf, step.offset, *_shape(step.dtype, step.size, step.stride), int(step.on_host))
    if isinstance(step, KernelCall):
        long = sum(facts.nbytes.get(buf, 0) for buf in step.bufs) >= _RELEASE_BYTES
        return (KERNEL, step.kernel, tuple(step.bufs), tuple(map(int, step.ints)), int(long))
    if isinstance(step, Launch):
        grid, ints = tuple(map(int, step.grid)), tuple(map(int, step.ints))
        return (LAUNCH, step.kernel, tuple(step.bufs), grid, ints, step.by_value)
    if isinstance(step, View):
        return (VIEW, step.buf, step.base, step.offset, *_shape(facts.dtype[step.buf], step.size, step.stride))
    if isinstance(step, Free):
        return (FREE, step.buf)
    if isinstance(step, Status):
        return (STATUS, step.buf)
    if isinstance(step, Counters):
        return (ZEROS, step.buf, step.words * torch.int32.itemsize)
    return _encode_extern(step, products)


def _encode_extern(step: Extern, products: bool) -> tuple[Any, ...]:
    name = step.target.rpartition(".")[0]
    kind = _MATMULS.get(name) if products else None
    kwargs = dict(step.kwargs)
    beta, alpha = kwargs.pop("beta", 1.0), kwargs.pop("alpha", 1.0)
    plain = all(isinstance(arg, BufRef) for arg in step.args) and not kwargs and len(step.outs) == 1
    if kind is not None and plain and len(step.args) == (3 if kind % 2 else 2) and step.out in ((), ("out",)):
        bufs = tuple(arg.buf for arg in step.args)
        call = overload(f"{name}.out")._op
        return (MATMUL, kind, bufs, step.outs[0], int(bool(step.out)), float(beta), float(alpha), call)
    named = (*step.kwargs, *((name, BufRef(buf)) for name, buf in zip(step.out, step.outs)))
    operands = (_LIST, tuple(_operand(arg) for arg in (*step.args, *(value for _, value in named))))
    # the builtin behind the overload, so that a call creates no Python frame
    call = overload(step.target)._op
    outs, results = ((), ()) if step.out else (tuple(step.outs), tuple(map(_encode_result, step.results)))
    return (EXTERN, call, operands, tuple(name for name, _ in named), outs, results)


def _encode_result(result: ResultSpec | None) -> tuple[Any, ...]:
    if result is None or result.dtype not in _DTYPE_CODES:
        return ()
    return _shape(result.dtype, result.size, result.stride)


_BUF, _VALUE, _LIST = range(3)


def _operand(value: Any) -> tuple[int, Any]:
    if isinstance(value, BufRef):
        return (_BUF, value.buf)
    if isinstance(value, (list, tuple)) and has_refs(value):
        return (_LIST, tuple(map(_operand, value)))
    return (_VALUE, value)


def _encode_output(ref: OutputRef) -> tuple[Any, ...]:
    encoded = (_OUTPUTS[ref.kind], ref.value)
    return (*encoded, view_of_input) if ref.kind == "view" else encoded
