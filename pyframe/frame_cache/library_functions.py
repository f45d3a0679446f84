"""Whether the program has replaced functions of torch that other functions of torch call.

A graph calls functions such as `torch.nn.functional.layer_norm` whole, so that no guard tests what these call.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch

from .described import NotKept

_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_MODULES: tuple[types.ModuleType, ...] = (
    torch, torch.nn.functional, torch.functional, torch._C._nn, torch.linalg, torch.special, torch.fft,
)  # fmt: skip
_HELPERS = frozenset((*sys.stdlib_module_names, "typing_extensions"))  # whose decorators and functions torch has, too


def library_functions() -> str:
    """The functions in the namespaces of torch, by name. NotKept if one is written in Python and is not torch's."""
    found = list[tuple[Any, ...]]()
    for module in _MODULES:
        for name, value in vars(module).items():
            kind = type(value)
            if kind is types.BuiltinFunctionType:
                found.append((name, value.__name__))
            elif kind is types.FunctionType:
                code = value.__code__
                own = code.co_filename.startswith(_FOLDER)
                if not own and value.__globals__.get("__name__") not in _HELPERS:
                    raise NotKept(f"{module.__name__}.{name}, which the program has replaced")
                found.append((name, code.co_name, code.co_firstlineno))
    return repr(found)
