"""The guard operations in Python: one function per row of `pyframe._C.op_table()`.

Compiled code evaluates guards in C. The functions here define what each operation must do: `guard_explain` combines
them to evaluate and explain whole guards, and tests compare the results with C. As in C, an accessor or check that
raises makes the guard fail.
"""

from __future__ import annotations

import struct
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyframe import _C

from . import expr


@dataclass(frozen=True)
class CallContext:
    """The input of the root accessors: the called function and its fast-local arguments."""

    function: types.FunctionType
    locals: tuple[Any, ...]


class Missing(LookupError):
    """Raised by an accessor whose value does not exist."""


# c10::DeviceType.
DEVICE_TYPES = {
    "cpu": 0,
    "cuda": 1,
    "hip": 6,
    "xla": 9,
    "xpu": 12,
    "mps": 13,
    "meta": 14,
    "privateuseone": 20,
}

Accessor = Callable[..., Any]
Check = Callable[..., bool]


def _bits(value: float) -> bytes:
    return struct.pack("d", value)


def const_equal(a: Any, b: Any) -> bool:
    """The EQUALS check: same exact type and equal value. Floats compare bitwise, tuples and slices item by item."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return _bits(a) == _bits(b)
    if type(a) is complex:
        return _bits(a.real) == _bits(b.real) and _bits(a.imag) == _bits(b.imag)
    if type(a) is slice:
        return all(const_equal(getattr(a, part), getattr(b, part)) for part in ("start", "stop", "step"))
    if type(a) is tuple:
        return len(a) == len(b) and all(map(const_equal, a, b))
    return bool(a == b)


def _of_dict(value: Any) -> dict[Any, Any]:
    if not issubclass(type(value), dict):
        raise Missing(f"not a dict: {type(value).__name__}")
    return value


def _dict_item(context: CallContext, value: Any, key: Any) -> Any:
    found = dict.get(_of_dict(value), key, _ABSENT)  # `dict.get` does not call `__missing__`
    if found is _ABSENT:
        raise KeyError(key)
    return found


def _of_function(value: Any) -> types.FunctionType:
    if type(value) is not types.FunctionType:
        raise Missing(f"not a plain function: {type(value).__name__}")
    return value


def _local(context: CallContext, index: int) -> Any:
    if not 0 <= index < len(context.locals):
        raise Missing(f"no fast local {index}")
    return context.locals[index]


def _closure(context: CallContext, index: int) -> Any:
    cells = context.function.__closure__ or ()
    if not 0 <= index < len(cells):
        raise Missing(f"no closure cell {index}")
    return cells[index].cell_contents


def _builtins(context: CallContext) -> dict[str, Any]:
    function: Any = context.function
    return function.__builtins__


def _global(context: CallContext, name: str) -> Any:
    try:
        return context.function.__globals__[name]
    except KeyError:
        return _builtins(context)[name]


def _instance_dict(context: CallContext, value: Any) -> Any:
    if issubclass(type(value), type | types.ModuleType):
        return value.__dict__
    return object.__getattribute__(value, "__dict__")


def _sequence_item(context: CallContext, value: Any, index: int) -> Any:
    if issubclass(type(value), dict):
        raise Missing("a dict is not a sequence")
    return value[index]


def _cell(context: CallContext, value: Any) -> Any:
    if not issubclass(type(value), types.CellType):
        raise Missing(f"not a cell: {type(value).__name__}")
    return value.cell_contents


def _referent(context: CallContext, value: Any) -> Any:
    if not issubclass(type(value), weakref.ref):
        raise Missing(f"not a weak reference: {type(value).__name__}")
    referent = value()
    if referent is None:
        raise Missing("the referent is dead")
    return referent


def _key_at(context: CallContext, value: Any, index: int) -> Any:
    keys = list(_of_dict(value))
    if not 0 <= index < len(keys):
        raise Missing(f"no key number {index}")
    return keys[index]


def _dimension(values: Any, index: int) -> int:
    if not 0 <= index < len(values):
        raise Missing(f"no dimension {index}")
    return int(values[index])


_ABSENT = object()
ACCESSORS: dict[str, Accessor] = {
    "LOCAL": _local,
    "GLOBALS": lambda c: c.function.__globals__,
    "BUILTINS": _builtins,
    "FUNC": lambda c: c.function,
    "CLOSURE": _closure,
    "CONST": lambda c, value: value,
    "GLOBAL": _global,
    "ATTR": lambda c, value, name: getattr(value, name),
    "INSTANCE_DICT": _instance_dict,
    "DICT_GET": _dict_item,
    "SEQ_ITEM": _sequence_item,
    "TYPE": lambda c, value: type(value),
    "CELL_CONTENTS": _cell,
    "FUNC_CODE": lambda c, value: _of_function(value).__code__,
    "FUNC_DEFAULTS": lambda c, value: _of_function(value).__defaults__,
    "FUNC_KWDEFAULTS": lambda c, value: _of_function(value).__kwdefaults__,
    "FUNC_CLOSURE": lambda c, value: _of_function(value).__closure__,
    "FUNC_GLOBALS": lambda c, value: _of_function(value).__globals__,
    "WEAKREF": _referent,
    "DICT_KEY_AT": _key_at,
    "GETITEM": lambda c, value, key: value[key],
    "LEN": lambda c, value: len(value),
    "TENSOR_SIZE": lambda c, value, i: _dimension(value.shape, i),
    "TENSOR_STRIDE": lambda c, value, i: _dimension(value.stride(), i),
    "TENSOR_OFFSET": lambda c, value: value.storage_offset(),
    "CALL": lambda c, function, values: function(*values),
}


def read_tensor(tensor: Any) -> _C.TensorPayload:
    """The TENSOR payload of `tensor`, read through its Python attributes; raises TypeError if it is no tensor."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    return (
        type(tensor),
        tensor.dtype,
        *device_numbers(tensor.device),
        tensor.dim(),
        tuple(tensor.shape),
        tuple(tensor.stride()) if tensor.layout is torch.strided else None,
        tensor.requires_grad,
        torch._C._dispatch_keys(tensor).raw_repr(),
    )


