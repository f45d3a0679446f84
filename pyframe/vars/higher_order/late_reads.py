"""Finds what a hook reads that may be another value by the time the hook runs.

A hook is traced when it is registered, but runs in the backward pass. In between, the program may assign to attributes
of objects that existed before the frame, to global variables, and to variables of functions around it.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from ...core.files import skipped_file
from ..objects.classes import ClassVar
from ..objects.functions import FunctionVar
from ..objects.modules import PyModuleVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..torch_objects.tensor import TensorVar
from ..tracer import OutsideReads

# Names of these are taken to be definitions, which programs do not assign again.
_DEFINITIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.ModuleType, type,
    enum.Enum, torch.dtype,
)  # fmt: skip


class LateReads(OutsideReads):
    """What is read while a hook is traced. `changeable`: whether any of it may have changed when the hook runs."""

    def __init__(self) -> None:
        self.changeable = False

    def variable(self, found: Var, file: str) -> None:
        if not (skipped_file(file) or issubclass(found.python_type(), _DEFINITIONS)):
            self.changeable = True

    def attribute(self, owner: Var, name: str, found: Var) -> None:
        if _may_change(owner, name) and not issubclass(found.python_type(), _DEFINITIONS):
            self.changeable = True


def _may_change(owner: Var, name: str) -> bool:
    """Whether other code may assign to the attribute `name` of `owner`."""
    if isinstance(owner, PyModuleVar):
        return not _of_library(owner.value)
    if isinstance(owner, TensorVar):
        return name == "grad" and owner.source is not None
    if isinstance(owner, ConstVar) or issubclass(owner.python_type(), enum.Enum):
        return False
    existed = isinstance(owner, ClassVar) or isinstance(owner, FunctionVar) and owner.fn is not None
    return existed or owner.source is not None


def _of_library(module: types.ModuleType) -> bool:
    """Whether a module is built in, or one of torch, NumPy or the standard library."""
    file: Any = vars(module).get("__file__")
    return not isinstance(file, str) or skipped_file(file)
