"""Names of the operators that graphs call: `name_of` for printing and saving, `target_of` for loading.

Only names in the tables here are loaded, so that a file cannot call anything else: functions and methods of torch that
take tensors, registered operators (`torch.ops`), arithmetic of Python, and a few functions of this project.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import types
from typing import Any

import torch
from torch import fx
from torch.overrides import get_overridable_functions

from inductor.eager.transforms import GradAndValue, Vmapped

from ..errors import UserError

_MODULES = (
    "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.functional", "torch",
    "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._nested", "torch._C._sparse",
)  # fmt: skip
# Functions of torch that graphs call although no class of tensors can override them.
_OF_TORCH = (
    "torch.sym_int", "torch.sym_float", "torch.sym_max", "torch.sym_min", "torch.sym_not", "torch.sym_ite",
    "torch._sym_sqrt", "torch._assert", "torch._check", "torch._C._set_grad_enabled",
    "torch._C._log_api_usage_once", "torch.amp._enter_autocast",
    "torch.amp._exit_autocast", "torch.nn.functional._canonical_mask", "torch.nn.functional._none_or_dtype",
    "torch.nn.functional._in_projection_packed", "torch.autograd.grad",
)  # fmt: skip
# Functions of this project that graphs call, as module and name.
_OURS = (
    ("inductor.modes", "ENTER_INFERENCE"), ("inductor.modes", "EXIT_INFERENCE"),
    ("pyframe.vars.numbers.unbacked", "checked"), ("pyframe.interp.asserts", "asserted"),
    ("pyframe.vars.torch_objects.tensor", "read_grad"), ("pyframe.vars.torch_objects.tensor_state", "requires_grad"),
    ("pyframe.vars.torch_objects.tensor_state", "detach"), ("pyframe.vars.torch_objects.tensor_state", "set_grad"),
    ("pyframe.vars.torch_objects.tensor_state", "set_data"), ("pyframe.vars.torch_objects.tensor_state", "parameter"),
)  # fmt: skip
_BUILTINS = (getattr, abs, min, max, round, int, float, bool, len, sum, divmod, slice, tuple, list)
_NEVER = frozenset({"from_file", "save"})  # read or create files
_NO_NAMESPACES = frozenset({"prim"})  # operators of TorchScript that are none of tensors
# Methods with such names that graphs call; others (`__getattribute__`, `__call__`) lead to any object.
_SPECIAL_METHODS = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
        "eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs", "pos", "getitem", "setitem", "len", "bool", "int",
        "float", "index", "contains", "div",
    )
)
# Attributes of tensors that graphs read with getattr.
_ATTRIBUTES = frozenset({
    "T", "H", "mT", "mH", "real", "imag", "data", "grad", "shape", "dtype", "device", "layout", "ndim", "nbytes",
    "itemsize", "requires_grad", "is_leaf", "is_sparse", "is_cuda", "is_cpu", "is_quantized",
})  # fmt: skip


@functools.cache
def _functions() -> dict[str, Any]:
    """The functions that graphs may call, except for registered operators, by name."""
    allowed = {function for functions in get_overridable_functions().values() for function in functions if
               callable(function)}  # fmt: skip
    variable = torch._C._VariableFunctions
    allowed |= {each for name in dir(variable) if callable(each := getattr(variable, name)) and name[:2] != "__"}
    functional = torch.nn.functional
    allowed |= {each for each in vars(functional).values() if getattr(each, "__module__", "") == functional.__name__
                and isinstance(each, types.FunctionType)}  # fmt: skip
    found: dict[str, Any] = {}
    for path in _MODULES:
        module = _object(path)
        for name, value in vars(module).items():
            if callable(value) and name not in _NEVER and _hashable(value) and value in allowed:
                found[f"{path}.{name}"] = value
    found |= {name: value for name in _OF_TORCH if (value := _object(name)) is not None}
    for module_name in ("operator", "math"):
        scope = operator if module_name == "operator" else math
        found |= {f"{module_name}.{name}": value for name, value in vars(scope).items() if _plain(name, value)}
    found |= {f"builtins.{each.__name__}": each for each in _BUILTINS}
    return found


def _plain(name: str, value: Any) -> bool:
    """Whether a function of `operator` or `math` computes; those that make functions of names and calls do not."""
    return name[0] != "_" and callable(value) and name not in ("attrgetter", "itemgetter", "methodcaller", "call")


@functools.cache
def _names() -> dict[Any, str]:
    """The names of functions; that in the first module where one has several."""
    found: dict[Any, str] = {}
    for name, value in _functions().items():
        if _hashable(value):
            found.setdefault(value, name)
    return found


@functools.cache
def _ours() -> dict[Any, tuple[str, str]]:
    """The functions of this project that graphs call."""
    return {getattr(importlib.import_module(module), name): (module, name) for module, name in _OURS}


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _object(path: str) -> Any:
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def name_of(target: Any) -> str:
    """The name of what a `call_function` node calls: Python source for it, given the modules in `imports_of`. UserError
    for a function that is none of torch's or this project's."""
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target.namespace}.{target._schema.name.partition('::')[2]}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{target._qualified_op_name.replace('::', '.')}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    known = _names().get(target) if _hashable(target) else None
    if known is not None:
        return known
    if _hashable(target) and target in _ours():
        return ".".join(_ours()[target])
    raise UserError(f"export: the operator {target!r} has no name under which a file can call it")


def printed(target: Any) -> str:
    """Like `name_of`, but for a function without a name the constant that a printed program takes for it."""
    try:
        return name_of(target)
    except UserError:
        return f"constants['function {short_name(target)}']"


def short_name(target: Any) -> str:
    """What a function without a name is called among the constants of a program."""
    if isinstance(target, Vmapped | GradAndValue):
        return target.label
    name = getattr(target, "__qualname__", type(target).__name__)
    return f"{name} {id(target):x}" if "<" in name else str(name)


def unnamed(module: fx.GraphModule) -> list[Any]:
    """The functions that a graph calls and that `name_of` does not know."""
    found: dict[int, Any] = {}
    for node in module.graph.nodes:
        registered = torch._ops.OperatorBase | torch._ops.OpOverloadPacket
        if node.op != "call_function" or isinstance(node.target, registered):
            continue
        known = _hashable(node.target) and (node.target in _names() or node.target in _ours())
        if not known:
            found[id(node.target)] = node.target
    return list(found.values())


def target_of(name: str) -> Any:
    """What has a name that `name_of` gave. UserError for any other name, and for an operator that is not registered."""
    if name.startswith("torch.ops."):
        return _operator(name)
    found = _functions().get(name)
    if found is None:
        module, _, last = name.rpartition(".")
        if (module, last) not in _OURS:
            raise UserError(f"{name!r} is no operator that an exported program may call with this version of torch")
        found = getattr(importlib.import_module(module), last)
    return found


def _operator(name: str) -> Any:
    parts = name.split(".")[2:]
    allowed = 2 <= len(parts) <= 3 and parts[1] not in _NEVER and parts[0] not in _NO_NAMESPACES
    if not allowed or any(each.startswith("__") for each in parts):
        raise UserError(f"{name!r} is no operator that an exported program may call")
    if parts[0] == "higher_order":
        found = getattr(torch.ops.higher_order, parts[1], None)
        if isinstance(found, torch._ops.HigherOrderOperator):
            return found
        raise UserError(f"{name!r} is not available in this version of torch")
    packet = getattr(getattr(torch.ops, parts[0]), parts[1], None)
    found = getattr(packet, parts[2], None) if len(parts) == 3 else packet
    if not isinstance(found, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        raise UserError(f"the operator {name!r} is not registered; import the library that defines it first")
    return found


def check_method(name: str) -> str:
    """The name of a method that a graph calls, which must be one of torch.Tensor's. UserError for others."""
    known = isinstance(name, str) and name in dir(torch.Tensor) and callable(getattr(torch.Tensor, name))
    if not known or name.startswith("_") and name not in _SPECIAL_METHODS:
        raise UserError(f"{name!r} is no method of tensors")
    return name


def check_attribute(name: Any) -> Any:
    """The name of an attribute that a graph reads. UserError for those that are not properties of tensors."""
    if name not in _ATTRIBUTES:
        raise UserError(f"{name!r} is no attribute that an exported program may read")
    return name


def import_of(name: str) -> str:
    """The module that Python source with a name from `name_of` needs; "" for builtins."""
    top = name.partition(".")[0]
    if top in ("torch", "operator", "math"):
        return top
    return "" if top == "builtins" or name.startswith("constants[") else name.rpartition(".")[0]
