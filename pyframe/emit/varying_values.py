"""Marks the parameters of a resume function or loop body that its captures must not treat as constants.

A value that varies in this trace, or from one loop iteration to the next, also varies in the function that gets it as a
parameter. `VaryingValues` records this in the `Continuation` of that function's code before it is first captured.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.source import AttrSource, SeqItemSource
from ..vars.objects.exceptions import ExceptionVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar, MethodVar
from ..vars.torch_objects.loop_varying import VALUES, RuntimeValueVar, UnknownContainerVar
from ..vars.torch_objects.tensor import TensorVar
from .resume import Continuation, continuation, parameter_source

_MAX_ARGUMENTS = 3  # leading arguments of an exception that are not constants


def _is_exception(var: Var | None) -> bool:
    if isinstance(var, ConstVar):  # its value, which may vary, must not be read
        return False
    return isinstance(var, ExceptionVar) or issubclass(type(getattr(var, "value", None)), BaseException)


class VaryingValues:
    """Marks parameters of resume functions as varying. `known`: what is known of the frame that breaks, if it is such a
    function itself."""

    def __init__(self, known: Continuation | None) -> None:
        self._known = known

    def mark(self, code: Any, name: str, types: tuple[type, ...]) -> None:
        described = continuation(code)
        assert described is not None
        described.varying.setdefault(parameter_source(code, name), types)

    def mark_like(self, code: Any, name: str, var: Var | None) -> None:
        """If the value of `var` is not a constant here, do not treat it as one in `code`."""
        if isinstance(var, RuntimeValueVar | UnknownContainerVar):
            self.mark(code, name, (var.python_type(),))
        elif isinstance(var, MethodVar) and isinstance(var.obj, UnknownContainerVar):
            described = continuation(code)
            assert described is not None
            described.varying.setdefault(AttrSource(parameter_source(code, name), "__self__"), (var.obj.python_type(),))
        elif isinstance(var, TensorVar):
            self.mark_sizes(code, name, {dim for dim, n in enumerate(var.fake.shape) if isinstance(n, torch.SymInt)})
        elif _is_exception(var):
            self.mark_exception_arguments(code, name)
        elif var is not None and var.source is not None and self._known is not None:  # passed on unchanged
            self.mark_sizes(code, name, {dim for source, dim in self._known.sizes if source == var.source})
            if types := self._known.varying.get(var.source):
                self.mark(code, name, types)

    def mark_sizes(self, code: Any, name: str, dims: set[int]) -> None:
        """Make dimensions of a tensor that vary here vary in `code` too."""
        described = continuation(code)
        assert described is not None
        described.sizes.update((parameter_source(code, name), dim) for dim in dims)

    def mark_exception_arguments(self, code: Any, name: str) -> None:
        """Do not treat the arguments of an exception, such as its message, as constants: they may differ each time."""
        described = continuation(code)
        assert described is not None
        args = AttrSource(parameter_source(code, name), "args")
        for index in range(_MAX_ARGUMENTS):
            described.varying.setdefault(SeqItemSource(args, index), VALUES)
