"""FX graphs as plain data that `marshal` stores, for graphs that have a key: their nodes call functions of Python and
torch by name, with plain arguments."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .. import modes
from .process_key import is_own_function, is_own_operator

_PLAIN = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis))
_MODES = {id(getattr(modes, name)): name for name in ("ENTER_INFERENCE", "EXIT_INFERENCE", "ENTER_DUAL", "EXIT_DUAL")}
_MODULES = ("torch", "_operator", "operator", "math", "builtins")


class NotData(Exception):
    """A graph holds something that has no name in another process."""


def graph_as_data(gm: fx.GraphModule) -> tuple[Any, ...]:
    """The nodes of a graph: operation, name, target, arguments, and where each comes from. NotData if that is
    impossible."""
    if getattr(gm, "settings", ()):
        raise NotData("a graph that writes settings of the process")
    numbers: dict[fx.Node, int] = {}
    nodes = []
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output", "call_function", "call_method"):
            raise NotData(f"a node {node.op}")
        target = _target(node.target) if node.op == "call_function" else str(node.target)
        stack = node.meta.get("nn_module_stack")
        path = str(next(reversed(stack.values()))[0]) if stack else ""
        args, kwargs = _data(tuple(node.args), numbers), _data(dict(node.kwargs), numbers)
        nodes.append((node.op, node.name, target, args, kwargs, node.meta.get("stack_trace") or "", path))
        numbers[node] = len(numbers)
    return tuple(nodes)


def graph_of(data: Sequence[Any]) -> fx.GraphModule:
    """The graph of this data. NotData if it calls something that this process does not have."""
    graph = fx.Graph()
    made: list[fx.Node] = []
    for op, name, target, args, kwargs, stack_trace, path in data:
        called = _function(target) if op == "call_function" else target
        node = graph.create_node(op, called, _value(args, made), _value(kwargs, made), name)
        if stack_trace:
            node.meta["stack_trace"] = stack_trace
        if path:
            node.meta["nn_module_stack"] = {path: (path, None)}
        made.append(node)
    return modes.graph_module(torch.nn.Module(), graph)


def _target(target: Any) -> tuple[str, ...]:
    if isinstance(target, torch._ops.OpOverload):
        if is_own_operator(target):
            return ("operator", str(target))
        raise NotData(f"the operator {target}")
    if (mode := _MODES.get(id(target))) is not None:
        return ("mode", mode)
    module = getattr(target, "__module__", None) or getattr(getattr(target, "__self__", None), "__name__", None)
    for path in (getattr(target, "__qualname__", None), getattr(target, "__name__", None)):
        if isinstance(module, str) and isinstance(path, str) and module.partition(".")[0] in _MODULES:
            if is_own_function(target) and _named(module, path) is target:
                return ("function", module, path)
        if getattr(target, "in_order", False) and isinstance(module, str) and isinstance(path, str):
            if _named(module, path) is target:  # a function of the capture, which graphs call as it is
                return ("in order", module, path)
    raise NotData(f"the function {getattr(target, '__name__', target)}")


def _named(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _function(target: tuple[str, ...]) -> Any:
    if target[0] == "operator":
        found: Any = torch.ops
        for part in target[1].split("."):
            found = getattr(found, part)
        return found
    if target[0] == "mode":
        return getattr(modes, target[1])
    if target[0] == "in order":
        importlib.import_module(target[1])
    found = _named(*target[1:])
    if not isinstance(found, types.FunctionType | types.BuiltinFunctionType | type) and not callable(found):
        raise NotData(f"the function {'.'.join(target[1:])}")
    return found


def _data(value: Any, numbers: Mapping[fx.Node, int]) -> tuple[Any, ...]:
    """An argument of a node as data: a kind, and what it consists of."""
    kind = type(value)
    if isinstance(value, fx.Node):
        return ("node", numbers[value])
    if kind in _PLAIN:
        return ("plain", value)
    if isinstance(value, tuple) and (kind is tuple or kind is torch.Size):
        return ("tuple" if kind is tuple else "size", *(_data(each, numbers) for each in value))
    if isinstance(value, list) and kind in (list, fx.immutable_collections.immutable_list):
        return ("list", *(_data(each, numbers) for each in value))
    if isinstance(value, dict) and kind in (dict, fx.immutable_collections.immutable_dict):
        return ("dict", *(_data(each, numbers) for pair in value.items() for each in pair))
    if kind is slice:
        return ("slice", *(_data(each, numbers) for each in (value.start, value.stop, value.step)))
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return ("torch", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return ("device", str(value))
    raise NotData(f"an argument of type {kind.__name__}")


def _value(data: tuple[Any, ...], made: Sequence[fx.Node]) -> Any:
    kind, *parts = data
    if kind == "node":
        return made[parts[0]]
    if kind == "plain":
        return parts[0]
    if kind == "torch":
        return getattr(torch, parts[0])
    if kind == "device":
        return torch.device(parts[0])
    values = [_value(part, made) for part in parts]
    if kind == "dict":
        return dict(zip(values[::2], values[1::2], strict=True))
    if kind == "slice":
        return slice(*values)
    return values if kind == "list" else tuple(values) if kind == "tuple" else torch.Size(values)
