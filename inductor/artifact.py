"""Compiled graphs as data, and the disk cache that stores them.

An artifact holds a plan's steps and the source text of its kernels, but nothing that belongs to this process: `build`
turns it into something that can be called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .budget import left
from .cache import graph_store
from .cache.file_store import shared_cache
from .compile_report import CompileReport
from .log.stages import count, show
from .process.compile_lock import without_lock
from .runtime.plan_spec import PlanSpec, print_plan

if TYPE_CHECKING:  # loading a graph that records no gradients needs none of these
    from torch.utils import _pytree as pytree

    from .aot.backward_stages import Staging
    from .aot.training_spec import TrainingSpec
    from .ir.size import Program
    from .runtime.fold import Fold
    from .runtime.plan import Form
    from .runtime.related_results import Related


@dataclass(frozen=True)
class Artifact:
    """A compiled graph, as the cache stores it. The plan returns its results in `form`, or as leaves of `structure`.

    `sources`: C++ translation units; for a graph on a GPU Triton kernels, and then C++ for what runs on the CPU.
    `program`: for a graph with symbolic sizes, which sizes it is valid for. `related`: steps for `related_results`.
    `not_fused`: as in GraphIR. `fold`: how the constants are computed that are the plan's last inputs.
    """

    spec: PlanSpec
    sources: tuple[Any, ...]
    form: Form | None
    structure: pytree.TreeSpec | None
    program: Program | None = None
    related: tuple[Related, ...] = ()
    not_fused: tuple[str, ...] = ()
    fold: Fold | None = None


@dataclass(frozen=True)
class TrainingArtifact:
    """A compiled forward and backward, as the cache stores them. `program`: as in `Artifact`.

    `backward` has one artifact for each stage of the backward; without `staging` there is one.
    """

    spec: TrainingSpec
    forward: Artifact
    backward: tuple[Artifact, ...]
    program: Program | None = None
    staging: Staging | None = None


_SUFFIX = ".graph"
Kept = TypeVar("Kept", Artifact, TrainingArtifact)


def program_of(artifact: Artifact | TrainingArtifact) -> Program:
    """The sizes for which an artifact with symbolic sizes is valid."""
    assert artifact.program is not None
    return artifact.program


def show_code(artifact: Artifact) -> None:
    """Write the kernels and the plan to the logs of stages."""
    for source in artifact.sources:
        show("code", source if isinstance(source, str) else source.text)
    show("plan", print_plan, artifact.spec)


def load(key: str | None, kind: type[Kept], report: CompileReport) -> Kept | None:
    """The cached artifact for `key`; None if there is none or if `key` is None."""
    data = shared_cache().get(key, _SUFFIX) if key else None
    artifact = None if data is None else graph_store.load(data, kind)
    report.cache = "off" if key is None else "miss" if artifact is None else "hit"
    if key is not None:
        count("cache_misses" if artifact is None else "cache_hits")
    show("cache", lambda: f"graph {key}: {report.cache}")
    return artifact


def is_stored(key: str | None) -> bool:
    """Whether the disk cache has an artifact for `key`."""
    return key is not None and shared_cache().get_file(key, _SUFFIX) is not None


def load_or_make(
    key: str | None, kind: type[Kept], report: CompileReport, make: Callable[[], Kept]
) -> tuple[Kept, bool]:
    """The cached artifact for `key`, and True; or one that is made now and stored, and False. Of several processes that
    need it, such as the ranks of a job, one makes it while the others wait for it, within their budget."""
    with report.phase("cache"):
        artifact = load(key, kind, report)
    if artifact is not None:
        return artifact, True
    if key is None:
        return make(), False
    with contextlib.ExitStack() as stack:
        claim = shared_cache().claimed(key, _SUFFIX, left())
        with report.phase("cache"):
            without_lock(lambda: stack.enter_context(claim))
        if shared_cache().get_file(key, _SUFFIX) is not None:  # another process has made it meanwhile
            artifact = load(key, kind, report)
        if artifact is not None:
            return artifact, True
        artifact = make()
        store(key, artifact, report)
    return artifact, False


def store(key: str | None, artifact: Any, report: CompileReport) -> None:
    """Put an artifact into the cache; nothing if `key` is None."""
    if key is None:
        return
    with report.phase("cache"):
        data = graph_store.dump(artifact)
        if data is not None:
            shared_cache().put(key, data, _SUFFIX)
