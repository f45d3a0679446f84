"""Joins collectives that follow one another into one, so that there are fewer and larger messages; an option.

Collectives of the same kind, group and dtype become one on their joined inputs if no other collective lies between them
and none of them needs the result of another. Which are joined depends on the graph, so every rank of the group must run
the same program. That is why it has to be asked for: `options={"bucket_collectives": True}`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..aot.calls import call
from ..aot.memory import is_random
from .common import aten

MAX_BYTES = 25 << 20  # of the joined inputs, as in DDP


def joined_collectives(gm: fx.GraphModule) -> bool:
    """Joins what can be joined; returns whether there was anything. Nodes carry fake tensors."""
    ops = getattr(torch.ops, "_c10d_functional", None)
    if ops is None or not hasattr(ops, "wait_tensor"):
        return False
    joins = {
        ops.all_reduce.default: _all_reduce, ops.all_gather_into_tensor.default: _all_gather,
        ops.reduce_scatter_tensor.default: _reduce_scatter,
    }  # fmt: skip
    wait = ops.wait_tensor.default
    buckets = list(_buckets(gm.graph, joins, wait))
    for bucket in buckets:
        behind, moved = bucket[-1].next, _dependents(bucket)
        with gm.graph.inserting_before(behind):
            results = joins[bucket[0].target](gm.graph, bucket, wait)
        for node in moved:
            behind.prepend(node)
        for start, result in zip(bucket, results, strict=True):
            (waited,) = start.users
            waited.replace_all_uses_with(result)
            gm.graph.erase_node(waited)
            gm.graph.erase_node(start)
    if buckets:
        gm.graph.lint()
        gm.recompile()
    return bool(buckets)


def _buckets(graph: fx.Graph, joins: dict[Any, Any], wait: Any) -> Iterator[list[fx.Node]]:
    """The collectives to join, by their starts in order. What depends on their results can be moved behind the last of
    them."""
    bucket: list[fx.Node] = []
    size, dependent = 0, set[fx.Node]()

    def closed(start: fx.Node | None = None) -> Iterator[list[fx.Node]]:
        nonlocal bucket, size, dependent
        if len(bucket) > 1:
            yield bucket
        bucket = [] if start is None else [start]
        size, dependent = 0 if start is None else _bytes(start), set(bucket)

    for node in graph.nodes:
        depends = not dependent.isdisjoint(node.all_input_nodes)
        if _starts(node, wait):
            fits = node.target in joins and _joinable(node, wait)
            if not fits or depends or not bucket or _kind(node) != _kind(bucket[0]) or size + _bytes(node) > MAX_BYTES:
                yield from closed(node if fits else None)
            else:
                bucket.append(node)
                dependent.add(node)
                size += _bytes(node)
        elif node.op != "output" and (_writes(node) or depends and node.target is not wait and is_random(node.target)):
            yield from closed()
        elif depends:
            dependent.add(node)
    yield from closed()


def _dependents(bucket: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes before the last start that depend on results of others, but for the waits, in order."""
    found, members, node = [], set(bucket), bucket[0].next
    dependent = set(bucket)
    while node is not bucket[-1]:
        if node not in members and not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
            if members.isdisjoint(node.all_input_nodes):
                found.append(node)
        node = node.next
    return found


def _starts(node: fx.Node, wait: Any) -> bool:
    """Whether a node starts a collective."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "_c10d_functional" and target is not wait


def _writes(node: fx.Node) -> bool:
    """Whether a node may do more than compute its result."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        waits = target.namespace == "_c10d_functional"  # their schemas say that they write
        return not waits and (target._schema.is_mutable or not target._schema.returns)
    return node.op.startswith("call") and target is not operator.getitem


def _joinable(start: fx.Node, wait: Any) -> bool:
    """Whether a collective works on memory without gaps, of known size, and its result is only waited for, once."""
    x = start.args[0].meta["val"]  # type: ignore[union-attr]
    known = all(type(n) is int for n in (*x.shape, *x.stride()))
    return known and x.numel() > 0 and x.is_contiguous() and [user.target for user in start.users] == [wait]


def _kind(start: fx.Node) -> tuple[Any, ...]:
    """What collectives that are joined have in common: operator, group, reduction, dtype and device."""
    x = start.args[0].meta["val"]  # type: ignore[union-attr]
    return start.target, start.args[1:], tuple(start.kwargs.items()), x.dtype, x.device


def _bytes(start: fx.Node) -> int:
    x = start.args[0].meta["val"]  # type: ignore[union-attr]
    return x.numel() * x.element_size()


# ---- each returns the results of the members of a bucket, which are tensors of their own


def _all_reduce(graph: fx.Graph, bucket: Sequence[fx.Node], wait: Any) -> list[fx.Node]:
    joined = _joined(graph, bucket, [-1], 0)
    total = _waited(graph, bucket[0], joined, wait)
    return _parts(graph, bucket, total, 0)


def _all_gather(graph: fx.Graph, bucket: Sequence[fx.Node], wait: Any) -> list[fx.Node]:
    ranks = bucket[0].args[1]
    gathered = _waited(graph, bucket[0], _joined(graph, bucket, [-1], 0), wait)
    by_rank = call(graph, aten.view.default, gathered, [ranks, -1], like=bucket[0])
    return _parts(graph, bucket, by_rank, 1)


def _reduce_scatter(graph: fx.Graph, bucket: Sequence[fx.Node], wait: Any) -> list[fx.Node]:
    ranks = bucket[0].args[2]
    by_rank = _joined(graph, bucket, [ranks, -1], 1)
    joined = call(graph, aten.view.default, by_rank, [-1], like=bucket[0])
    return _parts(graph, bucket, _waited(graph, bucket[0], joined, wait), 0)


def _joined(graph: fx.Graph, bucket: Sequence[fx.Node], shape: list[Any], dim: int) -> fx.Node:
    """The inputs of a bucket, each viewed with this shape, in one tensor."""
    inputs = [call(graph, aten.view.default, start.args[0], shape, like=start) for start in bucket]
    return call(graph, aten.cat.default, inputs, dim, like=bucket[0])


def _waited(graph: fx.Graph, like: fx.Node, joined: fx.Node, wait: Any) -> fx.Node:
    """The result of a collective like this one on other memory."""
    start = call(graph, like.target, joined, *like.args[1:], like=like, **like.kwargs)
    return call(graph, wait, start, like=like)


def _parts(graph: fx.Graph, bucket: Sequence[fx.Node], whole: fx.Node, dim: int) -> list[fx.Node]:
    """The results of the members: consecutive parts of `whole` along `dim`."""
    results, start = [], 0
    rows = 1 if dim == 0 else whole.meta["val"].shape[0]
    for member in bucket:
        shape = list(member.meta["val"].shape)
        length = member.meta["val"].numel() // rows
        part = call(graph, aten.slice.Tensor, whole, dim, start, start + length, like=member)
        own = call(graph, aten.clone.default, part, memory_format=torch.contiguous_format, like=member)
        results.append(call(graph, aten.view.default, own, shape, like=member))
        start += length
    return results
