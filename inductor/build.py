"""Turns an artifact and its graph into a callable: builds and loads its kernels, and makes the plan that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .aot.functionalize import attributes_of
from .aot.input_fallback import AlignedRetry
from .artifact import Artifact
from .assembly import around_plan, build_kernels
from .compile_report import CompileReport
from .cudagraphs.recorder import recorded
from .eager.operator_errors import run_with_aten
from .fx_utils.places import label_of, places_in
from .log.stages import count
from .process.compile_lock import without_lock
from .runtime.plan import make_plan
from .runtime.plan_spec import Extern, PlanSpec


def build(artifact: Artifact, report: CompileReport) -> list[Any]:
    """Build the kernels; returns what `make_plan` takes as kernels."""
    with report.phase("build"):
        addresses = without_lock(lambda: build_kernels(artifact))
    count_kernels(artifact, report)
    return addresses


def count_kernels(artifact: Artifact, report: CompileReport) -> None:
    """Tell the report of the kernels and ATen calls of an artifact."""
    if report.artifacts is not None:
        report.artifacts.append(artifact)
    report.kernels += len(artifact.spec.kernel_names)
    count("kernels", len(artifact.spec.kernel_names))
    report.externs += sum(isinstance(step, Extern) for step in artifact.spec.steps)


def make_callable(
    gm: fx.GraphModule, artifact: Artifact, spec: PlanSpec, addresses: list[Any], report: CompileReport | None = None,
    unasked: bool = False, constants: Sequence[torch.Tensor] = (),
) -> Callable[..., Any]:
    """The callable that takes the place of `gm`. `spec`: the artifact's plan, or the one for certain sizes. With a
    `report`, calls on a GPU are recorded as CUDA graphs, and the report says why if they are not. `unasked`: they are
    recorded if the host slows them down. `constants`: those of a frozen graph."""
    attributes = (*(value for _, value in attributes_of(gm)), *constants)
    plan = make_plan(
        spec, addresses, attributes, artifact.form or "list", fallback=run_with_aten(gm), label=label_of(gm),
        places=places_in(gm),
    )
    refused = None if report is None else report.not_recorded.append
    return around_plan(plan, artifact, spec, addresses, attributes, refused, unasked)


def make_half(
    spec: PlanSpec, addresses: list[Any], label: str | None = None, report: CompileReport | None = None,
    places: Callable[[Sequence[int]], str] | None = None,
) -> Callable[..., Any]:
    """The plan of a forward or a backward. Inputs that are not aligned as the kernels expect are copied first.
    `report`: as for `make_callable`; `label` and `places`: as for `make_plan`."""
    otherwise = AlignedRetry(spec)
    otherwise.plan = make_plan(spec, addresses, form="list", fallback=otherwise, label=label, places=places)
    if report is None:
        return otherwise.plan
    return recorded(otherwise.plan, spec, addresses, (), "list", report.not_recorded.append)
