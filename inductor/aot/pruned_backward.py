"""Rewrites a backward graph for passes in which the gradients of some results are undefined.

The usual backward takes zeros for them, which is wrong where zero times an infinite value gives NaN, and where the
backward of an `autograd.Function` does not give zero for zero (see `absent_tangents`). Normally the captured graph then
runs again in eager. If it cannot, because its inputs are gone, the backward is compiled once more without what eager
does not compute; it reads the same saved tensors.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..fx_utils.dead_code import remove_unused
from .absent_tangents import owner_of
from .calls import call
from .results import dense

aten = torch.ops.aten
Compiled = Callable[..., list[torch.Tensor]]
_SUMS = (aten.add.Tensor, aten.sub.Tensor)


class PrunedBackwards:
    """The backwards of one graph that were compiled for certain undefined tangents. `make(absent)` compiles one for a
    bit set of tangents; it returns None if that is not possible."""

    def __init__(self, make: Callable[[int], Compiled | None]) -> None:
        self.make = functools.cache(make)

    def __call__(self, tangents: Sequence[torch.Tensor | None]) -> Compiled | None:
        """The backward for the tangents among these that are None."""
        return self.make(sum(1 << k for k, x in enumerate(tangents) if x is None))


def fingerprint(*graphs: fx.Graph) -> str:
    """A digest of graphs: equal if they have the same nodes, with the same names, operators and arguments."""
    return hashlib.sha256("\n".join(map(str, graphs)).encode()).hexdigest()


def without_tangents(backward: fx.GraphModule, count: int, absent: int, own: Sequence[int]) -> bool:
    """Remove from a backward graph what eager does not compute if certain tangents are undefined. False if it is not
    known what eager computes; the graph may then be partly rewritten.

    `backward` takes `count` tangents after its other arguments; it keeps all of its arguments. `absent`: the undefined
    tangents, as a bit set. Gradients that are undefined altogether become zeros. `own`: as in JointGraph.
    """
    if any(0 < each & absent < each for each in own):  # such a function gets zeros for its undefined gradients
        return False
    tangents = backward.graph.find_nodes(op="placeholder")[-count:]
    missing = {x for k, x in enumerate(tangents) if absent >> k & 1}
    defined = {x for x in tangents if x not in missing}  # gradients; a function of the program may return a constant
    unused = {k for k, each in enumerate(own) if each and not each & ~absent}
    zeros: dict[fx.Node, fx.Node] = {}
    for node in list(backward.graph.nodes):
        gone = [x for x in node.all_input_nodes if x in missing]
        owner = owner_of(node)
        if (owner is not None and owner not in unused) or any(x in defined for x in node.all_input_nodes):
            defined.add(node)
        if owner in unused or (gone and node not in defined and node.op != "output"):
            missing.add(node)
        elif gone and not _without_summand(node, missing):
            if not all(map(_is_plain, gone)):
                return False
            for x in gone:
                if x not in zeros:
                    zeros[x] = _zeros(x, node)
                node.replace_input_with(x, zeros[x])
    for node in reversed(list(backward.graph.nodes)):
        if node in missing and node.op != "placeholder" and not node.users:
            backward.graph.erase_node(node)
    remove_unused(backward.graph)
    backward.recompile()
    return True


def _without_summand(node: fx.Node, missing: set[fx.Node]) -> bool:
    """Replace a sum of a missing gradient and another one by the other; False if the node is no such sum, or if the
    sum has another dtype or layout than the other gradient."""
    if node.target not in _SUMS or node.kwargs or len(node.args) != 2:  # noqa: PLR2004
        return False
    x, y = node.args
    if not (isinstance(x, fx.Node) and isinstance(y, fx.Node)) or (x in missing) == (y in missing):
        return False
    kept = y if x in missing else x
    if not _is_alike(node.meta["val"], kept.meta["val"]):
        return False
    if kept is y and node.target is aten.sub.Tensor:
        node.target, node.args = aten.neg.default, (y,)
    else:
        node.replace_all_uses_with(kept)
    return True


def _is_alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    return (x.dtype, x.device, x.shape, x.stride()) == (y.dtype, y.device, y.shape, y.stride())


def _is_plain(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and dense(value.shape, value.stride())


def _zeros(like: fx.Node, before: fx.Node) -> fx.Node:
    """Zeros of the layout of `like`, whose elements have no gaps, inserted before a node."""
    value: Any = like.meta["val"]
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), d))
    back = sorted(range(value.dim()), key=order.__getitem__)
    size = [value.shape[d] for d in order]
    graph = before.graph
    with graph.inserting_before(before):
        new = call(graph, aten.full.default, size, 0, dtype=value.dtype, device=value.device, pin_memory=False)
        return new if order == back == list(range(value.dim())) else call(graph, aten.permute.default, new, back)
