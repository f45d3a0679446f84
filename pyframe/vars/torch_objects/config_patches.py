"""Models `with torch._dynamo.config.patch(...)`, and that of other modules of settings of torch.

Nodes of the graph enter and leave it, so that what the graph calls sees the settings. What the trace reads of them
inside is known, so it needs no guard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._config_module import ConfigModule

from inductor.modes import recorded

from ...core.source import Source
from ..codegen import Codegen
from ..objects.functions import FunctionVar
from ..objects.modules import SWITCHED_LATER
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


class SwitchSettingsVar(FunctionVar):
    """`__enter__` or, with `leaves`, `__exit__` of what `torch._dynamo.patch_dynamo_config` returns.  Its settings have
    no effect on captures.  They are switched for real only where a graph break separates the two."""

    __slots__ = ("leaves",)

    def __init__(self, value: types.FunctionType, source: Source | None, leaves: bool) -> None:
        super().__init__(value, source)
        self.leaves = leaves

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        patch, patched = args[0], tx.graph.modes.patched
        for effect in reversed(list(tx.effects)) if self.leaves else ():
            if effect.kind == "CALL" and effect.detail[0] is _enter and effect.detail[1][0] is patch:
                tx.effects.cancel(effect)
                patched.clear()
                patched.update(effect.target.outer)
                return ConstVar(None)
        changes = patch.getattr_(tx, "changes").plain()
        config = sys.modules["torch._dynamo.config"]
        entry = EnteredPatch(dict(patched))
        patched.update({(id(config), name): SWITCHED_LATER if self.leaves else changes[name] for name in changes})
        tx.effects.add("CALL", entry, (_leave if self.leaves else _enter, [patch], {}), tx.user_line())
        return ConstVar(None)


@dataclasses.dataclass(frozen=True)
class EnteredPatch:
    """The target of the effect that switches settings: what the trace knew of settings before."""

    outer: dict[Any, Any]


def _enter(patch: Any) -> None:
    patch.__enter__()


def _leave(patch: Any) -> None:
    patch.__exit__(None, None, None)


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
