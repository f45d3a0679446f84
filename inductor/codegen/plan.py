"""Builds the PlanSpec of a graph from its scheduled groups and ATen calls.

The planner numbers buffers, places intermediates in an arena or allocates them, and emits the steps in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from ..dtypes import dtype_name, dtype_of
from ..errors import Unsupported
from ..ir.buffer import Buffer, ComputedBuffer, ExternKernel, InputBuffer, Layout, View, part_dtype
from ..ir.nodes import BufferView, GraphIR
from ..ir.size import AnySize, Size, hint, named
from ..runtime import plan_spec as spec
from ..runtime.arena import Range, plan_arena
from ..runtime.plan_spec import (
    INPUT_ALIGNMENT,
    Alloc,
    BufRef,
    CallOrigin,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    OutputRef,
    PlanSpec,
    ResultSpec,
    Slot,
    Step,
)
from ..schedule.collectives import in_flight
from ..schedule.node import Group
from ..schedule.scheduler import accesses, extern_reads, output_names
from .cpp.source import Source
from .emitter import HostNumber
from .origins import numbers_by_place, origin_of
from .values import COUNTERS, STATUS

if TYPE_CHECKING:
    from .triton.source import GroupLaunches, TritonSource

# Operators whose result is written to memory that the plan allocates, through their `out` overload.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation")
RELEASED_BYTES = 1 << 20  # inputs smaller than this are not worth a step that frees them
APART_BYTES = 1 << 20  # intermediates of a training graph on a GPU from this size on are not placed in the arena
INTO_MEMORY = {f"aten.{name}.default": f"aten.{name}.out" for name in _PRODUCTS}


def codegen(
    groups: Sequence[Group | ExternKernel], graph: GraphIR, release: bool = False, training: bool = False,
    captured: fx.Graph | None = None,
) -> tuple[Source | TritonSource, PlanSpec]:
    """The source of all kernels and the plan that calls them: C++ for a graph on the CPU, Triton for one on a GPU, with
    C++ for the groups of it that run on the CPU.

    `release`: the plan frees large inputs after their last use, for callers that give up their references. `training`:
    saved tensors or gradients occupy memory at the same time, so on a GPU each large intermediate is allocated
    separately and freed as soon as possible. `captured`: the graph whose nodes the plan's `call_origins` name.

    Raises Unsupported if code generation lacks an op or dtype, or if tensors are on several GPUs.
    """
    device = device_of(graph)
    check_reads(graph)
    return _Planner(groups, graph, device, _source_of(device), release, training, captured).run()


def _source_of(device: torch.device) -> Source | TritonSource:
    if device.type == "cpu":
        return Source()
    from .triton.gpu import gpu_of  # the code generator for Triton is imported only for graphs on a GPU
    from .triton.source import TritonSource  # likewise

    return TritonSource(gpu_of(device))


def device_of(graph: GraphIR) -> torch.device:
    """The device of the plan: a GPU if any tensor is on it; other tensors may be on the CPU, and inputs that are not
    used on any device. Raises Unsupported for several GPUs, or for a device type other than cpu and cuda."""
    outs = [o for node in graph.buffers for o in (node.outputs if isinstance(node, ExternKernel) else (node,))]
    used = _used_names(graph)
    inputs = [b for b in graph.inputs if isinstance(b, Buffer) and b.name in used]
    tensors = {b.name: b.layout.device for b in (*inputs, *graph.constants, *outs) if isinstance(b, Buffer)}
    devices = {d for d in tensors.values() if d.type != "cpu"} or {torch.device("cpu")}
    if len(devices) > 1:
        raise Unsupported(f"tensors on several devices: {', '.join(sorted({str(d) for d in tensors.values()}))}")
    (device,) = devices
    if device.type not in ("cpu", "cuda"):
        raise Unsupported(f"no kernels for device {device}")
    return device


def _used_names(graph: GraphIR) -> set[str]:
    """The names of the buffers that an operator reads or writes, or that the graph returns."""
    used = output_names(graph) | {node.mutates for node in graph.buffers if node.mutates is not None}
    for node in graph.buffers:
        names = extern_reads(node) if isinstance(node, ExternKernel) else [access.buf for access in node.body.reads]
        used.update(names)
    return used


def check_reads(graph: GraphIR) -> None:
    """Raises Unsupported if loops on the CPU access memory of a GPU. What loops on a GPU read of the CPU's memory is
    checked where their code is generated."""
    outs = [o for node in graph.buffers for o in (node.outputs if isinstance(node, ExternKernel) else (node,))]
    places = {b.name: b.layout.device for b in (*graph.inputs, *graph.constants, *outs) if isinstance(b, Buffer)}
    for node in graph.buffers:
        if isinstance(node, ComputedBuffer):
            written = places[node.mutates or node.name]
            read = {places[access.buf] for access in node.body.reads}
            if node.layout.device != written or (written.type == "cpu" and read - {written}):
                raise Unsupported(f"{node.name} is computed from tensors on several devices")


@dataclass
class _Call:
    """One call of a kernel (by number) or of ATen, or neither: the buffers it accesses (`touches`), and those for
    which the plan allocates memory at this call (`makes`)."""

    what: int | ExternKernel | None
    touches: list[str]
    makes: list[str] = field(default_factory=list)
    grid: tuple[int, ...] = ()
    ints: Sequence[str | int] = ()  # size symbols, and numbers, that are passed to the kernel
    on_host: bool = False  # a kernel on the CPU, in a plan for a GPU
    by_value: tuple[tuple[int, int], ...] = ()  # as in spec.Launch
    groups: Sequence[Group] = ()  # what the kernel computes


def _unsettled(size: AnySize) -> int:
    """A number in a spec, for the type checker. If it is a Size, `inductor.dynamic.template` replaces it by an int."""
    return cast(int, size)


class _Planner:
    def __init__(
        self, groups: Sequence[Group | ExternKernel], graph: GraphIR, device: torch.device,
        source: Source | TritonSource, release: bool, training: bool, captured: fx.Graph | None,
    ) -> None:
        self.captured = numbers_by_place(captured) if captured is not None else {}
        self.groups, self.graph, self.device, self.source = groups, graph, device, source
        # by id of the call that waits for a collective: what that reads until then
        self.held = {id(groups[place]): names for place, names in in_flight(groups, accesses).items()}
        self.apart = training and device.type != "cpu"
        self.layouts: dict[str, Layout] = {}
        self.numbers: dict[str, int] = {}
        for position, buffer in enumerate(graph.inputs):
            name = buffer.name if isinstance(buffer, Buffer) else f"%int{position}"
            self.numbers[name] = position
        self.tensors = {b.name: b for b in graph.inputs if isinstance(b, Buffer)}
        self.passed = set(self.tensors)
        for buffer in graph.constants:
            self.numbers[buffer.name] = len(self.numbers)
            self.tensors[buffer.name] = buffer
        self.given = set(self.numbers)
        # a package loads a constant at the same place in its memory, but at another address
        starts = {b.name: b.layout.offset * b.layout.dtype.itemsize for b in graph.constants}
        self.unaligned = {name for name, start in starts.items() if start % INPUT_ALIGNMENT}
        written = {n.mutates for n in graph.buffers if getattr(n, "mutates", None)}
        inputs = [b for b in graph.inputs if release and isinstance(b, Buffer) and b.name not in written]
        self.released = {b.name for b in inputs if hint(b.layout.extent) * b.layout.dtype.itemsize >= RELEASED_BYTES}
        for node in graph.buffers:
            outs = node.outputs if isinstance(node, ExternKernel) else (node,)
            self.tensors |= {b.name: b for b in outs if b is not None}
        self.layouts = {n: b.layout for n, b in self.tensors.items()}
        self.dtypes = {n: dtype_name(b.dtype) for n, b in self.tensors.items()}
        # the dtypes of the elements that loops access
        self.loop_dtypes = {n: dtype_name(part_dtype(b.dtype)) for n, b in self.tensors.items()}
        self.escapes = output_names(graph)
        self.used = _used_names(graph)
        self.aligned: set[str] = set()  # inputs that kernels expect to be aligned to 16 bytes
        self.steps: list[Step] = []
        self.origins: list[CallOrigin] = []  # of the calls of kernels among the steps
        self.kept: dict[str, int] = {}  # memory that kernels keep between calls: 32-bit words by name
        self.views: dict[str, dict[Layout, int]] = {}  # numbers of the existing views, by buffer

    def number(self, name: str) -> int:
        """The plan's number of a buffer, assigned at first use."""
        return self.numbers.setdefault(name, len(self.numbers))

    def run(self) -> tuple[Source | TritonSource, PlanSpec]:
        calls = [call for what in self._batches() for call in self._plan_calls(what)]
        self._share_sizes(calls)
        first, last = _lifetimes(calls)
        self.in_kernels = {b for c in calls if isinstance(c.what, int) for b in c.touches}
        slots = sorted(b for b in {b for c in calls for b in c.makes} - self.escapes if not self._lives_apart(b))
        varying = any(isinstance(self._nbytes(b), Size) for b in slots)
        hosts = [b for b in slots if self._on_host(b)]
        slots = [b for b in slots if not self._on_host(b)]
        ranges = [Range(b, _unsettled(self._nbytes(b)), first[b], last[b]) for b in slots]
        offsets, nbytes = (dict.fromkeys(slots, 0), 0) if varying else plan_arena(ranges)
        if any(STATUS in c.touches for c in calls):
            self.steps.append(spec.Status(self.number(STATUS)))
        if any(COUNTERS in c.touches for c in calls):
            self.steps.append(spec.Counters(self.number(COUNTERS)))
        self.steps += [spec.Counters(self.number(name), words) for name, words in self.kept.items()]
        if offsets:
            self.steps.append(spec.Arena(nbytes))
        if hosts and not varying:
            placed, nbytes = plan_arena([Range(b, _unsettled(self._nbytes(b)), first[b], last[b]) for b in hosts])
            self.steps.append(spec.Arena(nbytes, on_host=True))
            offsets |= placed
        created: set[str] = set()
        for at, call in enumerate(calls):
            for name in call.makes:
                if name not in created:
                    created.add(name)
                    self.steps.append(self._memory(name, offsets))
            self._emit(call)
            self._free([b for b in dict.fromkeys(call.touches) if last[b] == at and b not in offsets])
        outputs = tuple(self._output(o, k in self.graph.viewed) for k, o in enumerate(self.graph.outputs))
        kept = tuple(Range(self.number(r.name), r.nbytes, r.first, r.last) for r in ranges) if varying else ()
        written = {getattr(n, "mutates", None) for n in self.graph.buffers}
        mutated = {self.numbers[name] for name in self.given if name in written}
        return self.source, PlanSpec(
            tuple(map(self._input, self.graph.inputs)), tuple(b.value for b in self.graph.constants),
            tuple(map(self._numbered, self.steps)), outputs, self._kernel_names(), tuple(sorted(mutated)), ranges=kept,
            call_origins=tuple(self.origins), **self._device_facts(calls),
        )

    # ---- what is called

    def _batches(self) -> Sequence[Group | ExternKernel | list[Group]]:
        """The groups and ATen calls in order; for a GPU, groups that may be launched together are lists."""
        if self.device.type == "cpu" or isinstance(self.source, Source):
            return self.groups
        from .triton.horizontal import batches  # imported only for graphs on a GPU

        sizes = {name: self._nbytes(name) for name in self.layouts}
        return batches(self.groups, self.given, {name: n for name, n in sizes.items() if not isinstance(n, Size)})

    def _plan_calls(self, what: Group | ExternKernel | list[Group]) -> list[_Call]:
        if isinstance(what, ExternKernel):
            return [self._extern_call(what)]
        if isinstance(what, list):
            return self._plan_calls(what[0]) if len(what) == 1 else self._several(what)
        if 0 in what.outer:  # its buffers are allocated, but there is nothing to compute
            created = self._created(sorted(what.written_names()), what.stored)
            return [_Call(None, created, created)]
        source = self.source if isinstance(self.source, Source) else self.source.host
        if what.device.type == "cpu":
            number, bufs, symbols = source.kernel(what, self.loop_dtypes)
            if STATUS in bufs and source is not self.source:
                raise Unsupported("an index that may be out of bounds, on the CPU, in a graph on a GPU")
            return [_Call(number, bufs, self._created(bufs, what.stored), ints=symbols, on_host=True, groups=[what])]
        assert not isinstance(self.source, Source)
        return self._launches(self.source, what)

    def _created(self, bufs: Sequence[str], stored: set[str]) -> list[str]:
        return [b for b in bufs if b in stored and b not in self.given]

    def _launches(self, source: TritonSource, group: Group) -> list[_Call]:
        """The launches of a group. Scratch memory shared by them is in the arena, like other intermediates, except what
        they keep between calls."""
        return self._calls(source, source.group(group, self.loop_dtypes, self.unaligned), group.stored, [group])

    def _several(self, groups: list[Group]) -> list[_Call]:
        """The launches of groups that are independent of each other."""
        assert not isinstance(self.source, Source)
        calls = []
        for launches, members in self.source.several(groups, self.loop_dtypes, self.unaligned):
            stored = set().union(*(group.stored for group in members))
            calls += self._calls(self.source, launches, stored, members)
        return calls

    def _calls(
        self, source: TritonSource, launches: GroupLaunches, stored: set[str], groups: Sequence[Group]
    ) -> list[_Call]:
        names = {s.name: f"%scratch{len(self.layouts)}_{s.name}" for s in launches.scratch}
        for scratch in launches.scratch:
            name, dtype = names[scratch.name], dtype_of(scratch.dtype)
            if scratch.kept:
                self.kept[name] = _unsettled(scratch.size) * dtype.itemsize // torch.int32.itemsize
            self.layouts[name] = Layout.contiguous(self.device, dtype, (_unsettled(scratch.size),))
            self.dtypes[name] = self.loop_dtypes[name] = scratch.dtype
        calls = []
        for launch in launches.launches:
            kernel = source.kernels[launch.kernel]
            numbers = [(i, b) for i, b in enumerate(launch.bufs) if isinstance(b, HostNumber)]
            by_value = tuple((i, b.position * dtype_of(self.loop_dtypes[b.buf]).itemsize) for i, b in numbers)
            bufs = [b.buf if isinstance(b, HostNumber) else names.get(b, b) for b in launch.bufs]
            makes = [*self._created(bufs, stored), *(b for b in bufs if b in names.values() and b not in self.kept)]
            self.aligned |= {b for i, b in enumerate(bufs) if i in kernel.aligned and b in self.passed}
            grid, ints = tuple(map(_unsettled, kernel.grid)), launch.ints(kernel.sizes)
            calls.append(_Call(launch.kernel, bufs, makes, grid, ints, by_value=by_value, groups=groups))
        return calls

    def _share_sizes(self, calls: Sequence[_Call]) -> None:
        """Let calls of kernels that are equal but for sizes call one kernel with these sizes."""
        if isinstance(self.source, Source):
            return
        places = self.source.share_sizes()
        for call in calls:
            if isinstance(call.what, int) and not call.on_host:
                place = places[call.what]
                call.what, call.ints = place.kernel, (*call.ints, *place.sizes)

    def _device_facts(self, calls: list[_Call]) -> dict[str, Any]:
        if self.device.type == "cpu":
            return {}
        aligned = (self.numbers[b] for b in self.aligned)
        return {"device": str(self.device), "aligned": tuple(sorted(aligned))}

    def _extern_call(self, what: ExternKernel) -> _Call:
        outs = [o.name for o in what.outputs if o is not None]
        call = _Call(what, [*extern_reads(what), *outs, *sorted(self.held.get(id(what), ()))])
        if str(what.target) in INTO_MEMORY and any(map(self._on_host, outs)):
            raise Unsupported(f"{what.target} on the CPU in a graph on a GPU")
        if str(what.target) in INTO_MEMORY and all(self._dense(o) for o in outs):
            call.makes = outs
        return call

    def _dense(self, name: str) -> bool:
        layout = self.layouts[name]
        return layout == Layout.contiguous(layout.device, layout.dtype, layout.size)

    def _emit(self, call: _Call) -> None:
        if call.what is None:
            return
        if isinstance(call.what, int):
            self.origins.append(origin_of(call.groups, self.captured))
        if isinstance(call.what, int) and not call.on_host:
            x, y, z = (*call.grid, 1, 1)[:3]
            bufs = tuple(self.number(b) for b in call.touches)
            self.steps.append(spec.Launch(call.what, bufs, (x, y, z), self._ints(call), call.by_value))
            return
        if isinstance(call.what, int):
            bufs = tuple(self.number(b) for b in call.touches)
            self.steps.append(KernelCall(call.what, bufs, self._ints(call)))
            return
        kernel = call.what
        args = tuple(self._argument(a) for a in kernel.args)
        kwargs = tuple((k, self._argument(v)) for k, v in kernel.kwargs.items())
        outs = tuple(-1 if o is None else self.number(o.name) for o in kernel.outputs)
        if call.makes:
            self.steps.append(Extern(INTO_MEMORY[str(kernel.target)], args, kwargs, outs, ("out",)))
        else:
            results = tuple(map(self._result, kernel.outputs))
            self.steps.append(Extern(str(kernel.target), args, kwargs, outs, results=results))

    @staticmethod
    def _result(out: Buffer | None) -> ResultSpec | None:
        # 0-d results are not checked: only ATen calls read them, and some are on the CPU though the fake tensor is not
        if out is None or not out.layout.size:
            return None
        return ResultSpec(dtype_name(out.dtype), out.layout.size, out.layout.stride)

    @staticmethod
    def _ints(call: _Call) -> tuple[Any, ...]:
        return tuple([named(x) if isinstance(x, str) else x for x in call.ints])

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._argument(v) for v in value)
        if isinstance(value, View):
            return BufRef(self._view(value.buffer, value.layout))
        return BufRef(self.number(value.name)) if isinstance(value, Buffer) else value

    def _kernel_names(self) -> tuple[str, ...]:
        hosts = [] if isinstance(self.source, Source) else self.source.host.names
        return (*self.source.names, *hosts)

    def _numbered(self, step: Step) -> Step:
        """In a plan for a GPU, a kernel of the CPU gets its number behind all kernels of the GPU."""
        if isinstance(step, KernelCall) and not isinstance(self.source, Source):
            return replace(step, kernel=step.kernel + len(self.source.names))
        return step

    # ---- memory

    def _on_host(self, name: str) -> bool:
        """Whether a buffer is on the CPU, in a plan for a GPU."""
        return self.layouts[name].device != self.device

    def _memory(self, name: str, offsets: dict[str, int]) -> Step:
        layout = self.layouts[name]
        if name in offsets:
            number, host = self.number(name), self._on_host(name)
            return Slot(number, offsets[name], self.dtypes[name], layout.size, layout.stride, host)
        device = str(layout.device) if self._on_host(name) else ""
        return Alloc(self.number(name), self.dtypes[name], layout.size, layout.stride, device)

    def _lives_apart(self, name: str) -> bool:
        return self.apart and hint(self._nbytes(name)) >= APART_BYTES

    def _nbytes(self, name: str) -> AnySize:
        layout = self.layouts[name]
        return layout.extent * layout.dtype.itemsize

    def _view(self, buffer: Buffer, layout: Layout) -> int:
        """The number of a view; emits the View step if there is none yet."""
        views = self.views.setdefault(buffer.name, {})
        if layout not in views:
            # Every View step gets a new number, since each buffer is created by exactly one step.
            number = views[layout] = self.number(f"%view{len(self.numbers)}")
            self.steps.append(spec.View(number, self.number(buffer.name), layout.size, layout.stride,
                                        layout.offset - buffer.layout.offset, self.dtypes[buffer.name]))
        return views[layout]

    def _free(self, names: list[str]) -> None:
        """Emits Free steps for these buffers and their views, unless they are results or inputs to be kept."""
        for name in names:
            kept = name in self.given and name not in self.released
            if name in self.escapes or kept or name in (STATUS, COUNTERS) or name in self.kept:
                continue
            self.steps += [Free(number) for number in self.views.pop(name, {}).values()]
            self.steps.append(Free(self.number(name)))

    # ---- the ends

    def _input(self, buffer: Any) -> InputSpec:
        if not isinstance(buffer, Buffer):
            return InputSpec("int")
        if isinstance(buffer, InputBuffer) and buffer.opaque:
            return InputSpec("opaque")
        # Seeds that attention saves for its backward are on the CPU, although their fake tensors are not.
        passed = buffer.layout.size == () and buffer.layout.dtype == torch.int64 and buffer.name not in self.in_kernels
        elsewhere = "" if buffer.layout.device == self.device else str(buffer.layout.device)
        unused = buffer.name not in self.used and buffer.layout.device.type != "cpu"
        device = spec.ANY_DEVICE if passed or unused else elsewhere
        return InputSpec("tensor", self.dtypes[buffer.name], buffer.layout.size, buffer.layout.stride, device)

    def _output(self, out: BufferView | float | None, viewed: bool) -> OutputRef:
        if not isinstance(out, BufferView):
            return OutputRef("const", out)
        if viewed:
            self.views.get(out.buffer.name, {}).pop(out.layout, None)  # so that this result gets a new view
        if viewed or out.layout != out.buffer.layout:
            return OutputRef("buf", self._view(out.buffer, out.layout))
        if isinstance(out.buffer, InputBuffer):
            return OutputRef("input", self.numbers[out.buffer.name])
        return OutputRef("buf", self.number(out.buffer.name))


def _lifetimes(calls: list[_Call]) -> tuple[dict[str, int], dict[str, int]]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, call in enumerate(calls):
        for name in call.touches:
            first.setdefault(name, at)
            last[name] = at
    return first, last
