"""Computes the value that a tensor has at the end of an unfinished graph, by running nodes with real tensors.

The tracer asks for it where the program reads a tensor: the value includes every in-place write so far. It exists if
the tensor depends only on constants and on inputs whose values the caller passes; `known_tensors` decides which inputs
those are and adds their guards. (`inductor.passes.attention` evaluates nodes too, but of finished graphs: it needs the
value that a mask had where attention read it, and which nodes may then be removed.)

`only_views` shares the analysis of nodes: the driver does not compile a graph that only creates views of its inputs.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from inductor.fx_utils.writes import may_write
from inductor.overlap import memory_of

MAX_ELEMENTS = 1 << 22
# Under this key, a node's `meta` has whether the version of an argument changed when the trace ran it on fake tensors.
COUNTED_WRITES = "counted_writes"
CHANGES = "changes"  # and under this one the answer of `changes`, which is asked for all nodes at many calls of modules


class _Unknown(Exception):
    """The value depends on more than constants."""


class _OnlyPure(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _Unknown
        return func(*args, **(kwargs or {}))


def value_at_end(node: fx.Node, given: Mapping[fx.Node, torch.Tensor]) -> tuple[torch.Tensor | None, set[fx.Node]]:
    """The value of a node's tensor after all nodes of its graph, and the nodes of `given` that it depends on.

    `given` maps input nodes to their current values. The value is None if it depends on other inputs of the graph or on
    random numbers.
    """
    needed = _needed(node, given)
    if needed is None:
        return None, set()
    read = needed & given.keys()
    values: dict[fx.Node, Any] = {each: given[each].clone() for each in read}
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        try:
            with _OnlyPure():
                for each in node.graph.nodes:
                    if each in needed and each not in values:
                        values[each] = _run(each, values)
        except _Unknown:
            return None, set()
    found = values[node]
    return (found if isinstance(found, torch.Tensor) else None), read


def _needed(node: fx.Node, given: Collection[fx.Node]) -> set[fx.Node] | None:
    """The nodes that `node` is computed from, including later in-place writes to their storages; None if one of them is
    an input that is not in `given`."""
    needed: set[fx.Node] = set()
    todo = [node]
    while todo:
        while todo:
            each = todo.pop()
            if each in needed:
                continue
            if each.op not in ("call_function", "call_method") and each not in given:
                return None
            if getattr(each.target, "in_order", False):  # its value depends on earlier nodes
                return None
            needed.add(each)
            todo += each.all_input_nodes
        held = set().union(*map(_storage, needed))
        writers = (each for each in node.graph.nodes if each not in needed and changes(each))
        todo = [each for each in writers if any(_storage(arg) & held for arg in each.all_input_nodes)]
    return needed


def _storage(node: fx.Node) -> set[int]:
    fake = node.meta.get("val")
    return {memory_of(fake)} if isinstance(fake, torch.Tensor) else set()


def only_views(graph: fx.Graph) -> bool:
    """Whether all operations of a graph create views of its inputs."""
    return all(_is_view(node) for node in graph.nodes if node.op in ("call_function", "call_method"))


def _is_view(node: fx.Node) -> bool:
    if getattr(node.target, "in_order", False):
        return False
    if not isinstance(node.meta.get("val"), torch.Tensor):  # a tuple: all users must take items of it
        return bool(node.users) and all(user.target is operator.getitem for user in node.users)
    viewed = node.all_input_nodes[0] if node.all_input_nodes else node
    if node.target is operator.getitem and "val" not in viewed.meta:
        viewed = viewed.all_input_nodes[0]
    return not changes(node) and viewed is not node and _storage(viewed) == _storage(node)


def changes(node: fx.Node) -> bool:
    """Whether an operation wrote to one of its arguments when the trace ran it, or may do so. Versions alone do not say
    it: some operators that write to several tensors (`_amp_foreach_non_finite_check_and_unscale_`, fused optimizers,
    lists as `out`) change none; neither does an assignment to `data`."""
    known: bool | None = node.meta.get(CHANGES)
    if known is not None:
        return known
    return bool(node.meta.get(COUNTED_WRITES)) or getattr(node.target, "in_order", False) or may_write(node)


def _run(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: values[each])
    fake = node.meta.get("val")
    if isinstance(fake, torch.Tensor) and fake.numel() > MAX_ELEMENTS:
        raise _Unknown
    if isinstance(node.target, str):  # a method
        result = getattr(args[0], node.target)(*args[1:], **kwargs)
    else:
        result = node.target(*args, **kwargs)
    if isinstance(fake, torch.Tensor) and (result.dtype != fake.dtype or result.shape != fake.shape):
        raise _Unknown  # computed under another mode, such as autocast
    return result
