"""Runs a captured graph with ATen and adds to exceptions which operator raised, its operands, and the user's line."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..dtypes import dtype_name
from ..fx_utils.places import name_of, user_place
from .higher_order import runnable

_MAX_OPERANDS = 6


def run_with_aten(gm: fx.GraphModule) -> Callable[..., Any]:
    """A callable that runs `gm`. Exceptions of operators keep their type; the message is extended by the operator, the
    dtypes and sizes of its operands, the range of integer values, and the user's line."""
    graph = runnable(gm)
    forward = graph.forward

    def call(*args: Any) -> Any:
        try:
            return forward(*args)
        except Exception as error:
            _explain(error, graph)
            raise

    return call


def _explain(error: Exception, gm: fx.GraphModule) -> None:
    found = _raising(error, gm)
    if found is None or hasattr(error, "graph_node"):
        return
    node, values = found
    error.graph_node = node  # type: ignore[attr-defined]  # as for the compiler's own errors
    operands = [_describe(values.get(arg.name)) for arg in node.all_input_nodes[:_MAX_OPERANDS]]
    place = user_place(node)
    text = f"raised by {name_of(node)}({', '.join(operands)})" + (f" at {place}" if place else "")
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{text}",)
    else:
        error.add_note(text)


def _raising(error: Exception, gm: fx.GraphModule) -> tuple[fx.Node, dict[str, Any]] | None:
    """The node that was running, and the values of earlier nodes by name: they are locals of `forward`."""
    names = {node.name for node in gm.graph.find_nodes(op="placeholder")}
    frame: types.FrameType | None = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_name == "forward" and names.issubset(step.tb_frame.f_locals):
            frame = step.tb_frame
        step = step.tb_next
    if frame is None or not names:
        return None
    values = dict(frame.f_locals)
    calls = (node for node in gm.graph.nodes if node.op.startswith("call"))
    node = next((node for node in calls if node.name not in values), None)
    return None if node is None else (node, values)


def _describe(value: Any) -> str:
    """A tensor's dtype and sizes, and for integers on the CPU the range of values."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    text = f"{dtype_name(value.dtype)}{list(value.shape)}"
    whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    if whole and value.numel() and value.device.type == "cpu" and value.layout == torch.strided:
        low, high = torch.aminmax(value.detach())
        text += f" with values from {int(low)} to {int(high)}"
    return text
