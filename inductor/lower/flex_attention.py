"""Lowering of flex_attention on a GPU: a unit with the loop nest of its functions, which code generation makes part of
attention kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..errors import Unsupported
from ..ir.body import LoopBody, Ref, TracingHandler, trace
from ..ir.buffer import Buffer, InputBuffer, MultiOutput, View
from ..ir.flex_attention import (
    CHANGED,
    DIFFERENTIATED,
    GRADIENT,
    KEPT,
    SCORE,
    Blocks,
    FlexFunctions,
    FlexKernel,
    functions_of,
)
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue
from ..ir.size import AnySize
from ..ir.symbolic import Expr, Index, Sym
from .common import used_results
from .graph import GraphLowering
from .layouts import static_layout
from .registry import Unlowered, lowering

MAX_WORK = 2000  # operations of a function for each score


class _Lowered(GraphLowering):
    """Lowers the graph of a function of scores to one expression: no value is stored, and no operator of ATen called.
    `given` are the values of the graph's placeholders."""

    def __init__(self, given: Sequence[TensorValue]) -> None:
        super().__init__()
        self.given = list(given)

    def placeholder(self) -> Any:
        return self.given.pop(0)

    def constant(self, gm: fx.GraphModule) -> Any:
        value = getattr(gm, str(self.node.target))
        if not isinstance(value, torch.Tensor) or value.dim() or value.device.type != "cpu":
            raise Unlowered
        number, dtype = value.item(), value.dtype
        return Pointwise(value.device, dtype, (), lambda _: ops.constant(number, dtype))

    def kept(self, value: Any, users: Sequence[fx.Node] | None = None) -> Any:
        return value

    def extern(self, target: Any) -> Any:
        raise Unlowered

    def add_computed(self, *_: Any) -> Any:
        raise Unlowered

    def result(self, gm: fx.GraphModule) -> TensorValue:
        """The value of the graph's single result."""
        nodes = list(gm.graph.nodes)
        for self.node in nodes[:-1]:
            self.val = self.node.meta.get("val")
            if self.node.op == "placeholder":
                self.env[self.node] = self.placeholder()
            elif self.node.op == "get_attr":
                self.env[self.node] = self.constant(gm)
            else:
                self.env[self.node] = self.call()
        (result,) = nodes[-1].args[0]
        found: TensorValue = self.env[result]
        if isinstance(found, Pointwise) and found.work > MAX_WORK:
            raise Unlowered
        return found


class _InRange(TracingHandler):
    """Records an index that is computed from loop variables as part of the address, if it is certain to be within
    bounds: it is then neither checked nor wrapped."""

    def indirect(self, value: Ref, size: int, inside: bool = False) -> Index:
        """As in Handler."""
        op = self._op(value)
        while op is not None and op.name == "to_dtype" and not op.dtype.is_floating_point:
            op = self._op(op.args[0])
        if op is not None and op.name == "index_expr":
            bounds = _bounds(op.args[0])
            if bounds is not None and 0 <= bounds[0] and bounds[1] < size:
                index: Index = op.args[0]
                return index
        return super().indirect(value, size, inside)


def _bounds(index: Index) -> tuple[AnySize, AnySize] | None:
    """The least and greatest value of an index; None if it divides."""
    if not isinstance(index, Expr):
        return index, index
    if not all(isinstance(atom, Sym) for atom, _ in index.terms):
        return None
    ends = [coef * (atom.size - 1) for atom, coef in index.terms if isinstance(atom, Sym)]
    return index.const + sum(min(end, 0) for end in ends), index.const + sum(max(end, 0) for end in ends)


def _places(sizes: Sequence[int], device: torch.device) -> list[Pointwise]:
    """The ranges of the four indices."""
    return [Pointwise(device, torch.int32, (n,), lambda at: ops.index_expr(at[0], torch.int32)) for n in sizes]


def body_of(
    functions: FlexFunctions, sizes: tuple[int, int, int, int], score_others: Sequence[TensorValue],
    mask_others: Sequence[TensorValue], backward: bool,
) -> LoopBody:
    """The loop nest over [B, Hq, M, N] that computes the functions. Unlowered if they are more than expressions."""
    device = torch.device("cpu")  # no lowering that is possible here depends on it

    def register(name: str) -> Pointwise:
        return Pointwise(device, torch.float32, sizes, lambda at: ops.load(name, at[3], torch.float32))

    places = _places(sizes, device)
    results = {CHANGED: _Lowered([register(SCORE), *places, *score_others]).result(functions.score)}
    results[KEPT] = _Lowered([*places, *mask_others]).result(functions.mask)
    if backward:
        assert functions.gradient is not None
        given = [register(GRADIENT), register(SCORE), *places, *score_others]
        results[DIFFERENTIATED] = _Lowered(given).result(functions.gradient)

    def run(index: tuple[Index, ...], _: tuple[Index, ...]) -> None:
        for name, value in results.items():
            dtype = torch.bool if name == KEPT else torch.float32
            own = [i if n != 1 else 0 for i, n in zip(index[4 - len(value.size) :], value.size)]
            ops.store(name, index[3], ops.to_dtype(value.load(own), dtype))

    return trace(sizes, (), run, _InRange())