def device_numbers(device: Any) -> tuple[int, int]:
    """(number of the c10::DeviceType, index) of a torch.device; the index is -1 for cpu and meta, which have none."""
    kind = DEVICE_TYPES.get(device.type)
    if kind is None:
        raise ValueError(f"no number is known for device type {device.type!r}")
    if device.type in ("cpu", "meta"):
        return kind, -1
    return kind, 0 if device.index is None else device.index


def tensor_matches(tensor: Any, payload: _C.TensorPayload) -> bool:
    """Whether `tensor` satisfies every item of `payload` that is not None."""
    return all(map(_item_matches, payload, read_tensor(tensor)))


def _item_matches(wanted: Any, actual: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, tuple):
        return actual is not None and len(wanted) == len(actual) and all(map(_item_matches, wanted, actual))
    return bool(wanted == actual)


def _keys(value: Any, keys: tuple[Any, ...]) -> bool:
    return const_equal(tuple(value), keys)


def _distinct(values: tuple[Any, ...]) -> bool:
    return len({id(value) for value in values}) == len(values)


def _has_attribute(value: Any, name: str) -> bool:
    return hasattr(value, name)


# Read through the slots of `type`, since a metaclass may override `__mro__` and `__dict__`.
_mro, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


def found_along(mro: tuple[type, ...], name: str) -> list[Any]:
    """A list with the raw attribute `name` found along this MRO; [] if no class in it has one."""
    return next(([_table(base)[name]] for base in mro if name in _table(base)), [])


def unlike(cls: Any, metaclass: type, mro: tuple[type, ...], entries: tuple[Any, ...]) -> str | None:
    """The name of the first attribute of `cls` that differs from `entries` (see `ClassReads`); "" if the metaclass or
    the MRO differs, None if nothing does."""
    if not isinstance(cls, type) or type(cls) is not metaclass or _mro(cls) is not mro:
        return ""
    for name, how, expected in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
        found = found_along(mro, name)
        same, alike = any(raw is expected for raw in found), any(type(raw) is expected for raw in found)
        if not (not found, same, alike)[how]:
            return str(name)
    return None


CHECKS: dict[str, Check] = {
    "IS": lambda value, expected: value is expected,
    "IS_NOT": lambda value, expected: value is not expected,
    "TYPE_IS": lambda value, expected: type(value) is expected,
    "EQUALS": const_equal,
    "LEN_EQ": lambda value, n: len(value) == n,
    "DICT_KEYS": _keys,
    "DICT_LEN": lambda value, n: issubclass(type(value), dict) and dict.__len__(value) == n,
    "NO_KEY": lambda value, key: not dict.__contains__(_of_dict(value), key),
    "HAS_KEY": lambda value, key: dict.__contains__(_of_dict(value), key),
    "HAS_ATTR": _has_attribute,
    "NO_ATTR": lambda value, name: not _has_attribute(value, name),
    "CLASS_FINDS": lambda value, expected: unlike(value, *expected) is None,
    "TENSOR": tensor_matches,
    "SAME": lambda a, b: a is b,
    "DISTINCT": _distinct,
    "GLOBAL_STATE": lambda state: state.matches(),
    "RELATION": expr.run_program,
    "PREDICATE": lambda function, values: bool(function(*values)),
    "INT_TYPE": lambda value: type(value) is int,
    "INT_RANGE": lambda value, low, high: type(value) is int and low <= value <= high,
    "TRUTH": lambda value, wanted: bool(value) == bool(wanted),
    "VERSION": lambda cell, version: cell.value == version,
}


def _check_completeness() -> None:
    rows = {name: kind for name, kind, _, _ in _C.op_table()}
    ours = dict.fromkeys(ACCESSORS, "accessor") | dict.fromkeys(CHECKS, "check")
    if rows != ours:
        differing = sorted(set(rows.items()) ^ set(ours.items()))
        raise ImportError(f"csrc/frame/guard_ops.def and {__name__} differ: {differing}")


_check_completeness()
