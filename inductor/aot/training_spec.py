"""Describes a compiled forward and backward to the code that calls them, as picklable data that the cache can store.

`TrainingSpec` says how each output is obtained, which inputs are written, which tensors the forward saves, which layout
the backward expects of each tangent, which inputs get gradients, and whether the captured graph can be run again for
second derivatives. `describe` derives it from a JointGraph and its partition; `autograd.py` and `rerun.py` read it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from ..fx_utils.arguments import getitem_key, joint_results, results_of
from ..runtime.related_results import Related
from .joint import JointGraph
from .levels import Level
from .memory import ancestors, is_random, viewed
from .partition import Halves, Saved
from .pruned_backward import fingerprint
from .random import draws_in_kernels
from .results import Result

aten = torch.ops.aten


@dataclass(frozen=True)
class Layout:
    """The layout in which the backward expects the gradient of a returned tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Gradient:
    """Describes one result of the backward: the gradient of primal number `place`. It is None if all of `tangents` are,
    the gradients of the results that autograd connects to the primal.

    `conjugated`: the result is the conjugate of the gradient; the gradient then gets the conj bit.
    """

    place: int
    tangents: tuple[int, ...]
    conjugated: bool = False


@dataclass(frozen=True)
class Rerunning:
    """How to run the captured graph again for a second derivative.

    `hindrance`: why it cannot run again, or None. `needed`: the primals that affect its results and gradients.
    `temporary`: the primals that may not outlive the call, with their sizes in bytes. `devices`: where random numbers
    are drawn; an empty tuple means the CPU.
    """

    hindrance: str | None
    needed: tuple[int, ...]
    temporary: tuple[tuple[int, int], ...]
    devices: tuple[tuple[torch.device, ...], ...]


@dataclass(frozen=True)
class TrainingSpec:
    """Primals are the inputs, followed by the module's tensors. For a graph with symbolic sizes, sizes are `Size`s.

    `results`, `structure`, `writes`, `origins`, `nested`, `uncounted`, `conflicts`, `products`, `not_zero`, `related`:
    as in JointGraph. `views`: the returned tensors that are views in the forward graph. `fingerprint`: of forward and
    backward before they are lowered; empty unless `zeros_may_differ`.
    """

    primals: int
    results: tuple[Result, ...]
    structure: pytree.TreeSpec
    writes: tuple[int, ...]
    origins: tuple[tuple[int, bool] | None, ...]
    views: tuple[int, ...]
    tangents: tuple[Layout, ...]
    gradients: tuple[Gradient, ...]
    saved: Saved
    rerunning: Rerunning
    nested: tuple[Level, ...] = ()
    uncounted: tuple[int, ...] = ()
    conflicts: tuple[tuple[int, ...], ...] = ()
    products: tuple[int, ...] = ()
    not_zero: tuple[int, ...] = ()
    fingerprint: str = ""
    related: tuple[Related, ...] = ()

    @property
    def zeros_may_differ(self) -> bool:
        """Whether zeros in the place of undefined gradients of some results may give other gradients."""
        return bool(self.products or self.not_zero)


def describe(joint: JointGraph, halves: Halves) -> TrainingSpec:
    """The facts about a joint graph and its partition that are needed at run time."""
    graph = joint.graph.graph
    found = joint_results(graph).gradients
    tangents = graph.find_nodes(op="placeholder")[len(found) :]
    connected = joint.reaching or [range(len(tangents))] * len(found)
    gradients = [
        Gradient(place, tuple(connected[place]), place in joint.conjugated)
        for place, node in enumerate(found)
        if node is not None
    ]
    returned = results_of(halves.forward.graph)[: len(joint.origins)]
    return TrainingSpec(
        len(found),
        joint.results,
        joint.structure,
        joint.writes,
        joint.origins,
        tuple(k for k, node in enumerate(returned) if node is not None and viewed(node) is not None),
        tuple(Layout(tuple(x.shape), x.stride(), x.dtype, x.device) for x in joint.tangents),
        tuple(gradients),
        halves.saved,
        rerunning(joint),
        joint.nested,
        joint.uncounted,
        joint.conflicts,
        joint.products,
        joint.not_zero,
        fingerprint(halves.forward.graph, halves.backward.graph) if joint.products or joint.not_zero else "",
        joint.related,
    )


# Batch norm in training does not read its running statistics, although they are arguments. For each operator: the
# position of the training flag (None: always training), and the number of results that do not depend on the running
# statistics. Without this, no network with batch norm would have a second derivative.
_STATISTICS: dict[Any, tuple[int | None, int]] = {
    aten._native_batch_norm_legit_functional.default: (5, 3),
    aten._batch_norm_with_update_functional.default: (None, 4),
    aten.native_batch_norm_backward.default: (7, 3),
    aten.batch_norm_backward.default: (7, 3),
}
_RUNNING = (3, 4)


def rerunning(joint: JointGraph) -> Rerunning:
    """How to run the captured graph of `joint` again."""
    returned, _, gradients, _ = joint_results(joint.graph.graph)
    nodes = joint.graph.graph.nodes
    reached = ancestors([*returned, *(x for x in gradients if x is not None)], _deciding)
    needed = [i for i, x in enumerate(_inputs(joint, len(gradients))) if x in reached]
    hindrance = None
    if any(is_random(x.target) and x.kwargs.get("generator") is not None for x in nodes):
        hindrance = "it draws from an explicit generator"
    elif draws_in_kernels(joint.graph.graph):
        hindrance = "its kernels draw other random numbers than eager"
    devices: dict[tuple[torch.device, ...], None] = {}
    for node in nodes:
        if is_random(node.target) and hindrance is None:
            device = pytree.tree_leaves(node.meta["val"])[0].device
            devices[() if device.type == "cpu" else (device,)] = None
    vals = [node.meta.get("val") for node in _inputs(joint, len(gradients))]  # None for numbers
    temporary = [
        (i, val.numel() * val.element_size())
        for i, (val, stays) in enumerate(zip(vals, joint.permanent, strict=False))
        if not stays and isinstance(val, torch.Tensor)
    ]
    return Rerunning(hindrance, tuple(needed), tuple(temporary), tuple(devices))


def _inputs(joint: JointGraph, count: int) -> list[torch.fx.Node]:
    return list(joint.graph.graph.find_nodes(op="placeholder"))[:count]


def _deciding(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that affect a value: all inputs except running statistics that training only updates."""
    call = node.args[0] if node.target is operator.getitem else None
    if isinstance(call, torch.fx.Node) and call.target in _STATISTICS:
        flag, count = _STATISTICS[call.target]
        if getitem_key(node) < count and (flag is None or call.args[flag] is True):
            return [x for i, x in enumerate(call.args) if i not in _RUNNING and isinstance(x, torch.fx.Node)]
    return node.all_input_nodes
