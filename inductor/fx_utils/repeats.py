"""Finds ranges of a captured graph that are equal but for the values that they take, such as the layers of a network.

Each node gets a key: its operator, constant arguments, line, and the metadata of its operands and of its result. A
sequence of keys that repeats with some period is divided into ranges of that length, where the fewest values cross from
one range to the next; ranges whose nodes are connected in the same way are equal.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .keys import PLAIN, NoKey
from .writes import may_write

FEWEST_RANGES = 4  # a range is traced once more than it would be with fewer
FEWEST_NODES = 8  # of a range
_CANDIDATES = 8  # periods that are tried


@dataclass(frozen=True)
class Range:
    """Consecutive calls. `inputs`: the nodes before that they use, in the order of their first use."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Repeats:
    """Equal ranges, each directly after the one before. `outputs`: the numbers of their nodes that later nodes use."""

    ranges: tuple[Range, ...]
    outputs: tuple[int, ...]


def find_repeats(graph: fx.Graph) -> Repeats | None:
    """The longest sequence of equal ranges. None if there are too few, or if the graph writes to a tensor."""
    nodes = list(graph.nodes)
    if len(nodes) < FEWEST_NODES * FEWEST_RANGES or any(map(may_write, nodes)):
        return None
    keys = numbered(nodes, _key)
    start, length, period = repeated(keys)
    if length < FEWEST_RANGES * period or period < FEWEST_NODES:
        return None
    start, count = _best_start(nodes, start, length, period)
    ranges = [nodes[start + k * period : start + (k + 1) * period] for k in range(count)]
    forms = [_form(each) for each in ranges]
    groups = [list(group) for _, group in itertools.groupby(range(count), lambda k: forms[k][0])]
    group = max(groups, key=len)
    form, _, outputs = forms[group[0]]
    if form is None or len(group) < FEWEST_RANGES:
        return None
    return Repeats(tuple(Range(tuple(ranges[k]), forms[k][1]) for k in group), outputs)


# ---- keys


def numbered(nodes: Sequence[fx.Node], key_of: Callable[[fx.Node], Any]) -> list[int]:
    """Equal numbers for nodes with equal keys. A node for which `key_of` raises NoKey has a number of its own."""
    numbers: dict[Any, int] = {}
    keys = []
    for node in nodes:
        try:
            key = key_of(node)
        except NoKey:
            key = node
        keys.append(numbers.setdefault(key, len(numbers)))
    return keys


def _key(node: fx.Node) -> Any:
    if node.op not in ("call_function", "call_method"):
        raise NoKey
    operands = tuple(map(_result, node.all_input_nodes))
    return *_call(node, {}), operands, node.meta.get("stack_trace")


def _call(node: fx.Node, numbers: dict[fx.Node, Any]) -> Any:
    return node.op, node.target, shape((node.args, node.kwargs), numbers), _result(node)


def _result(node: fx.Node) -> Any:
    """The metadata of a node's value; the captured graph has that of the parts of a tuple only."""
    if "val" not in node.meta and node.users and all(user.target is operator.getitem for user in node.users):
        return operator.getitem
    return described(node.meta.get("val"))


def described(value: Any) -> Any:
    """The metadata of a value of the graph. NoKey for symbolic sizes and for what is no tensor in strided memory."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value._has_symbolic_sizes_strides:
            raise NoKey
        flags = value.requires_grad, value.is_leaf, value.is_inference(), value.is_conj(), value.is_neg()
        return type(value), tuple(value.shape), value.stride(), value.dtype, value.device, flags
    if value is not None and type(value) in (list, tuple):
        return type(value), tuple([described(x) for x in value])
    raise NoKey


def shape(value: Any, numbers: dict[fx.Node, Any]) -> Any:
    """A hashable form of arguments. `numbers`: what stands for each node; otherwise all nodes are alike."""
    kind = type(value)
    if isinstance(value, fx.Node):
        return fx.Node, numbers.get(value)
    if kind in PLAIN:
        return kind, value
    if kind is float:  # 0.0 == -0.0, and nan != nan
        return kind, value.hex()
    if kind is slice:
        return kind, shape((value.start, value.stop, value.step), numbers)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return isinstance(value, list), tuple([shape(x, numbers) for x in value])
    if isinstance(value, dict):
        return dict, tuple([(name, shape(x, numbers)) for name, x in value.items()])
    raise NoKey


# ---- periods


def repeated(keys: Sequence[int]) -> tuple[int, int, int]:
    """(start, length, period) of the longest part in which each key equals the key one period later; of parts of one
    length, that with the shortest period."""
    last: dict[int, int] = {}
    distances: collections.Counter[int] = collections.Counter()
    for k, key in enumerate(keys):
        if key in last and k - last[key] >= FEWEST_NODES:
            distances[k - last[key]] += 1
        last[key] = k
    best = 0, 0, 1
    for period, _ in distances.most_common(_CANDIDATES):
        begin = 0
        for k in range(len(keys) - period + 1):
            if k == len(keys) - period or keys[k] != keys[k + period]:
                length = k - begin + period
                if k > begin and (length, -period) > (best[1], -best[2]):
                    best = begin, length, period
                begin = k + 1
    return best


def _best_start(nodes: Sequence[fx.Node], start: int, length: int, period: int) -> tuple[int, int]:
    """Where the first range should start, so that the fewest values of a range are used after it, and the number of
    ranges."""
    place = {node: k for k, node in enumerate(nodes)}
    ends = [0] * (len(nodes) + 1)  # values that are used for the last time before each place
    begins = [0] * (len(nodes) + 1)  # values that exist for the first time at each place
    for k in range(start, start + length):
        last = max((place[user] for user in nodes[k].users), default=k)
        begins[k + 1] += 1
        ends[last + 1] += 1
    alive = list(itertools.accumulate(b - e for b, e in zip(begins, ends)))
    choices = [
        (alive[start + shift + period], -((length - shift) // period), shift)
        for shift in range(period)
        if (length - shift) // period >= FEWEST_RANGES
    ]
    _, count, shift = min(choices)
    return start + shift, -count


def _form(nodes: Sequence[fx.Node]) -> tuple[Any, tuple[fx.Node, ...], tuple[int, ...]]:
    """(form, inputs, outputs) of a range: ranges with equal forms compute the same. The form is None if there is
    none."""
    numbers: dict[fx.Node, Any] = {node: k for k, node in enumerate(nodes)}
    inputs: dict[fx.Node, None] = {}
    for node in nodes:
        for x in node.all_input_nodes:
            if x not in numbers:
                numbers[x] = "input", len(inputs)
                inputs[x] = None
    own = set(nodes)
    outputs = tuple(k for k, node in enumerate(nodes) if any(user not in own for user in node.users))
    try:
        calls = tuple(_call(node, numbers) for node in nodes)
        given = tuple(described(x.meta.get("val")) for x in inputs)
    except NoKey:
        return None, (), ()
    values = [node.meta.get("val") for node in (*inputs, *(nodes[k] for k in outputs))]
    if not outputs or not all(isinstance(x, torch.Tensor) for x in values):
        return None, (), ()
    return (calls, given, outputs), tuple(inputs), outputs
