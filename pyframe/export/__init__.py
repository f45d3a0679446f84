"""Functions and modules as whole programs: `pyframe.export(f)(*args)`, saved, loaded, called, printed.

The module itself is callable, as `pyframe.export`; `pyframe.export.load` reads a saved program.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from ..signature.conditions import Condition, InputSpec
from .comparison import Comparison
from .exported import Exported, export
from .whole_graph import WholeGraph, whole_graph

load = Exported.load

__all__ = ["Comparison", "Condition", "Exported", "InputSpec", "WholeGraph", "export", "load", "whole_graph"]


class _Callable(types.ModuleType):
    """The class of this module, so that `pyframe.export(f)` works whether the module was imported before or not."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Exported]:
        return export(function)


sys.modules[__name__].__class__ = _Callable
