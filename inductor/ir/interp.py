"""An interpreter of the loop IR in torch, which computes all points of a loop nest at once.

Tests compare generated code with it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import philox
from .body import LoopBody, Op, Ref, SubBody
from .buffer import Buffer, ComputedBuffer, ExternKernel, Layout, View
from .nodes import BufferView, GraphIR
from .size import AnySize
from .symbolic import Index, evaluate

_NAMED: dict[str, Callable[..., torch.Tensor]] = {
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "erf": torch.special.erf,
    "ndtr": torch.special.ndtr,
    "relu": torch.relu,
    "random_bits": philox.random_bits,
}

_REDUCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
}

_NEUTRAL = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "any": 0, "all": 1, "argmax": -math.inf,
            "argmin": math.inf}  # fmt: skip


_SCAN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.cumsum(-1),
    "prod": lambda x: x.cumprod(-1),
    "max": lambda x: x.cummax(-1).values,
    "min": lambda x: x.cummin(-1).values,
    "logsumexp": lambda x: x.logcumsumexp(-1),
    "argmax": lambda x: x.cummax(-1).indices,
    "argmin": lambda x: x.cummin(-1).indices,
}

_COMBINE = {"mul": "prod", "max": "amax", "min": "amin"}  # modes of stores, as index_reduce calls them


def _known(sizes: Sequence[AnySize]) -> tuple[int, ...]:
    """Sizes as ints. Raises Unsupported for a symbolic one."""
    return tuple(map(operator.index, sizes))


class _Run:
    """Runs one body for all points at once. A value is a tensor with one dimension per loop variable, of size 1 along
    the variables on which it does not depend."""

    def __init__(self, body: LoopBody, memory: Mapping[str, torch.Tensor]) -> None:
        self.body, self.memory = body, memory
        self.outer, self.inner = _known(body.iter_sizes), _known(body.reduce_sizes)
        self.sizes = self.outer + self.inner
        self.env: dict[str, Any] = {}
        for d, (var, size) in enumerate(zip(body.iter_vars + body.reduce_vars, self.sizes)):
            shape = [1] * len(self.sizes)
            shape[d] = size
            self.env[var.name] = torch.arange(size).reshape(shape)

    def index(self, expr: Index) -> torch.Tensor:
        return torch.as_tensor(evaluate(expr, self.env), dtype=torch.int64)

    def run(self, ops: Sequence[Op], values: list[Any], mask: torch.Tensor | None = None) -> list[Any]:
        for op in ops:
            values.append(self.op(op, values, mask))
        return values

    def op(self, op: Op, values: list[Any], mask: torch.Tensor | None) -> Any:
        args = [values[a.i] if isinstance(a, Ref) else a for a in op.args]
        match op.name:
            case "load":
                return self.load(args[0], args[1], mask)
            case "store":
                return self.store(*args)
            case "reduction":
                return self.reduce(*args).to(op.dtype)
            case "scan":
                return self.scan(*args).to(op.dtype)
            case "sort":
                return self.sort(*args).to(op.dtype)
            case "constant":
                return torch.tensor(args[0], dtype=op.dtype)
            case "index_expr":
                return self.index(args[0]).to(op.dtype)
            case "indirect":
                value, sym, size = args[:3]
                self.env[sym.name] = torch.where(value < 0, value + size, value).to(torch.int64)
                return self.env[sym.name]
            case "masked":
                return self.masked(args[0], args[1], args[2], values, mask)
            case "to_dtype":
                return args[0].to(op.dtype)
            case "bitcast":
                return args[0].view(op.dtype)
            case "as_stored":
                return args[0].to(getattr(torch, args[1])).to(op.dtype)
        result = (_NAMED.get(op.name) or getattr(torch, op.name))(*args)
        if result.dtype != op.dtype:
            raise TypeError(f"{op.name} gives {result.dtype}, its body says {op.dtype}")
        return result

    def load(self, buf: str, expr: Index, mask: torch.Tensor | None) -> torch.Tensor:
        index, flat = self.index(expr), self.memory[buf]
        if 0 in self.sizes:  # no point is computed; a variable of size 0 does not occur in the index
            return flat.new_empty(self.sizes)
        if mask is not None:
            index = torch.where(mask, index, 0)
        if index.numel() and not (0 <= int(index.min()) and int(index.max()) < len(flat)):
            raise IndexError(f"load from {buf} at {expr} leaves its {len(flat)} elements")
        return flat[index]

    def store(
        self, buf: str, expr: Index, value: torch.Tensor, mode: str | None, where: torch.Tensor | None = None
    ) -> None:
        index = self.index(expr)
        # A store after a reduction runs once per point of the iteration variables, one after a scan at every point.
        full = torch.broadcast_shapes(index.shape, value.shape, self.outer + (1,) * len(self.inner))
        if where is not None:
            full = torch.broadcast_shapes(full, where.shape)
            where = where.broadcast_to(full).reshape(-1)
        index, value = index.broadcast_to(full).reshape(-1), value.broadcast_to(full).reshape(-1)
        if where is not None:
            index, value = index[where], value[where]
        if mode in _COMBINE:
            self.memory[buf].index_reduce_(0, index, value, _COMBINE[mode])
        elif mode == "add":
            self.memory[buf].index_add_(0, index, value)
        else:
            self.memory[buf][index] = value

    def reduce(self, kind: str, value: torch.Tensor, *bounds: torch.Tensor) -> torch.Tensor:
        if bounds:
            at = self.env[self.body.reduce_vars[0].name]
            counts = (at >= bounds[0]) & (at < bounds[1])
            value = torch.where(counts, value, torch.tensor(_NEUTRAL[kind]).to(value.dtype))
        flat = value.broadcast_to(self.sizes).reshape(*self.outer, math.prod(self.inner))
        return _REDUCE[kind](flat).reshape(self.outer + (1,) * len(self.inner))

    def scan(self, kind: str, value: torch.Tensor, reverse: bool) -> torch.Tensor:
        flat = value.broadcast_to(self.sizes).reshape(*self.outer, math.prod(self.inner))
        out = _SCAN[kind](flat.flip(-1)).flip(-1) if reverse else _SCAN[kind](flat)
        return out.reshape(self.sizes)

    def sort(self, what: str, value: torch.Tensor, descending: bool, element: str, count: int) -> torch.Tensor:
        flat = value.broadcast_to(self.sizes).reshape(*self.outer, math.prod(self.inner))
        found = torch.sort(flat, dim=-1, descending=descending, stable=True)
        return (found.values if what == "values" else found.indices).reshape(self.sizes)

    def masked(
        self, mask: torch.Tensor, sub: SubBody, other: Any, values: list[Any], outer: torch.Tensor | None
    ) -> torch.Tensor:
        inner = mask if outer is None else mask & outer
        result = self.run(sub.ops, values[: sub.start] + [None] * (sub.start - len(values)), inner)[sub.result.i]
        return torch.where(mask, result, torch.tensor(other, dtype=result.dtype))


def run_body(body: LoopBody, memory: Mapping[str, torch.Tensor]) -> None:
    """Runs a body on one-dimensional tensors, given by buffer name.

    Raises IndexError for a load outside its buffer, and TypeError if the dtype of a result is not what the body states.
    """
    run = _Run(body, memory)
    run.run(body.ops, [])


def flatten(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, from its first element on, as a one-dimensional view."""
    return tensor.as_strided((Layout.of(tensor).extent,), (1,), tensor.storage_offset())


