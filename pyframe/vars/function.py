"""Functions: Python's, bound methods, partials and builtins."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.source import AttrSource, CellSource, FuncPartSource, SeqItemSource, Source
from ..core.tracer import Tracer
from .base import NotConstant, Var
from .const import ConstVar, constants, fold, make
from .sequence import TupleVar


class CellVar(Var):
    """A closure cell.  `content` None is an empty cell; `name` is set for cells of the root frame itself."""

    __slots__ = ("content", "name")

    def __init__(self, content: Var | None, source: Source | None = None, name: str | None = None) -> None:
        super().__init__(source)
        self.content = content
        self.name = name

    def python_type(self) -> type:
        return types.CellType

    def store(self, tx: Tracer, value: Var | None) -> None:
        self.content = value
        if self.source is not None:
            tx.effects.add("CELL", self, None, tx.user_line())

    def reconstruct(self, cg: Any) -> None:
        if self.name is not None and cg.has_cell(self.name):
            cg.asm.load_closure(self.name)
            return
        cg.load_const(types.CellType)
        cg.call_top()
        cg.remember(self)
        if self.content is not None:
            cg.set_attr_of_top("cell_contents", self.content)


class FunctionVar(Var):
    """A function written in Python: one that exists (`fn`), or one the program made (`fn` None)."""

    __slots__ = ("attrs", "closure", "code", "defaults", "fn", "globals", "globals_source", "kwdefaults", "name")

    def __init__(self, fn: types.FunctionType | None, source: Source | None = None) -> None:
        super().__init__(source)
        self.fn = fn
        self.attrs: dict[str, Var] = {}
        self.closure: list[Var] | None = None
        self.defaults: Var | None = None
        self.kwdefaults: Var | None = None
        self.globals_source: Source | None = None
        if fn is not None:
            self.code = fn.__code__
            self.globals = fn.__globals__
            self.name = fn.__name__

    @classmethod
    def made(cls, code: types.CodeType, globals_: dict[str, Any], globals_source: Source | None) -> FunctionVar:
        """A function that the traced program makes; the caller fills in defaults and closure."""
        self = cls(None)
        self.code, self.globals, self.name = code, globals_, code.co_name
        self.globals_source = globals_source
        self.closure = []
        return self

    def python_type(self) -> type:
        return types.FunctionType

    def constant(self) -> Any:
        if self.fn is None:
            raise NotConstant(self.name)
        return self.fn

    def describe(self) -> str:
        return f"function {self.name}"

    def cells(self, tx: Tracer) -> list[Var]:
        """The cells of the closure, the same Vars each time."""
        if self.closure is None:
            self.closure = []
            for index, cell in enumerate(self.fn.__closure__ or ()):
                source = SeqItemSource(FuncPartSource(self.source, "__closure__"), index) if self.source else None
                self.closure.append(tx.cell(cell, source))
        return self.closure

    def default_values(self, tx: Tracer) -> tuple[list[Var], dict[str, Var]]:
        """Positional and keyword-only defaults."""
        if self.fn is None:
            positional = self.defaults.unpack(tx) if self.defaults is not None else []
            keyword = dict(self.kwdefaults.items) if self.kwdefaults is not None else {}
            return positional, keyword
        part = functools.partial(FuncPartSource, self.source) if self.source else None
        positional = [
            tx.wrap(value, SeqItemSource(part("__defaults__"), index) if part else None)
            for index, value in enumerate(self.fn.__defaults__ or ())
        ]
        keyword = {
            name: tx.wrap(value, tx.item_source(part("__kwdefaults__"), name) if part else None)
            for name, value in (self.fn.__kwdefaults__ or {}).items()
        }
        return positional, keyword

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in self.attrs:
            return self.attrs[name]
        if name in ("__name__", "__qualname__"):
            return ConstVar(self.name if name == "__name__" else self.code.co_qualname)
        if name in ("__module__", "__doc__") and self.fn is None:
            return ConstVar(self.globals.get("__name__") if name == "__module__" else None)
        if name == "__dict__" and self.fn is None:
            return make(dict(self.attrs))
        if name == "__call__":
            return self
        if self.fn is None or not hasattr(self.fn, name):
            tx.raise_(AttributeError, f"'function' object has no attribute {name!r}")
        return tx.wrap(getattr(self.fn, name), AttrSource(self.source, name) if self.source else None)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if self.fn is not None or value is None:
            super().setattr_(tx, name, value)
        self.attrs[name] = value

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.inline(self, args, kwargs)

    def reconstruct(self, cg: Any) -> None:
        if self.fn is not None:
            cg.load_const(self.fn)
            return
        cg.load_const(types.FunctionType)
        cg.call_top(
            lambda: cg.load_const(self.code),
            lambda: cg.load_globals(self.globals),
            lambda: cg.load_const(self.name),
            lambda: cg.load(self.defaults or ConstVar(None)),
            lambda: cg.load(TupleVar(self.closure or []) if self.code.co_freevars else ConstVar(None)),
        )
        if self.kwdefaults is not None:
            cg.set_attr_of_top("__kwdefaults__", self.kwdefaults)
        for name, value in self.attrs.items():
            cg.set_attr_of_top(name, value)


class BoundMethodVar(Var):
    __slots__ = ("fn", "obj")

    def __init__(self, fn: Var, obj: Var, source: Source | None = None) -> None:
        super().__init__(source)
        self.fn, self.obj = fn, obj

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.fn.describe()}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__self__", "__func__"):
            return self.obj if name == "__self__" else self.fn
        return self.fn.getattr_(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.fn, [self.obj, *args], kwargs)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(types.MethodType)
        cg.call_top(lambda: cg.load(self.fn), lambda: cg.load(self.obj))


class PartialVar(Var):
    """`functools.partial`."""

    __slots__ = ("args", "fn", "kwargs")

    def __init__(
        self, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var], source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.fn, self.args, self.kwargs = fn, list(args), dict(kwargs)

    def python_type(self) -> type:
        return functools.partial

    def getattr_(self, tx: Tracer, name: str) -> Var:
        parts = {"func": self.fn, "args": TupleVar(self.args), "keywords": make(dict(self.kwargs))}
        return parts[name] if name in parts else super().getattr_(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.fn, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(functools.partial)
        loads = [lambda arg=arg: cg.load(arg) for arg in (self.fn, *self.args, *self.kwargs.values())]
        cg.call_top(*loads, names=tuple(self.kwargs))


Handler = Callable[[Tracer, list[Var], dict[str, Var]], Var]
BUILTINS: dict[Any, Handler] = {}
# Modules whose C functions are pure: folded when all arguments are known.
PURE_MODULES = {"math", "cmath", "operator", "_operator", "builtins", "_struct", "unicodedata", "_bisect"}
IMPURE = {"print", "input", "open", "exec", "eval", "compile", "breakpoint", "globals", "locals", "vars", "dir"}


class BuiltinVar(Var):
    """A function written in C: a model from BUILTINS, else folded when pure, else a break."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return getattr(self.value, "__qualname__", repr(self.value))

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return ConstVar(getattr(self.value, name))
        return super().getattr_(tx, name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        try:
            handler = BUILTINS.get(self.value)
        except TypeError:  # a method of an unhashable object
            handler = None
        if handler is not None:
            return handler(tx, list(args), dict(kwargs))
        name = getattr(self.value, "__name__", "?")
        if name in IMPURE and getattr(self.value, "__module__", "") in ("builtins", "_io"):
            return tx.graph_break("builtin-side-effect", f"{name}() was called")
        if isinstance(self.value, types.MethodDescriptorType | types.WrapperDescriptorType) and args:
            past_overrides = getattr(args[0], "c_method", None)
            if past_overrides is not None:
                return past_overrides(tx, name, args[1:], kwargs)
            if type(args[0]).call_method is not Var.call_method:
                return args[0].call_method(tx, name, args[1:], kwargs)
            return tx.graph_break("unknown-c-function", f"{self.describe()} of {args[0].describe()}")
        if getattr(self.value, "__module__", None) in PURE_MODULES:
            try:
                values, named = constants(args), {key: arg.constant() for key, arg in kwargs.items()}
            except NotConstant:
                return tx.graph_break("unknown-c-function", f"{self.describe()} of values known only at run time")
            return fold(tx, self.value, *values, **named)
        return tx.graph_break("unknown-c-function", self.describe())

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)


__all__ = ["BUILTINS", "BoundMethodVar", "BuiltinVar", "CellSource", "CellVar", "FunctionVar", "PartialVar"]
