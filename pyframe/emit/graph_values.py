"""Conversion between Vars and what operators take and return: arguments of graph nodes, fake tensors, results."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import ListVar, SliceVar, TupleVar
from ..vars.higher_order.derivatives import FunctionResultVar
from ..vars.numbers.numpy_scalars import NUMPY_NUMBERS, NumpyArgumentVar, NumpyNumberVar
from ..vars.numbers.symint import NestedIntVar, NumberVar
from ..vars.objects.namedtuple import NamedTupleVar
from ..vars.protocol.base import NotConstant, Var
from ..vars.protocol.const import ConstVar, make
from ..vars.protocol.graph_object import GraphObjectVar
from ..vars.torch_objects.distributed_tensors import note_masks
from ..vars.torch_objects.loop_varying import RuntimeValueVar
from ..vars.torch_objects.tensor import TAKES_FLOATS, TensorVar
from ..vars.torch_objects.wrapper_subclass import of_result
from ..vars.tracer import Tracer
from .graph_inputs import GraphInputs
from .graph_numbers import GraphNumbers
from .graph_stack import GraphStack

# Calls whose nodes are kept although their results are unused.
_EFFECTFUL = {torch._C._set_grad_enabled}
# The dtypes that torch's operators use for these classes, whatever the default dtype is.
_DTYPES: dict[type, torch.dtype] = {
    float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128,
}  # fmt: skip
# Types of constants that nodes take as they are.
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype})
# Types of constants that the code of a graph cannot contain.
_NOT_PRINTED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


class GraphValues:
    """Converts arguments of operators to what their nodes and their fake runs take, and results to Vars.

    `only_constants`: if set, numbers that vary break the graph. `by_example`: an argument of the last operator is a
    float that varies, for which the fake run used its example value.
    """

    def __init__(self, tx: Tracer, stack: GraphStack, inputs: GraphInputs, numbers: GraphNumbers) -> None:
        self._tx, self._stack, self._inputs, self._numbers = tx, stack, inputs, numbers
        self._takes_floats = False
        # For each node that returns one of its arguments: that tensor, and the node that represented it before.
        self._replaced: dict[fx.Node, tuple[TensorVar, fx.Node]] = {}
        self.only_constants = False
        self.by_example = False

    # ---- arguments ----
    def begin(self, target: Any) -> None:
        """Convert arguments for this operator from here on."""
        self._takes_floats, self.by_example = target in TAKES_FLOATS, False

    def for_node(self, value: Any) -> Any:
        """An argument of a node: for a Var its node or its constant, and the same in containers."""
        return self._convert(value, fake=False)

    def for_fake(self, value: Any) -> Any:
        """An argument of a run on fake tensors."""
        return self._convert(value, fake=True)

    def _convert(self, value: Any, fake: bool) -> Any:
        if type(value) is tuple:  # of Vars and plain values, as a model passes it
            return tuple(self._convert(v, fake) for v in value)
        if not isinstance(value, Var):
            return value
        if isinstance(value, TensorVar):
            return value.fake if fake else self._stack.node_of(value)
        if isinstance(value, FunctionResultVar):
            return self._function_result(value, fake)
        if isinstance(value, GraphObjectVar):
            return None if fake else self._object(value)  # generators: not all fake tensor kernels accept them
        if isinstance(value, NumberVar):
            return self._number(value, fake)
        if isinstance(value, NestedIntVar) and value.of is not None:
            return value.value if fake else self._ragged_size(*value.of, value.value)
        if isinstance(value, SliceVar):
            return slice(*(self._convert(part, fake) for part in value.parts))
        if isinstance(value, ListVar):
            return [self._convert(v, fake) for v in value.items]
        if isinstance(value, TupleVar):
            if not any(isinstance(item, NumpyNumberVar) for item in value.items) and value.is_constant():
                return self._with_python_numbers(value.constant())
            return tuple(self._convert(v, fake) for v in value.items)
        if isinstance(value, DictVar):
            return {k: self._convert(v, fake) for k, v in value.items.items()}
        if isinstance(value, NumpyArgumentVar):
            return self._number(value.number, fake)
        if isinstance(value, NumpyNumberVar):
            return self._numpy_number(value.constant())
        try:
            found = self._with_python_numbers(value.constant())
            if isinstance(found, type):
                found = _DTYPES.get(found, found)
            if isinstance(found, _NOT_PRINTED):
                what = f"{value.describe()} as an argument of a torch function"
                return self._tx.graph_break("unsupported-object", what)
            return found
        except NotConstant:
            if isinstance(value, RuntimeValueVar):
                value.make_symbolic(self._tx)
                value.specialize(self._tx)
            what = f"{value.describe()} as an argument of a torch function"
            return self._tx.graph_break("unsupported-object", what)

    def _ragged_size(self, tensor: Var, dim: int, size: torch.SymInt) -> fx.Node:
        """A node that reads a ragged size of a jagged tensor."""
        node = self._stack.current.call_method("size", (self.for_node(tensor), dim))
        node.meta["val"] = size
        return self._stack.annotate(node)

    def _function_result(self, value: FunctionResultVar, fake: bool) -> Any:
        if fake:
            return value.held
        inside = value.node.graph is self._stack.current
        return value.node if inside else self._stack.lift(value.node, value, None)

    def _number(self, value: NumberVar, fake: bool) -> Any:
        takes_floats = self._takes_floats and self._tx.options.float_inputs
        if value.is_constant() or (value.sym is None and (self._stack.is_nested or not takes_floats)):
            return value.constant()
        if self.only_constants:
            what = f"{value.describe()}, in a transformed function"
            self._tx.graph_break("unsupported-object", what)
        if fake:
            self.by_example |= value.sym is None
            return value.example if value.sym is None else value.sym
        return self._numbers.node(value.tree)

    def _with_python_numbers(self, value: Any) -> Any:
        """A constant with Python's numbers in the place of numpy scalars in tuples and slices."""
        cls = type(value)
        if cls in _PLAIN:  # most constants
            return value
        if cls is tuple:
            return tuple(map(self._with_python_numbers, value))
        if cls is slice:
            return slice(*map(self._with_python_numbers, (value.start, value.stop, value.step)))
        return self._numpy_number(value) if isinstance(value, NUMPY_NUMBERS) else value

    def _numpy_number(self, found: Any) -> Any:
        """A numpy scalar as torch converts it. It takes those that are neither int, float nor Python's complex for
        floats, with a warning for complex ones."""
        number = found.item()
        if type(number) not in (int, float) and not isinstance(found, complex):
            what = f"numpy.{type(found).__name__} as an argument of a torch function"
            self._tx.graph_break("unsupported-object", what)
        return number

    def _object(self, value: GraphObjectVar) -> fx.Node:
        """The node of an object that exists before the frame, or that another node creates."""
        if self._stack.is_nested:
            what = f"{value.describe()} in a function that is the argument of an operator"
            return self._tx.graph_break("unsupported-object", what)
        if value.node is None:
            assert value.source is not None
            value.node = self._inputs.add(value.source, value.example)
        return value.node

    # ---- results ----
    def wrap(self, node: fx.Node, result: Any, args: Sequence[TensorVar]) -> Var:
        """The Var of a node's result. `args`: the tensors among its arguments."""
        graph = self._stack.current
        if isinstance(result, torch.Tensor):
            return self._wrap_tensor(node, result, args)
        if isinstance(result, types.FunctionType | functools.partial):
            return FunctionResultVar(node, result, 0)
        if isinstance(result, (tuple, list)) and holds_tensor(result):
            items = []
            for i, item in enumerate(result):
                part = self._stack.annotate(graph.call_function(operator.getitem, (node, i)))
                items.append(self.wrap(part, item, args))
            if isinstance(result, list):
                return ListVar(items)
            if hasattr(type(result), "_fields") or type(result) is not tuple:  # torch.return_types.*, for one
                return NamedTupleVar(type(result), items)
            return TupleVar(items)
        if isinstance(result, dict) and holds_tensor(result):
            found = _arranged(result, args)
            if found is None:
                self._tx.graph_break("unsupported-torch-op", f"{node.target} returns a dict of new tensors")
            graph.erase_node(node)
            return found
        if isinstance(result, Iterator):
            self._tx.graph_break("unsupported-torch-op", f"{node.target} returns an iterator")
        if self._numbers.register_new(node, result):
            node.meta["val"] = result
        elif node.op == "call_function" and node.target not in _EFFECTFUL or node.op == "call_method":
            if not node.users and result is not None and not getattr(node.target, "runs_backward", False):
                graph.erase_node(node)
        return make(result) if not isinstance(result, (torch.dtype, torch.device)) else ConstVar(result)

    def _wrap_tensor(self, node: fx.Node, result: torch.Tensor, args: Sequence[TensorVar]) -> Var:
        for arg in args:  # an in-place operation returns its argument, the same object
            if arg.fake is result:
                if arg.node.graph is not self._stack.current:
                    what = "a transformed function changes an outer tensor in place"
                    self._tx.graph_break("unsupported-object", what)
                node.meta["val"] = result
                self._replaced[node] = arg, arg.node
                arg.node = node
                return arg
        node.meta["val"] = result
        self._numbers.register_new(node, result)
        made = of_result(TensorVar(node, result, None, type(result)))
        note_masks(self._tx, made)
        return made

    def forget(self, node: fx.Node) -> None:
        """The node is about to be removed: a tensor that it returned is represented by its former node again."""
        if node in self._replaced:
            tensor, before = self._replaced.pop(node)
            tensor.node = before


