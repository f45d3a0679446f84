"""Removes attention masks whose contents are known at compile time.

Models often build masks from sizes alone: all true where nothing is padded, or lower triangular. The fastest attention
kernels do not accept a mask tensor, but they support both cases directly (no mask, or `is_causal`).

A mask is evaluated as it is where attention reads it, and the nodes that only it needed are removed. (The tracer's
`pyframe.emit.constant_eval` answers another question: what a tensor is at the end of an unfinished graph.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from ..fx_utils.writes import may_write
from ..torch_compat import present

aten = torch.ops.aten
_MASK, _CAUSAL = 3, 5  # positions among the arguments of scaled_dot_product_attention
_MAX_ELEMENTS = 1 << 26


def without_known_masks(gm: fx.GraphModule) -> fx.GraphModule:
    """Returns `gm`, or a copy in which attention calls have no mask tensor that is all true or causal.

    `gm` is a torch-level graph (before ATen) whose nodes carry fake tensors.
    """
    masked = [n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention and _mask(n) is not None]
    known, pure = _constant_masks(gm.graph, masked) if masked else ({}, set())
    if not known:
        return gm
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(gm.graph, copies)
    graph.output(result)
    next(iter(graph.find_nodes(op="output"))).meta = dict(next(iter(gm.graph.find_nodes(op="output"))).meta)
    for node, kind in known.items():
        copy = copies[node]
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        copy.kwargs = {**copy.kwargs, **dict(zip(names, copy.args)), "attn_mask": None, "is_causal": kind == "causal"}
        copy.args = ()
    # Dead code elimination would be wrong: in a torch-level graph a mutation such as `view.copy_(x)` has no users.
    for node in reversed(gm.graph.nodes):
        if node in pure and not copies[node].users:
            graph.erase_node(copies[node])
    return fx.GraphModule(gm, graph)


def _mask(node: fx.Node) -> Any:
    mask = node.args[_MASK] if len(node.args) > _MASK else node.kwargs.get("attn_mask")
    causal = node.args[_CAUSAL] if len(node.args) > _CAUSAL else node.kwargs.get("is_causal", False)
    return mask if isinstance(mask, fx.Node) and causal is False else None


def _kind(mask: torch.Tensor | None, node: fx.Node) -> str | None:
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


# Operators whose results have arbitrary contents.
_UNINITIALIZED = frozenset(present(
    aten, "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "empty_quantized",
    "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_efficientzerotensor",
))  # fmt: skip


class _NotConstant(Exception):
    """Raised if a value depends on more than the graph, or is too large to compute at compile time."""


class _Deterministic(TorchDispatchMode):
    """Raises _NotConstant for operators that are not deterministic and for results over _MAX_ELEMENTS elements."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or func.overloadpacket in _UNINITIALIZED:
            raise _NotConstant
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() > _MAX_ELEMENTS:
            raise _NotConstant
        return result


def _constant_masks(graph: fx.Graph, masked: Sequence[fx.Node]) -> tuple[dict[fx.Node, str], set[fx.Node]]:
    """Evaluates the masks that depend on no input, on the CPU and in graph order.

    Returns "all" or "causal" for each attention node with such a mask, and the set of evaluated nodes that neither
    write to a tensor nor return one of their arguments. Both are empty if a node that is not evaluated may write to
    memory of one that is.
    """
    closed = set(_closed(graph))
    nodes = _related({_mask(n) for n in masked} & closed, closed)
    values: dict[fx.Node, Any] = {}
    known: dict[fx.Node, str] = {}
    pure: set[fx.Node] = set()
    try:
        with torch.inference_mode(False), torch.no_grad(), _Deterministic():
            for node in graph.nodes:
                if node in nodes:
                    before = _versions(node, values)
                    values[node] = _run(node, values)
                    if _versions(node, values) == before and _is_new(node, values):
                        pure.add(node)
                elif node in masked and isinstance(mask := values.get(_mask(node)), torch.Tensor):
                    kind = _kind(mask, node)
                    known |= {node: kind} if kind is not None else {}
    except (_NotConstant, RuntimeError):  # for example, an operator that the CPU lacks
        return {}, set()
    others = [n for n in graph.nodes if n not in nodes and n.op != "placeholder"]
    return (known, pure) if known and not _written_elsewhere(values, others) else ({}, set())


def _versions(node: fx.Node, values: Mapping[fx.Node, Any]) -> list[int]:
    """The version counters of a node's tensor arguments."""
    return [x._version for n in node.all_input_nodes if isinstance(x := values[n], torch.Tensor)]


def _is_new(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    """Whether a node's value is a tensor and not one of its arguments. `requires_grad_`, for example, returns its
    argument after a change that no version counter records."""
    return isinstance(values[node], torch.Tensor) and all(values[n] is not values[node] for n in node.all_input_nodes)


def _related(masks: set[fx.Node], closed: set[fx.Node]) -> set[fx.Node]:
    """The closed nodes connected to the masks: those from which masks are computed, and their users, which may write
    to them, transitively."""
    found: set[fx.Node] = set()
    stack = list(masks)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [n for n in (*node.all_input_nodes, *node.users) if n in closed]
    return found


def _written_elsewhere(values: Mapping[fx.Node, Any], others: Sequence[fx.Node]) -> bool:
    """Whether one of the other nodes may have written to memory of one of the values.

    The fake tensors of the graph alias and count versions like the program's tensors. If a fake tensor has another
    version than the evaluated value, another node wrote to it. Inference tensors have no version counter.
    """
    fakes = {n: _fake(n) for n, value in values.items() if isinstance(value, torch.Tensor)}
    memory = {fake.untyped_storage()._cdata for fake in fakes.values() if fake is not None}
    for node in others:
        shares = any(
            fake is not None and fake.untyped_storage()._cdata in memory for fake in map(_fake, node.all_input_nodes)
        )
        if shares and (may_write(node) or _counts_nothing(node)):
            return True
    return any(
        fake is None or not fake.is_inference() and fake._version != values[n]._version for n, fake in fakes.items()
    )


def _counts_nothing(node: fx.Node) -> bool:
    """Whether a write by this node could go unnoticed: it takes inference tensors and is not attention or output."""
    fakes = map(_fake, node.all_input_nodes)
    inference = any(fake is not None and fake.is_inference() for fake in fakes)
    return inference and node.op != "output" and node.target is not F.scaled_dot_product_attention


def _fake(node: fx.Node) -> torch.Tensor | None:
    value = node.meta.get("val", node.meta.get("example_value"))
    return value if isinstance(value, torch.Tensor) else None


def _closed(graph: fx.Graph) -> Iterator[fx.Node]:
    """The call nodes that depend on no input and no attribute."""
    closed: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and closed.issuperset(node.all_input_nodes):
            closed.add(node)
            yield node


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
