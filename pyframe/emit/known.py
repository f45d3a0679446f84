"""The values of tensors that depend on nothing but constants: computed while tracing, where the program asks."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

MOST_ELEMENTS = 1 << 22
_IN_PLACE_OPERATORS = {
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow, operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift,
    operator.irshift,
}  # fmt: skip


class _Unknown(Exception):
    """The value depends on something else."""


class _OnlyPure(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _Unknown
        return func(*args, **(kwargs or {}))


def value_of(node: fx.Node) -> torch.Tensor | None:
    """The value of a node, or None where it depends on an input of the graph or on random numbers, or where anything
    that it is made of is changed in place."""
    needed = _closure(node)
    if needed is None or any(map(_changes, _with_users(needed))):
        return None
    values: dict[fx.Node, Any] = {}
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        try:
            with _OnlyPure():
                for each in node.graph.nodes:
                    if each in needed:
                        values[each] = _run(each, values)
        except _Unknown:
            return None
    found = values[node]
    return found if isinstance(found, torch.Tensor) else None


def _closure(node: fx.Node) -> set[fx.Node] | None:
    """What a node is computed from; None where that holds an input, or more than calls of torch."""
    needed: set[fx.Node] = set()
    todo = [node]
    while todo:
        each = todo.pop()
        if each in needed:
            continue
        if each.op not in ("call_function", "call_method"):
            return None
        needed.add(each)
        todo += each.all_input_nodes
    return needed


def _with_users(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += each.users
    return found


def _changes(node: fx.Node) -> bool:
    """Whether an operation may change its arguments."""
    if node.target in (operator.and_, operator.or_, operator.not_):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "_")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or "out" in node.kwargs or node.target in _IN_PLACE_OPERATORS or name.startswith("__i")


def _run(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: values[each])
    fake = node.meta.get("val")
    if isinstance(fake, torch.Tensor) and fake.numel() > MOST_ELEMENTS:
        raise _Unknown
    if node.op == "call_method":
        result = getattr(args[0], node.target)(*args[1:], **kwargs)
    else:
        result = node.target(*args, **kwargs)
    if isinstance(fake, torch.Tensor) and (result.dtype != fake.dtype or result.shape != fake.shape):
        raise _Unknown  # made under another mode, autocast say
    return result
