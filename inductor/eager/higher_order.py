"""Runs `cond`, `while_loop` and `scan` on real tensors as plain Python.

If gradients are recorded, torch's own operators would trace their branches again, with torch's compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .flex_attention import with_dense_attention

Branch = Callable[..., Any]


class _Attached(torch.autograd.Function):
    """Returns `value`, which then requires a gradient because `others` do."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        ctx.count = len(others)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (grad, *[None] * ctx.count)


class _Operands(torch.autograd.Function):
    """Returns its arguments. In a backward pass those that are not used get zeros, as operands of `torch.cond` do."""

    @staticmethod
    def forward(ctx: Any, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.view_as(x) for x in operands)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return grads


def _with_gradients(operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands of an operator, each of which gets a gradient if one of the results does."""
    recorded = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    if not recorded or not torch.is_grad_enabled():
        return tuple(operands)
    new = dict(zip(map(id, recorded), _Operands.apply(*recorded), strict=True))
    return tuple(new.get(id(x), x) for x in operands)


def _attached(results: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """Make all floating-point results require gradients if an operand does, whichever branch they come from."""
    recorded = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    if not recorded or not torch.is_grad_enabled():
        return tuple(results)
    return tuple(_Attached.apply(x, *recorded) if _lacks_gradient(x) else x for x in results)


def _lacks_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) and not x.requires_grad


def run_cond(pred: Any, true_fn: Branch, false_fn: Branch, operands: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Run the branch that `pred` (a bool or a tensor of one element) selects; the other branch does not run."""
    operands = _with_gradients(operands)
    return _attached((true_fn if pred else false_fn)(*operands), operands)


def run_while_loop(
    cond_fn: Branch, body_fn: Branch, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Apply `body_fn` to `carried` while `cond_fn` is true. Results that are the caller's own tensors are cloned."""
    values = tuple(carried)
    while _single(cond_fn(*values, *additional)):
        values = tuple(body_fn(*values, *additional))
    fresh = (x.clone() if any(x is given for given in carried) and isinstance(x, torch.Tensor) else x for x in values)
    return _attached(tuple(fresh), (*carried, *additional))


def _single(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) else result


def run_scan(
    combine_fn: Branch, init: Sequence[Any], xs: Sequence[torch.Tensor], additional: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Call `combine_fn(*carry, *rows)` for each row of `xs`, tensors of equal length of at least 1. Returns the last
    carry and the other outputs, stacked along dimension 0."""
    given = _with_gradients((*init, *xs, *additional))
    init, xs, additional = given[: len(init)], given[len(init) :][: len(xs)], given[len(init) + len(xs) :]
    carry: tuple[Any, ...] = tuple(init)
    rows: list[tuple[Any, ...]] = []
    for index in range(xs[0].shape[0]):
        found = tuple(combine_fn(*carry, *(x.select(0, index) for x in xs), *additional))
        carry = found[: len(init)]
        rows.append(found[len(init) :])
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    return _attached((*carry, *stacked), (*init, *xs, *additional))


RUNNERS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.higher_order.cond: run_cond,
    torch.ops.higher_order.while_loop: run_while_loop,
    torch.ops.higher_order.scan: run_scan,
}


def has_control_flow(gm: fx.GraphModule) -> bool:
    """Whether a graph calls `cond`, `while_loop` or `scan`."""
    return any(node.op == "call_function" and node.target in RUNNERS for node in gm.graph.nodes)


def runnable(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, or, if it has such operators or `flex_attention`, a copy in which functions that run on real tensors
    replace them."""
    gm = with_dense_attention(gm)
    if not has_control_flow(gm):
        return gm
    root = torch.nn.Module()
    for name, child in gm.named_children():
        setattr(root, name, runnable(child) if isinstance(child, fx.GraphModule) else child)
    for node in gm.graph.find_nodes(op="get_attr"):
        if not hasattr(root, node.target.partition(".")[0]):
            name = node.target.partition(".")[0]
            setattr(root, name, getattr(gm, name))
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.op == "call_function" and node.target in RUNNERS:
            node.target = RUNNERS[node.target]
    return fx.GraphModule(root, graph)
