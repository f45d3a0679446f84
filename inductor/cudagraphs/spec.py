"""Derives from a plan the one that is recorded, and where each result of a call is.

The recorded plan computes the same, but takes the memory of its results as additional inputs instead of allocating it,
so that this memory is not in the pool that recordings share. Results of ATen calls are returned, to be copied to such
memory within the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..runtime.aten import map_refs
from ..runtime.plan_spec import Alloc, BufRef, Extern, Free, InputSpec, OutputRef, PlanSpec, Step, View
from .refusal import NotCapturable, without_dropout

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """A result that is the same in every call."""

    value: Any


@dataclass(frozen=True)
class Argument:
    """A result that is input number `index` itself."""

    index: int


@dataclass(frozen=True)
class ArgumentView:
    """A result in the memory of an input, `offset` elements after its first. `tracked`: autograd knows it as a view."""

    index: int
    size: Shape
    stride: Shape
    offset: int
    tracked: bool


@dataclass(frozen=True)
class Owned:
    """A result in memory number `memory` of the recording, `offset` elements after its first. The size is None for all
    of that memory."""

    memory: int
    size: Shape | None
    stride: Shape
    offset: int


Result = Constant | Argument | ArgumentView | Owned


@dataclass(frozen=True)
class Memory:
    """A buffer that leaves the call. `returned`: it is the result of an ATen call. dtype "": only a call shows it.

    `seed`: a 0-d result of an attention operator without dropout, where it is and what it holds has no meaning.
    """

    dtype: str
    size: Shape
    stride: Shape
    returned: bool
    seed: bool = False


@dataclass(frozen=True)
class RecordedSpec:
    """`spec` takes the inputs of the original plan (those bound to it included), then the `taken` memories that it
    writes; it returns a list of the others. `results` are those of the original plan."""

    spec: PlanSpec
    results: tuple[Result, ...]
    memories: tuple[Memory, ...]
    taken: int


def recorded_spec(spec: PlanSpec) -> RecordedSpec:
    """The plan to record in place of `spec`. NotCapturable if a result is in memory that has no rule here."""
    layout = _Results(spec)
    results = tuple(map(layout.result, spec.outputs))
    allocated = [buf for buf in layout.bases if isinstance(layout.makers[buf], Alloc)]
    returned = [buf for buf in layout.bases if not isinstance(layout.makers[buf], Alloc)]
    order = {buf: k for k, buf in enumerate((*allocated, *returned))}
    results = tuple(replace(r, memory=order[r.memory]) if isinstance(r, Owned) else r for r in results)
    count, more = len(spec.inputs), len(allocated)
    number = {buf: count + k for k, buf in enumerate(allocated)}

    def renumbered(buf: int) -> int:
        return buf if buf < count else number[buf] if buf in number else buf + more

    kept = [step for step in spec.steps if not (isinstance(step, Alloc) and step.buf in number)]
    memories = tuple(map(layout.memory, (*allocated, *returned)))
    changed = replace(
        spec,
        inputs=(*spec.inputs, *(InputSpec("tensor", m.dtype, m.size, m.stride) for m in memories[:more])),
        steps=tuple(_renumbered(step, renumbered) for step in kept),
        outputs=tuple(OutputRef("buf", renumbered(buf)) for buf in returned),
        mutated=(),
        uncounted=(),
    )
    return RecordedSpec(changed, results, memories, more)


class _Results:
    """Follows the results of a plan through views to the buffers (`bases`) whose memory they are in."""

    def __init__(self, spec: PlanSpec) -> None:
        self.spec, self.bases = spec, dict[int, None]()
        self.makers: dict[int, Step] = {}
        for step in spec.steps:
            made: tuple[int, ...] = ()
            if isinstance(step, Extern):
                made = () if step.out else tuple(buf for buf in step.outs if buf >= 0)
            elif not isinstance(step, Free) and hasattr(step, "buf"):
                made = (step.buf,)
            self.makers.update(dict.fromkeys(made, step))

    def result(self, ref: OutputRef) -> Result:
        if ref.kind == "const":
            return Constant(ref.value)
        if ref.kind == "input":
            return Argument(ref.value)
        base, offset = ref.value, 0
        size: Shape | None = None
        stride: Shape = ()
        while isinstance(maker := self.makers.get(base), View):
            if size is None:
                size, stride = maker.size, maker.stride
            base, offset = maker.base, offset + maker.offset
        if base < len(self.spec.inputs):
            if size is None:
                return Argument(base)
            return ArgumentView(base, size, stride, offset, ref.kind == "view")
        if not isinstance(maker, Alloc | Extern):
            raise NotCapturable("a result is neither allocated by the plan nor by an operator")
        self.bases[base] = None
        return Owned(base, size, stride, offset)

    def memory(self, buf: int) -> Memory:
        maker = self.makers[buf]
        if isinstance(maker, Alloc):
            return Memory(maker.dtype, maker.size, maker.stride, False)
        assert isinstance(maker, Extern)
        result = maker.results[maker.outs.index(buf)] if maker.results else None
        if result is None:  # 0-d, see codegen
            return Memory("", (), (), True, without_dropout(maker))
        return Memory(result.dtype, result.size, result.stride, True)


def _renumbered(step: Step, number: Callable[[int], int]) -> Step:
    if isinstance(step, Extern):
        def convert(ref: BufRef) -> BufRef:
            return BufRef(number(ref.buf))

        outs = tuple(number(buf) if buf >= 0 else buf for buf in step.outs)
        kwargs = tuple((name, map_refs(value, convert)) for name, value in step.kwargs)
        return replace(step, args=tuple(map_refs(arg, convert) for arg in step.args), kwargs=kwargs, outs=outs)
    changes: Mapping[str, Any] = {}
    if isinstance(step, View):
        changes = {"buf": number(step.buf), "base": number(step.base)}
    elif hasattr(step, "bufs"):
        changes = {"bufs": tuple(map(number, step.bufs))}
    elif hasattr(step, "buf"):
        changes = {"buf": number(step.buf)}
    return replace(step, **changes) if changes else step


