"""Vars for Python modules.

Attributes are read from the real module and guarded.  Where the class of a module defines a data descriptor written in
Python (for example `torch.backends.cudnn.enabled`), reads and writes trace the descriptor.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from ...core.files import LIBRARIES
from ...core.source import AttrSource, ConstSource, InstanceDictSource
from ..codegen import Codegen
from ..protocol.base import HeldVar, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import make
from ..tracer import Tracer
from .lookup import constant_function, guarded_lookup

# The value of a setting that the frame restores when its graph has run.
SWITCHED_LATER = object()


class PyModuleVar(HeldVar):
    """A Python module."""

    __slots__ = ()

    value: types.ModuleType

    def constant(self) -> Any:
        return self.value

    def name(self) -> str:
        return str(vars(self.value).get("__name__", "without a name"))

    def describe(self) -> str:
        return f"module {self.name()}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if (through := self._descriptor(tx, name, "__get__")) is not None:
            kind = type(self.value)
            return tx.call(through[0], [through[1], self, tx.wrap(kind, ConstSource.of(kind, kind.__name__))], {})
        if (id(self.value), name) in tx.graph.modes.patched:
            setting = tx.graph.modes.patched[id(self.value), name]
            if setting is SWITCHED_LATER:
                return self.unsupported(tx, f"reading the setting {name!r} before it is restored")
            return make(setting)
        written = tx.written_global(vars(self.value), name)
        if written is not None:
            return written
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            place = InstanceDictSource(ConstSource.of(self.value, self.name()))
            if "__getattr__" in vars(self.value):
                tx.guard(ConstSource.of(self.value, self.name()), "NO_ATTR", name)
            else:
                tx.guard(place, "DICT_LACKS", "__getattr__")
                tx.guard(place, "DICT_LACKS", name)
            tx.raise_(AttributeError, *error.args)
        # the source is the module object itself, independent of how the program reached it
        return tx.wrap(found, AttrSource(ConstSource.of(self.value, self.name()), name))

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        through = None if value is None else self._descriptor(tx, name, "__set__")
        if value is not None and through is not None:
            tx.call(through[0], [through[1], self, value], {})
        elif value is None or type(self.value) is not types.ModuleType or _is_relied_on(self.value):
            super().setattr_(tx, name, value)
        else:
            tx.store_global(vars(self.value), name, value)

    def _descriptor(self, tx: Tracer, name: str, method: str) -> tuple[Var, Var] | None:
        """The method (`__get__` or `__set__`) and the descriptor, if the class of the module has a data descriptor of
        this name written in Python, such as `torch.backends.cudnn.enabled`; else None."""
        kind = type(self.value)
        raw = MISSING if kind is types.ModuleType else lookup(kind, name)
        if raw is MISSING or lookup(type(raw), "__set__") is MISSING:
            return None
        fn = lookup(type(raw), method)
        if not isinstance(fn, types.FunctionType):
            return None
        guarded_lookup(tx, kind, name)
        return constant_function(tx, fn), tx.wrap(raw, ConstSource.of(raw, f"{self.name()}.{name}"))

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _is_relied_on(module: types.ModuleType) -> bool:
    """Whether a module belongs to torch, NumPy or this project, whose own code reads its variables unseen; or has the
    builtins, which code finds without a read of a variable."""
    if module is builtins:
        return True
    file = vars(module).get("__file__")
    return isinstance(file, str) and file.startswith(LIBRARIES)
