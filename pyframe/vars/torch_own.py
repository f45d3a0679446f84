"""Whether functions and methods are torch's own, or something that the process has put in their place."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx.graph import _get_qualified_name, _is_from_torch

from .lookup import MISSING

_TORCH = str(Path(torch.__file__).parent)
_IN_C = vars(torch._C.TensorBase)


def in_torch(code: types.CodeType) -> bool:
    """Whether a function with this code is written in torch's package."""
    return code.co_filename.startswith(_TORCH)


def torchs_own(found: Any, name: str) -> bool:
    """Whether `found`, which `torch.Tensor` has under `name`, is what torch has there.  A name that torch lacks is the
    program's own, whatever it is, but for data descriptors and plain values."""
    if found is MISSING or found is _IN_C.get(name, MISSING) or found is vars(object).get(name, MISSING):
        return True
    function = getattr(found, "__func__", getattr(found, "fget", found))
    if isinstance(function, types.FunctionType):
        return name not in _IN_C and name not in _PYTHON or in_torch(function.__code__)
    return found is _PYTHON.get(name, MISSING)


_PYTHON = dict(vars(torch.Tensor))


def by_name(target: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for `target` in a graph, whose code calls functions of torch by their names: `target`, or a function
    that calls it where another one has that name now."""
    if not isinstance(target, types.FunctionType | types.BuiltinFunctionType) or not _is_from_torch(target):
        return target
    path = _get_qualified_name(target)
    found: Any = sys.modules["torch"]
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    if found is None or found is target:
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__module__ = __name__
    return call
