"""Constants of a package that are computed when it is made, for the option `freezing`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from ..artifact import Artifact
from ..runtime.aten import map_refs
from ..runtime.plan_spec import BufRef, Extern, Free, InputSpec, KernelCall, Launch, PlanSpec, View

Named = tuple[str, torch.Tensor]


def folded(
    artifact: Artifact, arguments: int, given: Sequence[Named], returned: Collection[int]
) -> tuple[PlanSpec, list[Named], list[tuple[int, Extern]]]:
    """The plan of an artifact, the constants that are its inputs behind the `arguments`, and which of them an operator
    has to lay out when the package is loaded: their places, and the calls, whose buffer 0 is the constant.

    What `given` constants the plan does not read any more are empty and have no name, but for those at the places
    `returned`, which are results of the function.
    """
    spec, fold = artifact.spec, artifact.fold
    if fold is None:
        return spec, list(given), []
    constants = [x for _, x in given]
    buffers = fold.buffers([constants[i - arguments] for i in fold.inputs])
    made_by = {buf: step for step in fold.steps for buf in step.outs}
    new: list[Named] = []
    packed: list[tuple[int, Extern]] = []
    for k, buf in enumerate(fold.results):
        value, step = buffers[buf], made_by[buf]
        if value.layout is not torch.strided:
            first, *rest = step.args
            packed.append((len(given) + k, replace(step, args=(BufRef(0), *rest), outs=(1,))))
            value = buffers[first.buf]
        new.append((f"folded {k}", value))
    read, inputs, kept = _read(spec), list(spec.inputs), list(given)
    for k in range(len(given)):
        if arguments + k not in read and k not in returned:
            inputs[arguments + k] = InputSpec("opaque", device=inputs[arguments + k].device)
            kept[k] = ("", _NOTHING)
    for k, (_, value) in enumerate(new):
        assert inputs[arguments + len(given) + k].kind == "opaque" or value.layout is torch.strided
    return replace(spec, inputs=tuple(inputs)), [*kept, *new], packed


_NOTHING = torch.empty(0)


def _read(spec: PlanSpec) -> set[int]:
    """The buffers that a plan reads, writes or returns."""
    found: set[int] = {ref.value for ref in spec.outputs} | set(spec.mutated)
    for step in spec.steps:
        if isinstance(step, KernelCall | Launch):
            found.update(step.bufs)
        elif isinstance(step, View):
            found.add(step.base)
        elif isinstance(step, Extern):
            for value in (*step.args, *(value for _, value in step.kwargs)):
                map_refs(value, lambda ref: found.add(ref.buf))
            found.update(step.outs)
        elif not isinstance(step, Free) and hasattr(step, "buf"):
            found.add(step.buf)
    return found
