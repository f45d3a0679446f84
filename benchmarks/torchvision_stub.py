"""A stand-in for torchvision, which several libraries import although their models work without it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import torch


class _StubType(type):
    def __getattr__(cls, name: str) -> str:
        return name


class _Stub(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "disable_beta_transforms_warning":
            return lambda: None
        found = torch.nn.Module if name[0].isupper() and "Norm" in name else _StubType(name, (), {})
        setattr(self, name, found)
        return found


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stub_torchvision() -> None:
    """Let imports of torchvision succeed: libraries import names of it, none of which the models here use."""
    if not any(isinstance(finder, _StubFinder) for finder in sys.meta_path):
        sys.meta_path.append(_StubFinder())
