"""The functions and classes that captures depend on, as they were when pyframe was imported.

`requirements` checks them before each capture. This module, which imports nothing of the compiler, checks them before
the compiler is imported: what it finds then must be the originals.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

import torch

from . import _C
from .core.tensor_names import CALLED, METADATA, METADATA_METHODS, SPECIAL_NAMES, TENSOR_PROPERTIES

BUILTINS_NOW = vars(builtins)
BUILTINS = {name: BUILTINS_NOW[name] for name in dir(builtins) if name not in (
    "_", "__import__", "breakpoint", "input", "open", "print",
)}  # fmt: skip
TORCH_NOW = vars(torch)
TORCH = {name: TORCH_NOW[name] for name in (
    "Generator", "Size", "SymBool", "SymFloat", "SymInt", "Tensor", "_C", "are_deterministic_algorithms_enabled",
    "autocast", "device", "dtype", "enable_grad", "fx", "get_autocast_dtype", "get_default_dtype",
    "inference_mode", "is_autocast_cache_enabled", "is_autocast_enabled", "is_grad_enabled",
    "is_inference_mode_enabled", "layout", "memory_format", "nn", "no_grad", "ops", "set_autocast_dtype",
    "set_autocast_enabled", "set_grad_enabled", "strided", "utils",
)}  # fmt: skip
MODES = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)
_table, _mro = type.__dict__["__dict__"].__get__, type.__dict__["__mro__"].__get__
_NAMES = METADATA | METADATA_METHODS | TENSOR_PROPERTIES | CALLED | set(SPECIAL_NAMES) | {
    name for name, raw in _table(torch._C.TensorBase).items() if isinstance(raw, types.GetSetDescriptorType)
}  # fmt: skip


def _tables() -> list[dict[Any, Any]]:
    """The attributes of tensors that the tracer itself relies on, and all of the grad modes with what their methods
    run."""
    tensors = [torch.Tensor, torch.nn.Parameter]
    found = [{name: held[name] for name in _NAMES if name in held} for held in map(_table, tensors)]
    modes = [dict(_table(base)) for mode in MODES for base in _mro(mode) if base is not object]
    functions = [part for table in modes for part in table.values() if isinstance(part, types.FunctionType)]
    parts = [{at: (fn.__code__, fn.__defaults__) for at, fn in enumerate(functions)}]
    return [*found, *modes, *parts]


_tables_at_import = _tables()


def as_at_import() -> bool:
    """Whether none of them has been replaced since this module was imported."""
    return (
        _C.has_items(BUILTINS_NOW, BUILTINS)
        and _C.has_items(TORCH_NOW, TORCH)
        and all(map(_same, _tables_at_import, _tables()))
    )


def _same(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    """Whether two tables hold the same objects, and, where they hold tuples, tuples of the same objects."""
    return before.keys() == now.keys() and all(_alike(value, now[name]) for name, value in before.items())


def _alike(one: Any, other: Any) -> bool:
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return one is other
