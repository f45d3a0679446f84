"""A compiled graph as data, and the callable made of it in another process.

`kept` describes a graph without gradients that was compiled as a whole, for one combination of sizes, by its entry in
the disk cache. `loaded` makes the callable that compiling the graph again would make, without a graph: it is
rebuilt only if a call runs it with ATen, because an input is not aligned or to measure which is faster.

`kept_nodes` describes any other graph by its nodes alone. `rebuilt` makes the graph, which is then compiled as if it
had been captured now, so the compiler is imported; what it compiles it finds in the disk cache.

A graph on a GPU serves a process that sees the same GPUs: block sizes, what was measured and what an operator is
decomposed to depend on them. Its kernels are found by their source, so they fit the versions of this process.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .artifact import Artifact, load
from .assembly import around_plan, build_kernels
from .cache.file_store import shared_cache
from .cache.graph_data import NotData, graph_as_data, graph_of
from .cache.process_key import gpus_present
from .compile_report import CacheEntry, CompileReport
from .fastest.trial import Contest, Original, is_wanted, result_bytes
from .fx_utils.places import joined_places, label_of, node_place
from .log.stages import count
from .process.compile_lock import without_lock
from .runtime.plan import make_plan


@dataclass(frozen=True, slots=True)
class KeptGraph:
    """A compiled graph as plain data. `key`: of its artifact in the disk cache; `nodes`: the graph, which `graph_data`
    reads; `label`, `places`: what profiles and errors tell of the graph and of each node; `measure`, `cudagraphs`: the
    options; `result_bytes`: as in `Original`; `gpus`: as of `gpus_of`."""

    key: str
    nodes: bytes
    label: str
    places: tuple[str, ...]
    measure: bool | None
    cudagraphs: bool | None
    result_bytes: int
    gpus: str


def kept(entry: CacheEntry, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The fields of a KeptGraph for a compiled graph and inputs like these. NotData, which says why, if it cannot be
    loaded again."""
    gpus = gpus_of(entry.gm, inputs)
    if [*entry.gm.named_parameters(), *entry.gm.named_buffers()]:
        raise NotData("a graph with tensors of its own")
    if shared_cache().get_file(entry.key, ".graph") is None:
        raise NotData("a graph that the cache cannot store")
    artifact = entry.artifact or load(entry.key, Artifact, CompileReport())
    if artifact is None or artifact.program is not None or artifact.fold is not None:
        raise NotData("a graph that the cache cannot store as it is")
    nodes = marshal.dumps(graph_as_data(entry.gm))
    places = tuple(map(node_place, entry.gm.graph.nodes))
    options, bytes_ = (entry.measure, entry.cudagraphs), result_bytes(entry.gm)
    return astuple(KeptGraph(entry.key, nodes, label_of(entry.gm), places, *options, bytes_, gpus))


def kept_nodes(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The nodes of a graph as data, for inputs like these. NotData, which says why, if it has other parts."""
    gpus = gpus_of(gm, inputs)
    if not all(issubclass(type(x), torch.Tensor) for x in inputs):
        raise NotData("a graph that takes numbers")
    return marshal.dumps(graph_as_data(gm)), gpus


def rebuilt(data: tuple[Any, ...]) -> fx.GraphModule | None:
    """The graph of what `kept_nodes` returned; None if this process sees other GPUs."""
    nodes, gpus = data
    return graph_of(marshal.loads(nodes)) if are_present(gpus) else None


def gpus_of(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The GPUs of this process, if a graph with these inputs is on one of them; "" if it is on the CPU. NotData for
    other devices."""
    values = [*inputs, *(x for node in gm.graph.nodes for x in pytree.tree_leaves(node.meta.get("val")))]
    kinds = {x.device.type for x in values if issubclass(type(x), torch.Tensor)}
    if other := sorted(kinds.difference(("cpu", "cuda"))):
        raise NotData(f"a graph on a device of type {other[0]}")
    return gpus_present() if "cuda" in kinds else ""


def are_present(gpus: str) -> bool:
    """Whether this process sees the GPUs that `gpus_of` returned. CUDA is then initialized, if they are any, as it was
    when the graph was captured: keys of graphs depend on it."""
    return not gpus or gpus == gpus_present()


def loaded(data: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The callable of a compiled graph; None if the disk cache has it no more, or if this process sees other GPUs."""
    graph = KeptGraph(*data)
    if not are_present(graph.gpus):
        return None
    rebuilt = _Rebuilt(graph.nodes)
    contest = _contest(graph, rebuilt)
    if contest is not None and (aten := contest.kept_aten({})) is not None:
        return aten
    report = CompileReport()
    artifact = load(graph.key, Artifact, report)
    if artifact is None:
        return None
    kernels = without_lock(lambda: build_kernels(artifact))
    plan = make_plan(
        artifact.spec, kernels, form=artifact.form or "list", fallback=rebuilt, label=graph.label,
        places=lambda numbers: joined_places(graph.places[n] for n in numbers if n < len(graph.places)),
    )
    refused = report.not_recorded.append if graph.cudagraphs else None
    call = around_plan(plan, artifact, artifact.spec, kernels, (), refused, graph.cudagraphs is None)
    count("kernels", len(artifact.spec.kernel_names))
    return call if contest is None else contest.between(call, artifact.spec, {})


def _contest(graph: KeptGraph, rebuilt: _Rebuilt) -> Contest | None:
    """What measures the compiled graph against ATen, as it would if the graph was compiled now."""
    if not is_wanted(graph.measure):
        return None
    return Contest(Original(lambda: rebuilt.run, lambda: graph.result_bytes), graph.key, CompileReport())


class _Rebuilt:
    """Runs a graph with ATen. The graph is rebuilt at the first call that needs it."""

    def __init__(self, nodes: bytes) -> None:
        self._nodes = nodes
        self._run: Callable[..., Any] | None = None

    @property
    def run(self) -> Callable[..., Any]:
        if self._run is None:
            from .eager.operator_errors import run_with_aten  # deferred: few calls need it

            self._run = run_with_aten(self._graph())
        return self._run

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def _graph(self) -> fx.GraphModule:
        return graph_of(marshal.loads(self._nodes))
