"""A compiled graph as data, and the callable made of it in another process. Only graphs on the CPU are kept.

`kept` describes a graph without gradients that was compiled as a whole, for one combination of sizes, by its entry in
the disk cache. `loaded` makes the callable that compiling the graph again would make, without a graph: it is
rebuilt only if a call runs it with ATen, because an input is not aligned or to measure which is faster.

`kept_nodes` describes any other graph by its nodes alone. `rebuilt` makes the graph, which is then compiled as if it
had been captured now, so the compiler is imported; what it compiles it finds in the disk cache.
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
from .autocast import is_autocast_enabled, without_autocast
from .cache.file_store import shared_cache
from .cache.graph_data import NotData, graph_as_data, graph_of
from .compile_report import CacheEntry, CompileReport
from .fastest.trial import Contest, Original, is_wanted, result_bytes
from .fx_utils.places import joined_places, label_of, node_place
from .log.stages import count
from .process.compile_lock import without_lock
from .runtime.cpp_build import Vanished, build_all, kernel_addresses
from .runtime.plan import make_plan
from .runtime.related_results import related

_LOADS = 3  # attempts to load kernels that other processes may remove meanwhile


@dataclass(frozen=True, slots=True)
class KeptGraph:
    """A compiled graph as plain data. `key`: of its artifact in the disk cache; `nodes`: the graph, which `graph_data`
    reads; `label`, `places`: what profiles and errors tell of the graph and of each node; `inputs`: how many there are;
    `measure`: the option; `result_bytes`: as in `Original`."""

    key: str
    nodes: bytes
    label: str
    places: tuple[str, ...]
    inputs: int
    measure: bool | None
    result_bytes: int


def kept(entry: CacheEntry, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The fields of a KeptGraph for a compiled graph and inputs like these. NotData, which says why, if it cannot be
    loaded again."""
    _refuse_gpu(entry.gm, inputs)
    if [*entry.gm.named_parameters(), *entry.gm.named_buffers()]:
        raise NotData("a graph with tensors of its own")
    if shared_cache().get_file(entry.key, ".graph") is None:
        raise NotData("a graph that the cache cannot store")
    artifact = entry.artifact or load(entry.key, Artifact, CompileReport())
    if artifact is None or artifact.program is not None or artifact.fold is not None:
        raise NotData("a graph that the cache cannot store as it is")
    if artifact.spec.device != "cpu":
        raise NotData("a graph on a GPU")
    nodes = marshal.dumps(graph_as_data(entry.gm))
    places = tuple(map(node_place, entry.gm.graph.nodes))
    bytes_ = result_bytes(entry.gm)
    return astuple(KeptGraph(entry.key, nodes, label_of(entry.gm), places, len(inputs), entry.measure, bytes_))


def kept_nodes(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The nodes of a graph as data, for inputs like these. NotData, which says why, if it has other parts."""
    _refuse_gpu(gm, inputs)
    if not all(issubclass(type(x), torch.Tensor) for x in inputs):
        raise NotData("a graph that takes numbers")
    return (marshal.dumps(graph_as_data(gm)),)


def rebuilt(data: tuple[Any, ...]) -> fx.GraphModule:
    """The graph of what `kept_nodes` returned."""
    (nodes,) = data
    return graph_of(marshal.loads(nodes))


def _refuse_gpu(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    values = [*inputs, *(x for node in gm.graph.nodes for x in pytree.tree_leaves(node.meta.get("val")))]
    if any(issubclass(type(x), torch.Tensor) and x.device.type != "cpu" for x in values):
        raise NotData("a graph on a GPU")


def loaded(data: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The callable of a compiled graph; None if the disk cache has it no more."""
    graph = KeptGraph(*data)
    rebuilt = _Rebuilt(graph.nodes)
    contest = _contest(graph, rebuilt)
    if contest is not None and (aten := contest.kept_aten({})) is not None:
        return aten
    report = CompileReport()
    artifact = load(graph.key, Artifact, report)
    if artifact is None:
        return None
    addresses = without_lock(lambda: _kernels(artifact))
    plan = make_plan(
        artifact.spec, addresses, form=artifact.form or "list", fallback=rebuilt, label=graph.label,
        places=lambda numbers: joined_places(graph.places[n] for n in numbers if n < len(graph.places)),
    )
    if artifact.related:
        plan = related(plan, artifact.form or "list", artifact.related, ())
    if artifact.structure is not None:
        plan = _unflattened(plan, artifact.structure)
    call = without_autocast(plan) if is_autocast_enabled() else plan
    count("kernels", len(artifact.spec.kernel_names))
    return call if contest is None else contest.between(call, artifact.spec, {})


def _contest(graph: KeptGraph, rebuilt: _Rebuilt) -> Contest | None:
    """What measures the compiled graph against ATen, as it would if the graph was compiled now."""
    if not is_wanted(graph.measure):
        return None
    return Contest(Original(lambda: rebuilt.run, lambda: graph.result_bytes), graph.key, CompileReport())


def _kernels(artifact: Artifact) -> list[Any]:
    if not artifact.sources:
        return []
    for _ in range(_LOADS - 1):
        try:
            return list(kernel_addresses(build_all(artifact.sources), artifact.spec.kernel_names))
        except Vanished:  # another process trimmed the cache between building and loading
            continue
    return list(kernel_addresses(build_all(artifact.sources), artifact.spec.kernel_names))


def _unflattened(plan: Callable[..., Any], structure: pytree.TreeSpec) -> Callable[..., Any]:
    return lambda *args: pytree.tree_unflatten(plan(*args), structure)


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
