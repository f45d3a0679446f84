"""Instances of subclasses of dict and OrderedDict: a mapping of Vars plus the attributes of an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import Source
from ..core.tracer import Tracer
from .base import Var
from .const import ConstVar
from .instance import InstanceVar
from .mapping import DictVar


class DictInstanceVar(InstanceVar):
    """Methods written in Python are traced; those of dict act on `mapping`.  Objects that existed before the frame
    can be read, not changed."""

    __slots__ = ("mapping",)

    def __init__(self, value: Any, source: Source | None = None, cls: type | None = None) -> None:
        super().__init__(value, source, cls)
        self.mapping = DictVar({}, None, dict)

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """The method `name` of dict itself, past the overrides of the class."""
        before = list(self.mapping.items.items())
        match name:
            case "__init__" | "update":
                result = self.mapping.call_method(tx, "update", args, kwargs)
            case "__len__":
                result = self.mapping.length(tx)
            case "__iter__":
                result = self.mapping.iterate(tx)
            case "__delitem__":
                self.mapping.setitem(tx, args[0], None)
                result = ConstVar(None)
            case "__getattribute__":
                result = self.generic_getattr(tx, args[0].constant())
            case "__setattr__":
                self.store(tx, args[0].constant(), args[1])
                result = ConstVar(None)
            case _:
                result = self.mapping.call_method(tx, name, args, kwargs)
        if self.source is not None and before != list(self.mapping.items.items()):
            self.unsupported(tx, f"changing it by {name}()")
        return result

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self._special(tx, name) is None and hasattr(dict, name):
            return self.c_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return self.call_method(tx, "__getitem__", [key], {})

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None:
            self.call_method(tx, "__delitem__", [key], {})
        else:
            self.call_method(tx, "__setitem__", [key, value], {})

    def contains(self, tx: Tracer, item: Var) -> bool:
        return self.call_method(tx, "__contains__", [item], {}).truth(tx)

    def length(self, tx: Tracer) -> Var:
        return self.call_method(tx, "__len__", [], {})

    def iterate(self, tx: Tracer) -> Var:
        return self.call_method(tx, "__iter__", [], {})

    def truth(self, tx: Tracer) -> bool:
        return super().truth(tx) if self._special(tx, "__bool__") else self.length(tx).truth(tx)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.cls.__new__)
        cg.call_top(lambda: cg.load_const(self.cls))
        cg.remember(self)
        base = next(b for b in self.cls.__mro__ if isinstance(b.__dict__.get("__setitem__"), type(dict.__setitem__)))
        cg.emit("COPY", 1)
        temp = cg.asm.store_fast()
        for key, value in self.mapping.items.items():
            cg.load_const(base.__setitem__)
            cg.call_top(
                lambda: cg.asm.load_fast(temp), lambda k=key: cg.load_key(k), lambda v=value: cg.load(v)
            )
            cg.emit("POP_TOP")
        for name, value in self.attrs.items():
            if value is not None:
                cg.set_attr_of_top(name, value, plain=False)
