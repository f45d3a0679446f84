"""Python numbers in a graph: finds what is computed from numbers alone, and passes numbers to the compiled graph."""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import fx

from ..dtypes import to_float32

# Functions that compute a number from numbers.
_PURE = frozenset(
    value
    for module in (operator, math, builtins) for value in vars(module).values()
    if isinstance(value, type | types.BuiltinFunctionType)
) | {value for name, value in vars(torch).items() if name.startswith(("sym_", "_sym_"))} | {to_float32}  # fmt: skip


@dataclass(frozen=True)
class Computed:
    """A key for wanted number `k` if no symbol of the example inputs describes it."""

    k: int


class Numbers:
    """The numbers of a graph: its inputs at `places`, and everything that is computed from these alone.

    `wanted`: the numbers that other nodes use. Those in `passed` become 0-d tensor inputs if they are floats, the
    others constants.
    """

    def __init__(self, gm: fx.GraphModule, places: Sequence[int]) -> None:
        self.gm, self.places = gm, places
        inputs = gm.graph.find_nodes(op="placeholder")
        self.given = [inputs[i] for i in places]
        self.nodes: dict[fx.Node, None] = dict.fromkeys(self.given)
        for node in gm.graph.nodes:
            if node.op == "call_function" and node.target in _PURE and node.all_input_nodes:
                if all(arg in self.nodes for arg in node.all_input_nodes):
                    self.nodes[node] = None
        self.wanted = [node for node in self.nodes if any(user not in self.nodes for user in node.users)]
        users = {node: [user for user in node.users if user not in self.nodes] for node in self.wanted}
        self.passed = {node for node in self.wanted if all(_rewritten(user, node) for user in users[node])}
        self._compute = None if set(self.wanted) <= set(self.given) else self._prelude()

    def _prelude(self) -> Callable[..., tuple[Any, ...]]:
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        for node in self.nodes:
            env[node] = graph.node_copy(node, env.__getitem__)
        graph.output(tuple(env[node] for node in self.wanted))
        return fx.GraphModule(torch.nn.Module(), graph).forward

    def values(self, args: Sequence[Any]) -> tuple[list[Any], list[float]]:
        """A call's fixed numbers (`float` marks one that is passed), and the floats passed as tensors."""
        given = [args[i] for i in self.places]
        if self._compute is None:
            known = dict(zip(self.given, given, strict=True))
            found: Sequence[Any] = [known[node] for node in self.wanted]
        else:
            found = self._compute(*given)
        fixed, floats = [], []
        for node, value in zip(self.wanted, found, strict=True):
            if node in self.passed and type(value) is float:
                floats.append(value)
                fixed.append(float)
            else:
                fixed.append(value)
        return fixed, floats

    def example(self, k: int, examples: Sequence[Any]) -> Any:
        """The example of wanted number k: a SymInt of the example inputs, or a key of its own."""
        node = self.wanted[k]
        example = examples[self.places[self.given.index(node)]] if node in self.given else None
        return example if isinstance(example, torch.SymInt) else Computed(k)

    def fix(self, fixed: Sequence[Any]) -> fx.GraphModule:
        """The graph with these numbers as constants; `float` and `int` mark new inputs: floats, then ints."""
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {
            node: value for node, value in zip(self.wanted, fixed, strict=True) if value not in (float, int)
        }
        nodes = [node for node in self.gm.graph.nodes if node not in self.nodes]
        for node in nodes:
            if node.op == "placeholder":
                env[node] = graph.node_copy(node)
        floats = {}
        for node, value in zip(self.wanted, fixed, strict=True):
            if value is float:
                floats[node] = graph.placeholder(f"{node.name}_scalar")
        for node, value in zip(self.wanted, fixed, strict=True):
            if value is int:
                env[node] = graph.placeholder(f"{node.name}_size")
        for node in nodes:
            if node.op == "placeholder":
                continue
            args, kwargs = node.args, node.kwargs
            for used in node.all_input_nodes:
                if used in floats:
                    found = _OPERANDS[_name(node)](node, used)
                    assert found is not None, f"{node.format_node()} was found to take a tensor for {used}"
                    place, operand = found
                    scalar = graph.call_method("to", (floats[used], _dtype(operand)))
                    if place == "scale":  # a factor of an operand
                        args, kwargs = _scaled(graph, node, operand, scalar, env)
                    else:
                        env[used] = scalar
            copied_args, copied_kwargs = fx.map_arg((args, kwargs), lambda n: env.get(n, n))
            env[node] = graph.create_node(node.op, node.target, copied_args, copied_kwargs, node.name, node.type)
            env[node].meta = dict(node.meta)
        return fx.GraphModule(self.gm, graph)


