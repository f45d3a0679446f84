"""Global variables that the traced program assigns.

A program reaches the same variable in three ways: by its name, as an item of the dict (`globals()`, `vars(module)`) and
as an attribute of the module. Assignments to names are effects of their own; once the dict has a Var, they are changes
of that Var.
"""

from __future__ import annotations

from typing import Any

from ..vars.containers.mapping import DictVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.tracer import Tracer


class GlobalsVar(Var):
    """A globals dict that the program assigns to by name."""

    __slots__ = ("value", "written")

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__()
        self.value = value
        self.written: dict[str, Var] = {}


class GlobalNames:
    """The globals dicts that a trace has written to, by identity."""

    def __init__(self, tx: Tracer) -> None:
        self._tx = tx
        self._dicts: dict[int, GlobalsVar] = {}

    def store(self, names: dict[str, Any], name: str, value: Var) -> None:
        """Assign to a variable by its name."""
        shared = self._tx.traced(names)
        if isinstance(shared, DictVar):
            shared.setitem(self._tx, ConstVar(name), value)
            return
        target = self._dicts.setdefault(id(names), GlobalsVar(names))
        target.written[name] = value
        self._tx.effects.add("GLOBAL", target, name, self._tx.user_line())

    def written(self, names: dict[str, Any], name: str) -> Var | None:
        """What the traced program has assigned to a variable so far; None if nothing. Breaks the graph if it has
        deleted something from the dict."""
        target = self._dicts.get(id(names))
        if target is not None and name in target.written:
            return target.written[name]
        shared = self._tx.traced(names)
        if not isinstance(shared, DictVar) or not self._has_changed(shared):
            return None
        if not shared.items.keys() >= names.keys():
            self._tx.graph_break("unsupported-object", "a global variable, after one was deleted through the dict")
        return shared.items.get(name)

    def _has_changed(self, shared: DictVar) -> bool:
        return any(effect.kind == "DICT" and effect.target is shared for effect in self._tx.effects)

    def before_wrap(self, value: Any) -> None:
        """Breaks the graph if `value`, which gets a Var now, is a dict with variables assigned by name: the Var would
        show the values before."""
        if id(value) in self._dicts:
            self._tx.graph_break("unsupported-object", "a dict of global variables, after one was assigned by name")
