"""Finds equal ranges of an ATen graph, such as the layers of a network, so that a few of them are lowered and scheduled
and the others are copies of these (`repeated.py`, `schedule/copies.py`).

Two ranges are equal if their nodes call the same operators with the same constants, on values with the same metadata
that come from the same places relative to the range, and if their results are used at the same places. They may take
other inputs of the graph, and other seeds of the random numbers that kernels draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from ..fx_utils.keys import NoKey
from ..fx_utils.repeats import FEWEST_NODES, described, numbered, repeated, shape
from .random import random_bits
from .registry import find as lowering_of

FEWEST_RANGES = 7  # equal ranges, of which REAL and the last are lowered
REAL = 3  # ranges that are lowered before those that are copied; the last of them is what is copied


@dataclass(frozen=True)
class Repeats:
    """Equal ranges of a graph: number k has the nodes at `start + k * period` and the following ones. `outer`: of each
    range, what its nodes use from before the first range, in the order of these uses. `seeds`: the numbers of the seeds
    that each range uses, in the order of its nodes."""

    nodes: Sequence[fx.Node]
    place: Mapping[fx.Node, int]
    start: int
    period: int
    count: int
    outer: Sequence[tuple[fx.Node, ...]]
    seeds: Sequence[tuple[int, ...]]

    def range_of(self, node: fx.Node) -> int | None:
        """The number of the range of a node; None if it is in none."""
        k, _ = divmod(self.place[node] - self.start, self.period)
        return k if 0 <= k < self.count else None

    def moved(self, node: fx.Node, ranges: int) -> fx.Node:
        """The node at the same place of a range so many ranges later."""
        return self.nodes[self.place[node] + ranges * self.period]


def find(graph: fx.Graph) -> Repeats | None:
    """The longest sequence of equal ranges; None if there are too few."""
    nodes = list(graph.nodes)
    if len(nodes) < FEWEST_NODES * FEWEST_RANGES:
        return None
    keys = numbered(nodes, _key)
    start, length, period = repeated(keys)
    if length < FEWEST_RANGES * period or period < FEWEST_NODES:
        return None
    place = {node: k for k, node in enumerate(nodes)}
    signatures = [_signature(nodes[k], place, start, length, period) for k in range(start, start + length)]
    found = None
    for shift in range(period):  # the first node of a range may be any of a period
        begin, count = _longest(signatures, shift, period)
        if found is None or count > found[1]:
            found = start + begin, count
        if (length - shift - 1) // period <= found[1]:
            break
    assert found is not None
    begin, (start, count) = start, found
    if count < FEWEST_RANGES:
        return None
    return _ranges(nodes, place, begin, start, period, count)


def draws(node: fx.Node) -> bool:
    """Whether a node draws random numbers in kernels, with the seed whose number is its second argument."""
    return isinstance(node.target, torch._ops.OpOverload) and lowering_of(node.target) is random_bits


def _key(node: fx.Node) -> Any:
    """Equal for nodes that call the same operator with the same constants, with results of the same metadata."""
    value = node.meta.get("val")
    if node.op == "get_attr" and isinstance(value, torch.Tensor) and not value.numel():  # such as an empty cache
        return node.op, described(value)
    if node.op != "call_function":
        raise NoKey
    args = node.args
    if draws(node):
        args = args[0], *args[2:]
    kwargs = shape(node.kwargs, {}) if node.kwargs else None
    return node.target, tuple([_argument(x) for x in args]), kwargs, _metadata(value), _part_of(node)


def _argument(x: Any) -> Any:
    kind = type(x)
    return kind if kind is fx.Node else (kind, x) if kind is int else shape(x, {})


def _metadata(value: Any) -> Any:
    """What lowering reads of the result of a node. NoKey for symbolic sizes, and for what is no tensor in strided
    memory."""
    if type(value) is FakeTensor and value.layout is torch.strided and not value._has_symbolic_sizes_strides:
        return tuple(value.shape), value.stride(), value.dtype, value.fake_device, value.is_conj(), value.is_neg()
    return described(value)


def _part_of(node: fx.Node) -> str | None:
    """The name of the operator whose decomposition a node belongs to. Copied graphs hold copies of that operator."""
    whole = node.meta.get("original_aten")
    return whole._schema.name if isinstance(whole, torch._ops.OpOverload) else None


def _signature(node: fx.Node, place: Mapping[fx.Node, int], start: int, length: int, period: int) -> Any:
    """Where the operands of a node come from, and where its results are used, relative to it."""
    at = place[node]
    operands = []
    for x in node.all_input_nodes:
        operands.append(at - place[x] if place[x] >= start else None)
    users = []
    for user in node.users:
        to = place[user]
        users.append(to - at if to < start + length else (user.op, user.target))
    return tuple(operands), tuple(users)


def _longest(signatures: Sequence[Any], shift: int, period: int) -> tuple[int, int]:
    """Where the longest sequence of equal periods begins, of those at `shift` plus multiples of the period, and their
    number."""
    best, begin, count = (shift, 1), shift, 1
    for at in range(shift + period, len(signatures) - period + 1, period):
        if signatures[at : at + period] == signatures[at - period : at]:
            count += 1
        else:
            begin, count = at, 1
        if count > best[1]:
            best = begin, count
    return best


def _ranges(
    nodes: Sequence[fx.Node], place: Mapping[fx.Node, int], begin: int, start: int, period: int, count: int
) -> Repeats | None:
    outer, seeds = [], []
    for k in range(count):
        own = nodes[start + k * period : start + (k + 1) * period]
        outer.append(tuple([x for node in own for x in node.all_input_nodes if place[x] < begin]))
        seeds.append(tuple([int(node.args[1]) for node in own if draws(node)]))  # type: ignore[arg-type]
    return Repeats(nodes, place, start, period, count, outer, seeds)
