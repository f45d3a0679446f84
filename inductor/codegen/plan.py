"""Groups and extern kernels to a PlanSpec: buffer numbers, memory, steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runtime.plan_spec import (
    Alloc,
    Arena,
    BufRef,
    Extern,
    Free,
    InputSpec,
    KernelCall,
    OutputRef,
    PlanSpec,
    Slot,
    Step,
)
from ..schedule.memory import Range, plan_arena
from ..schedule.node import Group
from ..schedule.scheduler import output_names
from .cpp.source import Source
from .values import dtype_text


def codegen(groups: Sequence[Group | Any], graph: Any) -> tuple[str, PlanSpec]:
    """The C++ source of all kernels and the plan that calls them.

    `graph` has `inputs` and `buffers` (name, layout), `constants` (name -> tensor) and `outputs`.
    Unsupported if a group uses an op or dtype that C++ generation lacks.
    """
    return _Planner(groups, graph).run()


class _Planner:
    def __init__(self, groups: Sequence[Group | Any], graph: Any) -> None:
        self.groups, self.graph = groups, graph
        self.layouts = {b.name: b.layout for b in [*graph.inputs, *graph.buffers] if getattr(b, "layout", None)}
        constants: dict[str, Any] = dict(graph.constants)
        self.constants = constants
        self.dtypes = {n: dtype_text(layout.dtype) for n, layout in self.layouts.items()}
        self.dtypes |= {n: dtype_text(t.dtype) for n, t in constants.items()}
        self.numbers = {b.name: i for i, b in enumerate(graph.inputs)}
        for name in constants:
            self.numbers[name] = len(self.numbers)
        self.given = set(self.numbers)
        self.source = Source()

    def number(self, name: str) -> int:
        """The plan's number of a buffer, new at first use."""
        return self.numbers.setdefault(name, len(self.numbers))

    def run(self) -> tuple[str, PlanSpec]:
        outputs = output_names(self.graph)
        calls: list[tuple[list[str], list[str], Any]] = []  # buffers touched, buffers made, kernel number or extern
        for what in self.groups:
            if isinstance(what, Group):
                number, bufs = self.source.kernel(what, self.dtypes)
                made = [b for b in bufs if b in what.stored and b not in self.given]
                calls.append((bufs, made, number))
            else:
                calls.append(([*what.read_names(), what.name], [], what))
        first, last = self._lifetimes(calls)
        slots = {b for _, made, _ in calls for b in made if b not in outputs}
        offsets, nbytes = plan_arena([Range(b, self._nbytes(b), first[b], last[b]) for b in sorted(slots)])
        steps: list[Step] = [Arena(nbytes)] if offsets else []
        defined: set[str] = set()
        for at, (bufs, made, what) in enumerate(calls):
            for b in made:
                if b not in defined:
                    defined.add(b)
                    steps.append(self._memory(b, offsets))
            steps.append(self._call(bufs, what))
            for b in dict.fromkeys(bufs):
                if last[b] == at and b not in outputs and b not in offsets and b not in self.given:
                    steps.append(Free(self.number(b)))
        return self.source.text(), PlanSpec(
            tuple(self._input(b) for b in self.graph.inputs), tuple(self.constants.values()), tuple(steps),
            tuple(self._output(o) for o in self.graph.outputs), tuple(self.source.names),
        )

    def _lifetimes(self, calls: list[tuple[list[str], list[str], Any]]) -> tuple[dict[str, int], dict[str, int]]:
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for at, (bufs, _, _) in enumerate(calls):
            for b in bufs:
                first.setdefault(b, at)
                last[b] = at
        return first, last

    def _memory(self, name: str, offsets: dict[str, int]) -> Step:
        layout = self.layouts[name]
        size, stride = tuple(map(int, layout.size)), tuple(map(int, layout.stride))
        if name in offsets:
            return Slot(self.number(name), offsets[name], self.dtypes[name], size, stride)
        return Alloc(self.number(name), self.dtypes[name], size, stride)

    def _nbytes(self, name: str) -> int:
        layout = self.layouts[name]
        span = 1 + sum((int(s) - 1) * int(t) for s, t in zip(layout.size, layout.stride))
        return max(0, span) * layout.dtype.itemsize

    def _call(self, bufs: list[str], what: Any) -> Step:
        if isinstance(what, int):
            return KernelCall(what, tuple(self.number(b) for b in bufs))
        args = tuple(self._argument(a) for a in what.args)
        kwargs = tuple((k, self._argument(v)) for k, v in dict(what.kwargs).items())
        outs = tuple(self.number(o) for o in getattr(what, "out_names", None) or (what.name,))
        return Extern(what.target, args, kwargs, outs)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._argument(v) for v in value)
        name = getattr(value, "name", None)
        return BufRef(self.number(name)) if isinstance(name, str) and hasattr(value, "layout") else value

    def _input(self, buffer: Any) -> InputSpec:
        layout = buffer.layout
        return InputSpec("tensor", self.dtypes[buffer.name], tuple(map(int, layout.size)),
                         tuple(map(int, layout.stride)))

    def _output(self, out: Any) -> OutputRef:
        name = out if isinstance(out, str) else getattr(out, "name", None)
        if name is None:
            return OutputRef("const", out)
        if self.numbers.get(name, len(self.graph.inputs)) < len(self.graph.inputs):
            return OutputRef("input", self.numbers[name])
        return OutputRef("buf", self.number(name))
