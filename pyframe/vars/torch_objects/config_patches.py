"""Models `with torch._dynamo.config.patch(...)`, and that of other modules of settings of torch.

Nodes of the graph enter and leave it, so that what the graph calls sees the settings. What the trace reads of them
inside is known, so it needs no guard.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

from torch.utils._config_module import ConfigModule

from inductor.modes import recorded

from ..codegen import Codegen
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .contexts import GraphModeVar

_SIMPLE = (bool, int, float, str, type(None))


class ConfigPatchVar(GraphModeVar):
    """`config.patch(changes)`; `changes` are settings of simple types by name."""

    __slots__ = ("changes", "config", "outer")

    def __init__(self, config: types.ModuleType, changes: dict[str, Any]) -> None:
        super().__init__(contextlib.ContextDecorator, ())  # the real class exists once per patch
        self.config, self.changes = config, changes
        self.outer: dict[Any, Any] = {}  # what the trace knew before

    def describe(self) -> str:
        return f"{self.config.__name__}.patch()"

    def clone(self) -> GraphModeVar:
        return ConfigPatchVar(self.config, self.changes)

    def enter(self, tx: Tracer) -> Var:
        def enter_settings() -> Any:
            context = self.config.patch(self.changes)
            context.__enter__()
            return context

        def leave_settings(context: Any) -> None:
            context.__exit__(None, None, None)

        self.mode = tx.graph.modes.enter(*recorded(enter_settings, leave_settings), ())
        self.outer = dict(tx.graph.modes.patched)
        tx.graph.modes.patched.update({(id(self.config), name): value for name, value in self.changes.items()})
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        super().exit(tx)
        tx.graph.modes.patched.clear()
        tx.graph.modes.patched.update(self.outer)
        return ConstVar(False)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(self.config.patch, self.changes)


@register(ConfigModule.patch)
def _patch(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`config.patch(name, value)`, `config.patch({name: value})` or `config.patch(name=value)`."""
    try:
        config, *given = [arg.plain() for arg in args]
        changes = {name: value.plain() for name, value in kwargs.items()}
    except NotConstant as unknown:
        return tx.graph_break("unsupported-context-manager", f"a patch of settings with {unknown}")
    if len(given) == 2 and isinstance(given[0], str) and not changes:
        changes = {given[0]: given[1]}
    elif len(given) == 1 and isinstance(given[0], dict) and not changes:
        changes = given[0]
    elif given:
        return tx.graph_break("exception-in-traced-code", "a patch of settings with these arguments")
    fits = all(hasattr(config, name) and type(value) in _SIMPLE for name, value in changes.items())
    if not fits or tx.graph.stack.is_nested:
        return tx.graph_break("unsupported-context-manager", "a patch of settings that are not of simple types")
    return ConfigPatchVar(config, changes)
