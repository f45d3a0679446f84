"""Which calls in a graph may write to a tensor argument, according to the schemas of the operators."""

from __future__ import annotations

import functools
import inspect
import operator
import types
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

_aten = torch.ops.aten

# Python's in-place operators, as functions and as methods.
IN_PLACE = frozenset({
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.setitem,
})  # fmt: skip
IN_PLACE_METHODS = frozenset({*(f"__{function.__name__}__" for function in IN_PLACE), "__idiv__"})

# Operators that write running statistics, although their schemas do not say so and versions do not change.
WRITES_UNCOUNTED = frozenset({
    F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm, torch.native_batch_norm,
    torch.cudnn_batch_norm, torch.batch_norm_gather_stats, torch.batch_norm_gather_stats_with_counts,
    torch.batch_norm_update_stats, _aten.batch_norm, _aten.instance_norm, _aten.native_batch_norm,
    _aten.cudnn_batch_norm, _aten.miopen_batch_norm, _aten._batch_norm_impl_index, _aten.batch_norm_gather_stats,
    _aten.batch_norm_gather_stats_with_counts, _aten.batch_norm_update_stats,
})  # fmt: skip
# Parameters that make a function of torch.nn.functional write to an argument: a flag, and a bound for `embedding`.
_ASK_FOR_WRITES = ("inplace", "max_norm")
# Elementwise operators that lack torch's tag for these.
_ELEMENTWISE = frozenset({"copy", "fill", "zero"})
_FUNCTIONALIZED_BY = ("Functionalize", "CompositeImplicitAutograd")


def may_write(node: fx.Node) -> bool:
    """Whether a call may write to one of its arguments."""
    if node.op not in ("call_function", "call_method"):
        return False
    packet = getattr(node.target, "overloadpacket", node.target)
    if node.kwargs.get("out") is not None or packet in WRITES_UNCOUNTED:
        return True
    return writes_first(node) or _writes_any(node.target)


def written_statistics(node: fx.Node) -> list[fx.Node]:
    """The running statistics that a call of an operator in WRITES_UNCOUNTED writes: none if it uses them instead."""
    if getattr(node.target, "overloadpacket", node.target) not in WRITES_UNCOUNTED:
        return []
    if isinstance(node.target, types.FunctionType):
        names = list(inspect.signature(inspect.unwrap(node.target)).parameters)
    else:
        names = [argument.name for schema in _schemas(node.target)[:1] for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    uses_batch = given.get("training", given.get("use_input_stats", "training" not in names))
    found = (given.get("running_mean"), given.get("running_var"))
    return [each for each in found if uses_batch and isinstance(each, fx.Node)]


def writes_first(node: fx.Node) -> bool:
    """Whether a call writes to its first argument."""
    if isinstance(node.target, types.FunctionType):
        return any(_given(node, name) for name in _ASK_FOR_WRITES)
    return writes_in_place(node.target)


@functools.lru_cache(maxsize=4096)
def writes_in_place(target: Any) -> bool:
    """Whether a function, method (its name) or operator writes to its first argument."""
    if target in IN_PLACE or target in IN_PLACE_METHODS:
        return True
    return any(_is_written(schema.arguments[0]) for schema in _schemas(target) if schema.arguments)


@functools.lru_cache(maxsize=4096)
def _writes_any(target: Any) -> bool:
    """Whether an operator writes to an argument of any of its overloads."""
    return any(_is_written(argument) for schema in _schemas(target) for argument in schema.arguments)


def _is_written(argument: Any) -> bool:
    """Whether an argument of a schema is written although it is not an `out` argument, which need not be given."""
    return argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out


@functools.lru_cache(maxsize=4096)
def is_elementwise(target: Any) -> bool:
    """Whether an operator computes each element from the elements of its operands at the same place, so that it may
    write to one of them. For a method that works in place, its functional form tells."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    name = name.partition(".")[0].strip("_")
    if target in IN_PLACE or target in IN_PLACE_METHODS:
        return name not in ("imatmul", "setitem")
    packet = getattr(_aten, name, None)
    overloads = () if packet is None else packet.overloads()
    return name in _ELEMENTWISE or any(torch.Tag.pointwise in getattr(packet, each).tags for each in overloads)


@functools.lru_cache(maxsize=4096)
def has_functional_form(target: Any) -> bool:
    """Whether functionalization can replace an operator that writes to arguments or returns views of them: it has a
    kernel for that, or consists of operators that have one."""
    aliasing = [
        _full_name(schema)
        for schema in _schemas(target)
        if any(part.alias_info is not None for part in (*schema.arguments, *schema.returns))
    ]
    return all(
        any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _FUNCTIONALIZED_BY)
        for name in aliasing
        if torch._C._dispatch_has_kernel(name)
    )


def _full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _schemas(target: Any) -> list[Any]:
    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name)._schema for name in target.overloads()]
    if isinstance(target, types.BuiltinFunctionType | types.MethodDescriptorType):
        target = target.__name__  # functions and methods of torch in C are bindings of the ATen operator of that name
    if not isinstance(target, str):
        return []
    found = torch._C._jit_get_schemas_for_operator(f"aten::{target}")
    return [schema for schema in found if not _is_of_container(schema)]


def _is_of_container(schema: Any) -> bool:
    """Whether an operator is TorchScript's own for a list or dict, such as `aten::sort.int`. Programs cannot call these
    as functions or methods of torch, and the dispatcher does not know them."""
    first = schema.arguments[0].type if schema.arguments else None
    return isinstance(first, torch.ListType | torch.DictType) and not torch._C._dispatch_has_kernel(_full_name(schema))


def _given(node: fx.Node, name: str) -> bool:
    """Whether a call of a Python function passes something else than None or False as the parameter `name`."""
    if name in node.kwargs:
        return node.kwargs[name] not in (None, False)
    position = _position(node.target, name)
    return position is not None and position < len(node.args) and node.args[position] not in (None, False)


@functools.lru_cache(maxsize=1024)
def _position(function: Any, name: str) -> int | None:
    """The position of a parameter of a Python function; None if it has no such parameter, as one that wraps a function
    in C."""
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType):
        return None
    names = list(inspect.signature(function).parameters)
    return names.index(name) if name in names else None
