"""What turning an artifact into a callable takes besides its graph: its kernels, and what is put around its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .artifact import Artifact
from .autocast import is_autocast_enabled, without_autocast
from .cudagraphs.automatic import recorded_if_host_bound
from .cudagraphs.recorder import recorded
from .runtime.cpp_build import Vanished, build_all, kernel_addresses
from .runtime.cuda import load_cubins
from .runtime.plan_spec import PlanSpec
from .runtime.processes import Processes
from .runtime.related_results import related

_LOADS = 3  # attempts to load kernels that other processes may remove meanwhile


def build_kernels(artifact: Artifact, processes: Processes | None = None) -> list[Any]:
    """Build and load the kernels. `processes`: the group of processes in which the C++ compilers run."""
    if not artifact.sources:
        return []
    if artifact.spec.device == "cpu":
        return _addresses(artifact.sources, artifact.spec.kernel_names, processes)
    texts = [source for source in artifact.sources if isinstance(source, str)]
    kernels = [source for source in artifact.sources if not isinstance(source, str)]
    cubins = load_cubins(kernels, torch.device(artifact.spec.device)) if kernels else []
    return [*cubins, *(_addresses(texts, artifact.spec.kernel_names[len(kernels) :], processes) if texts else ())]


def _addresses(sources: Sequence[str], names: Sequence[str], processes: Processes | None) -> list[Any]:
    for _ in range(_LOADS - 1):
        try:
            return list(kernel_addresses(build_all(sources, processes=processes), names))
        except Vanished:  # another process trimmed the cache between building and loading
            continue
    return list(kernel_addresses(build_all(sources, processes=processes), names))


def around_plan(
    plan: Callable[..., Any], artifact: Artifact, spec: PlanSpec, kernels: Sequence[Any],
    attributes: Sequence[torch.Tensor] = (), refused: Callable[[str], None] | None = None, unasked: bool = False,
) -> Callable[..., Any]:
    """The callable of an artifact whose plan runs `spec` with these kernels and attributes. With `refused`, calls on a
    GPU are recorded as CUDA graphs, and it is called with the reason if they are not. `unasked`: they are recorded if
    the host slows them down."""
    form = artifact.form or "list"
    if refused is not None:
        plan = recorded(plan, spec, kernels, attributes, form, refused)
    elif unasked:
        plan = recorded_if_host_bound(plan, spec, kernels, attributes, form)
    if artifact.related:
        plan = related(plan, form, artifact.related, attributes)
    if artifact.structure is not None:
        plan = _unflattened(plan, artifact.structure)
    return without_autocast(plan) if is_autocast_enabled() else plan


def _unflattened(plan: Callable[..., Any], structure: pytree.TreeSpec) -> Callable[..., Any]:
    return lambda *args: pytree.tree_unflatten(plan(*args), structure)
