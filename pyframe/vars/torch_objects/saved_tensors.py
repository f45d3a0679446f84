"""Models `save_on_cpu` and `disable_saved_tensors_hooks`: contexts that decide how autograd keeps the tensors that it
saves for the backward pass.

Nodes enter and leave them when the graph runs; what a backend compiles in between saves its tensors under them. Hooks
of the program's own (`saved_tensors_hooks`) break the graph: they may depend on, and change, anything.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

from inductor.modes import recorded

from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .contexts import GraphModeVar, register_by_name

_NATIVE: Any = torch._C._autograd


def _enter_save_on_cpu(pin_memory: bool, device_type: str) -> Any:
    context = save_on_cpu(pin_memory, device_type)
    context.__enter__()
    return context


def _exit_save_on_cpu(context: Any) -> None:
    context.__exit__(None, None, None)


def _disable_hooks(message: str) -> Any:
    """Returns the message of an outer context that disables the hooks, or None."""
    outer = _NATIVE._saved_tensors_hooks_get_disabled_error_message()
    _NATIVE._saved_tensors_hooks_disable(message)
    return outer


def _enable_hooks(outer: Any) -> None:
    if outer is None:
        _NATIVE._saved_tensors_hooks_enable()
    else:
        _NATIVE._saved_tensors_hooks_disable(outer)


class SaveOnCpuVar(GraphModeVar):
    """`save_on_cpu(pin_memory, device_type)`."""

    __slots__ = ()

    switches = recorded(_enter_save_on_cpu, _exit_save_on_cpu)

    def enter(self, tx: Tracer) -> Var:
        if _NATIVE._saved_tensors_hooks_get_disabled_error_message() is not None:
            tx.graph_break("unsupported-context-manager", "save_on_cpu while hooks of saved tensors are disabled")
        return super().enter(tx)


class DisabledHooksVar(GraphModeVar):
    """`disable_saved_tensors_hooks(error_message)`."""

    __slots__ = ()

    switches = recorded(_disable_hooks, _enable_hooks)

    def __init__(self, cls: Any, values: tuple[Any, ...]) -> None:
        super().__init__(contextlib._GeneratorContextManager, values)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(disable_saved_tensors_hooks, *self.values)


def _context(target: Any, var: type[GraphModeVar]) -> Handler:
    """The model of a call of `target`, whose arguments have to be constants."""
    signature = inspect.signature(target)

    def construct(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            return tx.raise_(TypeError, f"{target.__name__}() {error}")
        values = []
        for name, parameter in signature.parameters.items():
            value = slots.constant_or(bound.arguments.get(name, ConstVar(parameter.default)), None)
            if type(value) not in (bool, str):
                return tx.graph_break("unsupported-context-manager", f"{target.__name__} with this {name}")
            values.append(value)
        return var(target, tuple(values))

    return construct


register_by_name(saved_tensors_hooks)  # from which save_on_cpu inherits
register(save_on_cpu)(_context(save_on_cpu, SaveOnCpuVar))
register(disable_saved_tensors_hooks)(_context(disable_saved_tensors_hooks, DisabledHooksVar))
