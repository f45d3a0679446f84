"""Compiles parts of a graph once more, without the cache, to find where the compiled graph differs from ATen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..aot.decompositions import decompositions
from ..aot.functionalize import attributes_of, records_gradients, to_aten
from ..aot.joint import to_joint
from ..aot.partition import partition
from ..aot.random import seeded
from ..aot.training_decompositions import training_decompositions
from ..build import build, make_half
from ..compile_report import CompileReport
from ..dynamic.dispatch import without_numbers
from ..generate import generate_half
from ..passes import run_joint_passes, run_passes
from ..runtime.plan_spec import Extern, KernelCall, Launch, PlanSpec, View
from .compare import copies, weights


def aten_graphs(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[tuple[fx.GraphModule, list[Any]]]:
    """The ATen graphs that `gm` is compiled to (forward and, if any, backward), with inputs for each."""
    gm, inputs = without_numbers(gm, inputs)
    attributes = [value for _, value in attributes_of(gm)]
    if not records_gradients(gm, inputs):
        aten = to_aten(gm, inputs, decompositions())
        seeded(aten.graph)
        return [(run_passes(aten.graph, aten.shared), [*inputs, *attributes])]
    joint = to_joint(gm, inputs, training_decompositions())
    seeded(joint.graph)
    run_joint_passes(joint.graph)
    halves = partition(joint)
    primals = [x.detach() for x in (*inputs, *joint.attributes)]
    run = fx.Interpreter(halves.forward, garbage_collect_values=False)
    with torch.no_grad():
        run.run(*copies(primals))
    named = {node.name: value for node, value in run.env.items()}
    wanted = halves.backward.graph.find_nodes(op="placeholder")
    given = [named[x.name] if x.name in named else weights(x.meta["val"]) for x in wanted]
    return [(halves.forward, primals), (halves.backward, given)]


def compile_aten(graph: fx.GraphModule) -> tuple[Callable[..., Any], list[str | None]]:
    """Compile an ATen graph that returns a list; also returns the name of the kernel that writes each result."""
    report = CompileReport()
    artifact = generate_half(graph, report, None)
    return make_half(artifact.spec, build(artifact, report)), writers(artifact.spec)


def writers(spec: PlanSpec) -> list[str | None]:
    """The name of the kernel that writes each result of a plan; None for results that ATen computes."""
    base: dict[int, int] = {}
    writer: dict[int, str | None] = {}
    for step in spec.steps:
        if isinstance(step, View):
            base[step.buf] = step.base
        elif isinstance(step, KernelCall | Launch):
            for buf in step.bufs:  # the first kernel that uses a buffer writes it
                writer.setdefault(buf, spec.kernel_names[step.kernel])
        elif isinstance(step, Extern):
            writer.update(dict.fromkeys(step.outs, None))
    found = []
    for ref in spec.outputs:
        at = ref.value if ref.kind in ("buf", "view") else -1
        while at in base:
            at = base[at]
        found.append(writer.get(at))
    return found
