"""Groups and extern kernels to a PlanSpec: buffer numbers, memory, steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.buffer import Buffer, ExternKernel, InputBuffer, Layout, View
from ..ir.nodes import GraphIR, Strided
from ..runtime import plan_spec as spec
from ..runtime.plan_spec import Alloc, BufRef, Extern, Free, InputSpec, KernelCall, OutputRef, PlanSpec, Slot, Step
from ..schedule.memory import Range, plan_arena
from ..schedule.node import Group
from ..schedule.scheduler import extern_reads, output_names
from .cpp.source import Source
from .values import STATUS, dtype_text

# Operators that write into memory of ours: name -> overload with `out`
INTO_MEMORY = {f"aten.{name}.default": f"aten.{name}.out" for name in ("mm", "addmm", "bmm", "baddbmm")}


def codegen(groups: Sequence[Group | ExternKernel], graph: GraphIR) -> tuple[Source, PlanSpec]:
    """The source of all kernels and the plan that calls them.

    Unsupported if a group uses an op or dtype that code generation lacks.
    """
    return _Planner(groups, graph).run()


@dataclass
class _Call:
    """A kernel (by number) or an extern: the buffers it touches, and those it makes in memory of ours."""

    what: int | ExternKernel
    touches: list[str]
    makes: list[str] = field(default_factory=list)


class _Planner:
    def __init__(self, groups: Sequence[Group | ExternKernel], graph: GraphIR) -> None:
        self.groups, self.graph = groups, graph
        self.layouts: dict[str, Layout] = {}
        self.numbers: dict[str, int] = {}
        for position, buffer in enumerate(graph.inputs):
            name = buffer.name if isinstance(buffer, Buffer) else f"%int{position}"
            self.numbers[name] = position
        self.tensors = {b.name: b for b in graph.inputs if isinstance(b, Buffer)}
        for buffer in graph.constants:
            self.numbers[buffer.name] = len(self.numbers)
            self.tensors[buffer.name] = buffer
        self.given = set(self.numbers)
        for node in graph.buffers:
            outs = node.outputs if isinstance(node, ExternKernel) else (node,)
            self.tensors |= {b.name: b for b in outs if b is not None}
        self.layouts = {n: b.layout for n, b in self.tensors.items()}
        self.dtypes = {n: dtype_text(b.dtype) for n, b in self.tensors.items()}
        self.escapes = output_names(graph)
        self.source = Source()
        self.steps: list[Step] = []
        self.views: dict[tuple[str, Layout], int] = {}

    def number(self, name: str) -> int:
        """The plan's number of a buffer, new at first use."""
        return self.numbers.setdefault(name, len(self.numbers))

    def run(self) -> tuple[Source, PlanSpec]:
        calls = [self._plan_call(what) for what in self.groups]
        first, last = _lifetimes(calls)
        slots = sorted({b for c in calls for b in c.makes} - self.escapes)
        offsets, nbytes = plan_arena([Range(b, self._nbytes(b), first[b], last[b]) for b in slots])
        if any(STATUS in c.touches for c in calls):
            self.steps.append(spec.Status(self.number(STATUS)))
        if offsets:
            self.steps.append(spec.Arena(nbytes))
        made: set[str] = set()
        for at, call in enumerate(calls):
            for name in call.makes:
                if name not in made:
                    made.add(name)
                    self.steps.append(self._memory(name, offsets))
            self._emit(call)
            self._free([b for b in dict.fromkeys(call.touches) if last[b] == at and b not in offsets])
        outputs = tuple(self._output(o) for o in self.graph.outputs)
        mutated = {self.numbers[n.mutates] for n in self.graph.buffers if getattr(n, "mutates", None)}
        return self.source, PlanSpec(
            tuple(map(self._input, self.graph.inputs)), tuple(b.value for b in self.graph.constants),
            tuple(self.steps), outputs, tuple(self.source.names), tuple(sorted(mutated)),
        )

    # ---- what is called

    def _plan_call(self, what: Group | ExternKernel) -> _Call:
        if isinstance(what, Group):
            number, bufs = self.source.kernel(what, self.dtypes)
            return _Call(number, bufs, [b for b in bufs if b in what.stored and b not in self.given])
        outs = [o.name for o in what.outputs if o is not None]
        call = _Call(what, [*extern_reads(what), *outs])
        if str(what.target) in INTO_MEMORY and all(self._dense(o) for o in outs):
            call.makes = outs
        return call

    def _dense(self, name: str) -> bool:
        layout = self.layouts[name]
        return layout == Layout.contiguous(layout.device, layout.dtype, layout.size)

    def _emit(self, call: _Call) -> None:
        if isinstance(call.what, int):
            self.steps.append(KernelCall(call.what, tuple(self.number(b) for b in call.touches)))
            return
        kernel = call.what
        args = tuple(self._argument(a) for a in kernel.args)
        kwargs = tuple((k, self._argument(v)) for k, v in kernel.kwargs.items())
        outs = tuple(-1 if o is None else self.number(o.name) for o in kernel.outputs)
        if call.makes:
            self.steps.append(Extern(INTO_MEMORY[str(kernel.target)], args, kwargs, outs, ("out",)))
        else:
            self.steps.append(Extern(str(kernel.target), args, kwargs, outs))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._argument(v) for v in value)
        if isinstance(value, View):
            return BufRef(self._view(value.buffer, value.layout))
        return BufRef(self.number(value.name)) if isinstance(value, Buffer) else value

    # ---- memory

    def _memory(self, name: str, offsets: dict[str, int]) -> Step:
        layout = self.layouts[name]
        if name in offsets:
            return Slot(self.number(name), offsets[name], self.dtypes[name], layout.size, layout.stride)
        return Alloc(self.number(name), self.dtypes[name], layout.size, layout.stride)

    def _nbytes(self, name: str) -> int:
        layout = self.layouts[name]
        return layout.extent * layout.dtype.itemsize

    def _view(self, buffer: Buffer, layout: Layout) -> int:
        """The number of a view, made here if it was not made before."""
        key = (buffer.name, layout)
        if key not in self.views:
            # a number of its own each time: one step makes one buffer
            number = self.views[key] = self.number(f"%view{len(self.numbers)}")
            self.steps.append(spec.View(number, self.number(buffer.name), layout.size, layout.stride,
                                        layout.offset - buffer.layout.offset, self.dtypes[buffer.name]))
        return self.views[key]

    def _free(self, names: list[str]) -> None:
        """Nobody reads these any more; their views go with them."""
        for name in names:
            if name in self.escapes or name in self.given or name == STATUS:
                continue
            for key in [k for k in self.views if k[0] == name]:
                self.steps.append(Free(self.views.pop(key)))
            self.steps.append(Free(self.number(name)))

    # ---- the ends

    def _input(self, buffer: Any) -> InputSpec:
        if not isinstance(buffer, Buffer):
            return InputSpec("int")
        return InputSpec("tensor", self.dtypes[buffer.name], buffer.layout.size, buffer.layout.stride)

    def _output(self, out: Strided | int | None) -> OutputRef:
        if not isinstance(out, Strided):
            return OutputRef("const", out)
        if out.layout != out.buffer.layout:
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