def _parts(flat: torch.Tensor) -> torch.Tensor:
    """Memory as loops access it: of complex numbers, their parts."""
    return torch.view_as_real(flat).flatten() if flat.is_complex() else flat


def run_graph(graph: GraphIR, inputs: Sequence[Any]) -> list[Any]:
    """Runs a graph on `inputs` and returns its outputs. Inputs that the graph mutates are written."""
    memory: dict[str, torch.Tensor] = {}
    for buffer, value in zip(graph.inputs, inputs):
        if isinstance(buffer, Buffer):
            memory[buffer.name] = flatten(value)
    for buffer in graph.constants:
        memory[buffer.name] = flatten(buffer.value)

    def tensor(buffer: Buffer, layout: Layout) -> torch.Tensor:
        flat = memory[buffer.name]
        return flat.as_strided(layout.size, layout.stride, flat.storage_offset() + layout.offset)

    def operand(arg: Any) -> Any:
        if isinstance(arg, View | BufferView):
            return tensor(arg.buffer, arg.layout)
        if isinstance(arg, Buffer):
            return tensor(arg, arg.layout)
        return type(arg)(map(operand, arg)) if isinstance(arg, list | tuple) else arg

    for node in graph.buffers:
        if isinstance(node, ComputedBuffer):
            if node.mutates is None:
                memory[node.name] = torch.empty(node.layout.extent, dtype=node.dtype)
            run_body(node.body, {name: _parts(flat) for name, flat in memory.items()})
        elif isinstance(node, ExternKernel):
            result = node.target(*map(operand, node.args), **{k: operand(v) for k, v in node.kwargs.items()})
            results = result if node.returns_tuple else (result,)
            for out, value in zip(node.outputs, results):
                if out is not None:
                    if value.stride() != out.layout.stride and value.numel() > 1:
                        raise ValueError(f"{node.target} gave strides {value.stride()}, expected {out.layout.stride}")
                    memory[out.name] = flatten(value)
    return [operand(out) for out in graph.outputs]
