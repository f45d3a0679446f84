"""Prints the loop IR as readable text, for logs and dumps."""

from __future__ import annotations

from typing import Any

from ..dtypes import dtype_name
from .body import LoopBody, Op, Ref, SubBody
from .buffer import ComputedBuffer, ExternKernel
from .nodes import GraphIR
from .symbolic import Sym


def print_body(body: LoopBody) -> str:
    """A loop body as text: a line with the loops, then one line per op."""
    loops = [f"for {v.name} in range({v.size}):" for v in body.iter_vars]
    inner = [f"reduce {v.name} in range({v.size}):" for v in body.reduce_vars]
    return "\n".join([" ".join(loops + inner) or "once:", *_lines(body.ops, 0, "  ")])


def print_graph(graph: GraphIR) -> str:
    """A lowered graph as text: its inputs, then each computed buffer with its body and each ATen call."""
    parts = [f"inputs: {', '.join(getattr(i, 'name', str(i)) for i in graph.inputs)}"]
    for node in graph.buffers:
        if isinstance(node, ComputedBuffer):
            where = f" -> {node.mutates}" if node.mutates else ""
            parts.append(f"{node.name}{where}: {node.dtype} {node.layout.size} {node.layout.stride}")
            parts.append(print_body(node.body))
        elif isinstance(node, ExternKernel):
            names = [getattr(a, "name", None) or a.buffer.name for a in node.operands()]  # type: ignore[union-attr]
            outs = ", ".join(o.name if o else "None" for o in node.outputs)
            parts.append(f"{outs} = {node.target}({', '.join(names)})")
    return "\n".join(parts)


def _lines(ops: tuple[Op, ...], start: int, indent: str) -> list[str]:
    out = []
    for i, op in enumerate(ops, start):
        left = "" if op.name == "store" else f"%{i} = "
        out.append(f"{indent}{left}{op.name}({', '.join(map(_arg, op.args))}): {dtype_name(op.dtype)}")
        for arg in op.args:
            if isinstance(arg, SubBody):
                out += _lines(arg.ops, arg.start, indent + "  ") + [f"{indent}  yield {_arg(arg.result)}"]
    return out


def _arg(arg: Any) -> str:
    if isinstance(arg, Ref):
        return f"%{arg.i}"
    if isinstance(arg, Sym):
        return arg.name
    return "..." if isinstance(arg, SubBody) else str(arg)
