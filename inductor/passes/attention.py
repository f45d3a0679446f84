"""Masks of attention that are known when compiling.

Models build masks out of sizes alone: all true where nothing is padded, or lower triangular. With a mask tensor the
fastest kernels for attention are out of reach, and what the mask says they do by themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

_MASK, _CAUSAL = 3, 5  # positions among the arguments of scaled_dot_product_attention
_MOST_ELEMENTS = 1 << 26


def without_known_masks(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, a torch-level graph, or a copy of it in which attention has no mask that says "all" or "causal"."""
    masked = [n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention and _mask(n) is not None]
    if not masked:
        return gm
    values = _constants(gm.graph, {_mask(n) for n in masked})
    known = {n: says for n in masked if (says := _says(values.get(_mask(n)), n)) is not None}
    if not known:
        return gm
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(gm.graph, copies)
    graph.output(result)
    next(iter(graph.find_nodes(op="output"))).meta = dict(next(iter(gm.graph.find_nodes(op="output"))).meta)
    for node, says in known.items():
        copy = copies[node]
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        copy.kwargs = {**copy.kwargs, **dict(zip(names, copy.args)), "attn_mask": None, "is_causal": says == "causal"}
        copy.args = ()
    graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)


def _mask(node: fx.Node) -> Any:
    mask = node.args[_MASK] if len(node.args) > _MASK else node.kwargs.get("attn_mask")
    causal = node.args[_CAUSAL] if len(node.args) > _CAUSAL else node.kwargs.get("is_causal", False)
    return mask if isinstance(mask, fx.Node) and causal is False else None


def _says(mask: torch.Tensor | None, node: fx.Node) -> str | None:
    if mask is None or mask.dim() < 2:
        return None
    allowed = mask if mask.dtype == torch.bool else mask == 0
    if bool(allowed.all()):
        return "all"
    if mask.dtype != torch.bool and not bool((allowed | mask.isneginf()).all()):
        return None
    square = allowed.shape[-1] == allowed.shape[-2]
    return "causal" if square and bool((allowed == torch.ones_like(allowed).tril()).all()) else None


# ---- constants


class _NotConstant(Exception):
    """What is computed depends on more than the graph."""


class _Deterministic(TorchDispatchMode):
    """Lets through what gives the same result each time, in little memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or "empty" in func._schema.name:
            raise _NotConstant
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() > _MOST_ELEMENTS:
            raise _NotConstant
        return result


def _constants(graph: fx.Graph, wanted: set[fx.Node]) -> dict[fx.Node, torch.Tensor]:
    """Those of the `wanted` nodes that follow from the graph alone, computed on the CPU."""
    constant = set(_closed(graph))
    needed = {n for n in wanted if n in constant}
    writes = [n for n in graph.nodes if _may_write(n)]
    while True:  # until all that is computed, and all that writes into it, is there
        for node in reversed(graph.nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        more = {w for w in writes if w not in needed and not needed.isdisjoint(_written(w))}
        if not more <= constant:
            return {}
        if not more:
            break
        needed |= more
    values: dict[fx.Node, Any] = {}
    try:
        with torch.no_grad(), _Deterministic():
            for node in graph.nodes:
                if node in needed:
                    values[node] = _run(node, values)
    except (_NotConstant, RuntimeError):  # an operator that the CPU lacks, say
        return {}
    return {n: v for n in wanted if isinstance(v := values.get(n), torch.Tensor)}


def _closed(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that depend on no input and no attribute."""
    closed: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and closed.issuperset(node.all_input_nodes):
            closed.add(node)
            yield node


def _written(node: fx.Node) -> Iterator[fx.Node]:
    """What a node may write into: its first operand, what that may be a view of, and so on."""
    at: Any = node.kwargs.get("out", node)
    while isinstance(at, fx.Node):
        yield at
        at = next(iter(at.all_input_nodes), None)


def _may_write(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    written = name.endswith("_") and not name.endswith("__") or name.startswith("__i")
    return written or node.target in _IN_PLACE or "out" in node.kwargs


_IN_PLACE = {f for name, f in vars(operator).items() if name.startswith("i") and hasattr(operator, f"__{name}__")}
_IN_PLACE |= {operator.setitem, operator.delitem, setattr}
_IN_PLACE -= {operator.index, operator.inv, operator.invert}


def _run(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = _on_cpu((args, kwargs))
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, str) and value.split(":")[0] in ("cuda", "xpu", "mps"):
        return "cpu"
    if type(value) in (tuple, list):
        return type(value)(map(_on_cpu, value))
    return {k: _on_cpu(v) for k, v in value.items()} if type(value) is dict else value
