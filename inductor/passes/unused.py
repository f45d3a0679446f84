"""Operators that raise because of elements and whose results nothing uses: they would be removed as dead code, and the
exception that the program gets in eager with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from ..aot.in_place import IN_PLACE, IN_PLACE_METHODS

_LOOK_UP = frozenset({
    "cross_entropy", "embedding", "embedding_bag", "gather", "index_add", "index_copy", "index_fill", "index_put",
    "index_select", "nll_loss", "one_hot", "put", "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim",
})  # fmt: skip
_DIVIDE = frozenset({"div", "divide", "floor_divide", "floordiv", "fmod", "mod", "remainder"})


def with_unused_checks(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, a torch-level graph whose nodes carry fake tensors, or a copy of it in which a check that always holds
    depends on each result of the kind that nothing uses.  On the CPU alone: elsewhere eager raises nothing."""
    unused = [node for node in gm.graph.nodes if _may_raise(node) and not _is_used(node)]
    if not unused:
        return gm
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(gm.graph, copies)
    graph.output(result)
    next(iter(graph.find_nodes(op="output"))).meta = dict(next(iter(gm.graph.find_nodes(op="output"))).meta)
    for node in unused:
        _check(graph, copies[node])
    return fx.GraphModule(gm, graph)


def _check(graph: fx.Graph, node: fx.Node) -> None:
    """Check something that is true of any elements, so that these are computed."""
    at = node
    while at.next.op == "placeholder":
        at = at.next
    with graph.inserting_before(at.next):
        value = graph.call_method("detach", (node,))
        other, equal = graph.call_method("ne", (value, value)), graph.call_method("eq", (value, value))
        both = graph.call_method("logical_and", (other, equal))
        holds = graph.call_method("logical_not", (graph.call_method("any", (both,)),))
        check = graph.call_function(torch._assert_async, (holds,))
    for made in (value, other, equal, both, holds.args[0], holds, check):
        assert isinstance(made, fx.Node)
        made.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}


def _may_raise(node: fx.Node) -> bool:
    value = node.meta.get("val", node.meta.get("example_value"))
    if not node.op.startswith("call_") or not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return False
    name = _name(node.target)
    if name in _DIVIDE:
        return not (value.is_floating_point() or value.is_complex())
    if name == "getitem":
        return any(map(_is_index, _flat(node.args[1:])))
    return name in _LOOK_UP


def _name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.rpartition("::")[2]
    return (target if isinstance(target, str) else getattr(target, "__name__", "")).strip("_")


def _flat(args: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, list | tuple):
            yield from _flat(each)
        else:
            yield each


def _is_index(arg: Any) -> bool:
    """Whether an argument is a tensor of indices; a mask raises nothing."""
    if not isinstance(arg, fx.Node):
        return False
    value = arg.meta.get("val", arg.meta.get("example_value"))
    return isinstance(value, torch.Tensor) and value.dtype not in (torch.bool, torch.uint8)


def _is_used(node: fx.Node) -> bool:
    """Whether a result reaches the output, or an operator that may have an effect."""
    seen = {node}
    todo = list(node.users)
    while todo:
        user = todo.pop()
        if user in seen:
            continue
        if user.op == "output" or _may_have_effect(user):
            return True
        seen.add(user)
        todo += user.users
    return False


def _may_have_effect(node: fx.Node) -> bool:
    if node.op == "call_module" or node.is_impure():
        return True
    target: Any = node.target
    if target in IN_PLACE or "out" in node.kwargs or getattr(target, "in_order", False):
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.endswith("_") and not name.endswith("__") or name in IN_PLACE_METHODS