# ---- floats as 0-d tensors --------------------------------------------------------------------------------

_Operand = Callable[[fx.Node, fx.Node], tuple[str, fx.Node] | None]


def _beside(node: fx.Node, number: fx.Node) -> tuple[str, fx.Node] | None:
    """The number is one of two operands; the other one is a tensor."""
    others = [arg for arg in node.args if arg is not number]
    if len(node.args) != 2 or len(others) != 1 or node.kwargs or not _is_tensor(others[0]):
        return None
    return "operand", others[0]


def _beside_or_alpha(node: fx.Node, number: fx.Node) -> tuple[str, fx.Node] | None:
    """Like `_beside`, or the number is `alpha`: the factor of the second operand."""
    if set(node.kwargs) == {"alpha"} and node.kwargs["alpha"] is number:
        return _factor(node, number, 2)
    return _beside(node, number)


def _value(node: fx.Node, number: fx.Node) -> tuple[str, fx.Node] | None:
    """The number is `value`: the factor of the second of three operands."""
    return _factor(node, number, 3) if set(node.kwargs) == {"value"} else None


def _factor(node: fx.Node, number: fx.Node, operands: int) -> tuple[str, fx.Node] | None:
    if len(node.args) != operands or number in node.args or not all(map(_is_tensor, node.args)):
        return None
    scaled = node.args[1]
    assert isinstance(scaled, fx.Node)
    return ("scale", scaled) if _fake(scaled).is_floating_point() else None


def _written(node: fx.Node, number: fx.Node) -> tuple[str, fx.Node] | None:
    """The number is the last argument, and is written into the first one."""
    if node.kwargs or node.args[-1] is not number or number in node.args[:-1] or not _is_tensor(node.args[0]):
        return None
    target = node.args[0]
    assert isinstance(target, fx.Node)
    return ("operand", target) if _fake(target).is_floating_point() else None


_ARITHMETIC = "mul div true_divide truediv multiply divide pow floordiv mod eq ne lt le gt ge".split()
_SUMS = "add sub subtract".split()
_OPERANDS: dict[str, _Operand] = {
    **dict.fromkeys(_ARITHMETIC, _beside), **dict.fromkeys(_SUMS, _beside_or_alpha),
    **dict.fromkeys(("addcmul", "addcdiv"), _value), **dict.fromkeys(("setitem", "fill", "masked_fill"), _written),
}  # fmt: skip


_OUT_OF_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul, operator.ipow: operator.pow,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
}  # fmt: skip


def _name(node: fx.Node) -> str:
    """The name of the operation, the same for its in-place form."""
    target: Any = _OUT_OF_PLACE.get(node.target, node.target)
    name: str = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.strip("_")


def _rewritten(node: fx.Node, number: fx.Node) -> bool:
    """Whether `node` can take a 0-d tensor instead of a float."""
    operands = _OPERANDS.get(_name(node))
    return operands is not None and operands(node, number) is not None


def _fake(node: fx.Node) -> torch.Tensor:
    return node.meta["val"]


def _is_tensor(value: Any) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _dtype(operand: fx.Node) -> torch.dtype:
    """The dtype for a float operand: the one operators compute in, if that keeps the result's dtype."""
    fake = _fake(operand)
    # a meta tensor: in inference mode result_type reaches the fake tensor's mode, which refuses a real tensor beside it
    other = torch.empty((0,) * fake.dim(), dtype=fake.dtype, device="meta")
    wanted = torch.result_type(other, 1.0)
    computed = torch.float32 if wanted in (torch.float16, torch.bfloat16, torch.float32) else torch.float64
    right = torch.result_type(other, torch.empty((), dtype=computed, device="meta")) == wanted
    return computed if right else wanted


def _scaled(
    graph: fx.Graph, node: fx.Node, operand: fx.Node, scalar: fx.Node, env: dict[fx.Node, Any]
) -> tuple[Any, Any]:
    """The arguments of `node` with its second operand multiplied by `scalar`, without the factor's keyword."""
    product = graph.call_function(operator.mul, (env[operand], scalar))
    return (node.args[0], product, *node.args[2:]), {}