def tensors_in(values: Sequence[Any]) -> Iterator[TensorVar]:
    """The tensors among arguments, including those in lists and tuples."""
    for value in values:
        if isinstance(value, TensorVar):
            yield value
        elif isinstance(value, ListVar | TupleVar):
            yield from tensors_in(value.items)


def holds_tensor(value: Any) -> bool:
    """Whether a result is a tensor or a container with one."""
    if isinstance(value, tuple | list | dict):
        return any(map(holds_tensor, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _arranged(value: Any, args: Sequence[TensorVar]) -> Any:
    """The result of a function that only arranges its arguments in other containers; None if it created a tensor."""
    if isinstance(value, torch.Tensor):
        return next((arg for arg in args if arg.fake is value), None)
    if not holds_tensor(value):
        return make(value)
    parts = [_arranged(part, args) for part in (value.values() if isinstance(value, dict) else value)]
    if any(part is None for part in parts):
        return None
    if isinstance(value, dict):
        return DictVar(dict(zip(value, parts, strict=True)))
    return ListVar(parts) if isinstance(value, list) else TupleVar(parts)


def forget_values(result: Any) -> None:
    """Drop constant values that were computed from the example of a float that varies."""
    for item in result if isinstance(result, list | tuple) else (result,):
        if hasattr(item, "constant"):
            item.constant = None
