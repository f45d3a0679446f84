"""Python modules: attribute reads."""

from __future__ import annotations

import types
from typing import Any

from ..core.source import AttrSource, ConstSource
from ..core.tracer import Tracer
from .base import HeldVar, Var


class PyModuleVar(HeldVar):
    __slots__ = ()

    value: types.ModuleType

    def constant(self) -> Any:
        return self.value

    def name(self) -> str:
        return str(vars(self.value).get("__name__", "without a name"))

    def describe(self) -> str:
        return f"module {self.name()}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        # read through the module object itself: it is that object whichever way the program reached it
        return tx.wrap(found, AttrSource(ConstSource.of(self.value, self.name()), name))

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)