def is_expression(functions: FlexFunctions, sizes: tuple[int, int, int, int], others: Sequence[Any]) -> bool:
    """Whether kernels can compute the functions. `others`: fake tensors that the score_mod and the mask_mod read."""
    given = [[_view(x, f"{k}_{i}") for i, x in enumerate(each)] for k, each in enumerate(others)]
    try:
        body_of(functions, sizes, given[0], given[1], functions.gradient is not None)
    except (Unlowered, Unsupported):
        return False
    return True


def _view(x: Any, name: str) -> BufferView:
    layout = static_layout(x)
    return BufferView(InputBuffer(name, layout), layout)


def _operand(graph: GraphLowering, value: TensorValue) -> Buffer | View:
    memory = value.realize(graph)
    return memory.buffer if memory.layout == memory.buffer.layout else View(memory.buffer, memory.layout)


def _kernel(
    graph: Any, query: TensorValue, key: TensorValue, value: TensorValue, rows: Sequence[TensorValue],
    blocks: Sequence[TensorValue], others: tuple[Sequence[TensorValue], Sequence[TensorValue]], scale: float,
    number: int, outputs: Callable[[str], tuple[Any, ...]],
) -> tuple[BufferView | None, ...]:
    """Adds the unit to the graph; returns its results."""
    functions = functions_of(number)
    sizes = (*query.size[:3], key.size[2])
    read = [[x.realize(graph) for x in each] for each in others]
    inputs, of_rows, listed = ([_operand(graph, x) for x in each] for each in ((query, key, value), rows, blocks))
    body = body_of(functions, sizes, read[0], read[1], backward=bool(rows))
    pairs = [Blocks(*listed[k : k + 2]) for k in range(0, len(listed), 2)]
    directions = 2 if rows else 1
    each = len(pairs) // directions  # one of partial blocks, and perhaps one of full blocks
    captured = [x.buffer for each_of in read for x in each_of]
    name = graph.fresh()
    outs = outputs(name)
    kernel = FlexKernel(
        name, graph.node.target, (*inputs, *of_rows, *listed, *captured), {}, outs, (graph.node,), returns_tuple=True,
        query=inputs[0], key=inputs[1], value=inputs[2],
        partial=tuple(pairs[::each]) if pairs else (None,) * directions,
        full=tuple(pairs[1::each]) if each > 1 else (), rows=tuple(of_rows), body=body, scale=scale,
        block_size=functions.block_size, options=functions.options,
    )  # fmt: skip
    graph.buffers.append(kernel)
    return tuple(None if out is None else BufferView(out, out.layout) for out in outs)


def _outputs(graph: Any, all_used: bool) -> Callable[[str], tuple[Any, ...]]:
    used = set(range(len(graph.val))) if all_used else used_results(graph.node)

    def make(name: str) -> tuple[Any, ...]:
        layouts = map(static_layout, graph.val)
        return tuple(MultiOutput(f"{name}_{k}", at, k) if k in used else None for k, at in enumerate(layouts))

    return make


@lowering("pyframe::flex_attention")
def flex_attention(
    graph: Any, query: TensorValue, key: TensorValue, value: TensorValue, blocks: Sequence[TensorValue],
    score_others: Sequence[TensorValue], mask_others: Sequence[TensorValue], scale: float, number: int,
) -> tuple[BufferView | None, ...]:
    """Output, logsumexp and maximum. `blocks`: counts and places of the partial and, if there are any, full blocks of
    each row."""
    others = score_others, mask_others
    return _kernel(graph, query, key, value, (), blocks, others, scale, number, _outputs(graph, False))


@lowering("pyframe::flex_attention_backward")
def flex_attention_backward(
    graph: Any, query: TensorValue, key: TensorValue, value: TensorValue, gradient: TensorValue, logsumexp: TensorValue,
    delta: TensorValue, blocks: Sequence[TensorValue], score_others: Sequence[TensorValue],
    mask_others: Sequence[TensorValue], scale: float, number: int,
) -> tuple[BufferView | None, ...]:
    """The gradients of query, key and value. `blocks`: as in the forward, and then the same of each column."""
    rows, others = (gradient, logsumexp, delta), (score_others, mask_others)
    return _kernel(graph, query, key, value, rows, blocks, others, scale, number, _outputs(graph, True))
