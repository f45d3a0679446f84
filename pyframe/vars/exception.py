"""Exceptions of the traced program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import Source
from ..core.tracer import Tracer
from ..errors import TraceSignal
from .base import Var
from .const import ConstVar, MethodVar, make
from .sequence import TupleVar


class Raised(TraceSignal):
    """An exception unwinding the traced program; `exc` is its ExceptionVar (or InstanceVar)."""

    def __init__(self, exc: Var) -> None:
        super().__init__(exc.describe())
        self.exc = exc


class ExceptionVar(Var):
    """An exception object: class, arguments, attributes set on it."""

    __slots__ = ("args", "attrs", "cls")

    def __init__(self, cls: type[BaseException], args: Sequence[Var], source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.args = list(args)
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__}({', '.join(arg.describe() for arg in self.args)})"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in self.attrs:
            return self.attrs[name]
        if name == "args":
            return TupleVar(self.args)
        if name == "__class__":
            return make(self.cls)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else ConstVar(None)
        if name in ("__cause__", "__context__", "__traceback__"):
            return ConstVar(None)
        if name == "with_traceback":
            return MethodVar(self, name)
        return tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if value is None or self.source is not None:
            super().setattr_(tx, name, value)
        else:
            self.attrs[name] = value

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self if name == "with_traceback" else super().call_method(tx, name, args, kwargs)

    def truth(self, tx: Tracer) -> bool:
        return True

    def text(self, tx: Tracer) -> Var:
        """`str(self)`."""
        if not self.args:
            return ConstVar("")
        if len(self.args) == 1 and not issubclass(self.cls, KeyError):
            return ConstVar(str(self.args[0].constant()))
        values = [arg.constant() for arg in self.args]
        return ConstVar(str(self.cls(*values)))

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.cls)
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in self.args))
        for name, value in self.attrs.items():
            cg.set_attr_of_top(name, value)
