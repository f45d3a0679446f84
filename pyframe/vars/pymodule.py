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

    def describe(self) -> str:
        return f"module {self.value.__name__}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        # read through the module object itself: it is that object whichever way the program reached it
        return tx.wrap(found, AttrSource(ConstSource.of(self.value, self.value.__name__), name))

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)
