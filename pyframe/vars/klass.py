"""Classes."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import AttrSource, ConstSource, Source
from ..core.tracer import Tracer
from .base import NotConstant, Var
from .const import FOLDED, ConstVar, constants, make, maker
from .dictlike import DictInstanceVar
from .exception import ExceptionVar
from .function import BUILTINS, BoundMethodVar, BuiltinVar, FunctionVar
from .instance import MISSING, InstanceVar, lookup
from .sequence import NamedTupleVar


class ClassVar(Var):
    """A class that exists; the program's own instances are InstanceVars."""

    __slots__ = ("value",)

    def __init__(self, value: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__qualname__

    def getattr_(self, tx: Tracer, name: str) -> Var:
        found = lookup(self.value, name)
        source: Source = self.source or ConstSource.of(self.value, self.value.__name__)
        if isinstance(found, classmethod):
            return BoundMethodVar(_function(tx, found.__func__), self)
        if isinstance(found, staticmethod):
            return _function(tx, found.__func__, AttrSource(source, name))
        if isinstance(found, types.FunctionType):
            return _function(tx, found, AttrSource(source, name))
        try:
            value = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        if isinstance(value, types.FunctionType):
            return _function(tx, value, AttrSource(source, name))
        if callable(value) and not isinstance(value, type) and _is_builtin(value):
            return BuiltinVar(value)
        if name in ("__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__doc__"):
            return make(value)
        return tx.wrap(value, AttrSource(source, name))

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        self.unsupported(tx, f"setting class attribute {name!r}")

    def truth(self, tx: Tracer) -> bool:
        return True

    def getitem(self, tx: Tracer, key: Var) -> Var:
        if isinstance(self.value, enum.EnumMeta):
            return make(self.value[key.constant()])
        return super().getitem(tx, key)

    def iterate(self, tx: Tracer) -> Var:
        if isinstance(self.value, enum.EnumMeta):
            return make(list(self.value)).iterate(tx)
        return super().iterate(tx)

    def contains(self, tx: Tracer, item: Var) -> bool:
        if isinstance(self.value, enum.EnumMeta) and item.is_constant():
            return item.constant() in self.value
        return super().contains(tx, item)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op not in ("==", "!=") or not other.is_constant():
            return None
        return ConstVar((self.value is other.constant()) == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "|" and other.is_constant():
            pair = (other.constant(), self.value) if reflected else (self.value, other.constant())
            return ConstVar(pair[0] | pair[1])
        return None

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        cls = self.value
        if cls in BUILTINS:
            return BUILTINS[cls](tx, list(args), dict(kwargs))
        if isinstance(cls, enum.EnumMeta) and args and not kwargs:
            try:
                return ConstVar(cls(*constants(args)))
            except ValueError as error:
                tx.raise_(ValueError, *error.args)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._named_tuple(tx, args, kwargs)
        if type(cls).__call__ is not type.__call__ and type(cls).__module__ != "abc":
            return self.unsupported(tx, "a call, with a metaclass of its own,")
        if issubclass(cls, BaseException) and _plain_exception(cls):
            return ExceptionVar(cls, args)
        dict_like = issubclass(cls, dict) and cls.__new__ in (dict.__new__, collections.OrderedDict.__new__)
        if not dict_like and cls.__new__ is not object.__new__ or not cls.__flags__ & 0x200:
            return self.unsupported(tx, "making an instance")
        if getattr(cls, "__abstractmethods__", None):
            tx.raise_(TypeError, f"Can't instantiate abstract class {cls.__name__}")
        instance = DictInstanceVar(MISSING, None, cls) if dict_like else InstanceVar.fresh(cls)
        init = lookup(cls, "__init__")
        if isinstance(init, types.FunctionType):
            source = AttrSource(self.source, "__init__") if self.source else None
            tx.inline(_function(tx, init, source), [instance, *args], kwargs)
        elif isinstance(instance, DictInstanceVar):
            instance.c_method(tx, "__init__", args, kwargs)
        elif init is not object.__init__:
            return self.unsupported(tx, "__init__ in C")
        elif args or kwargs:
            tx.raise_(TypeError, f"{cls.__name__}() takes no arguments")
        return instance

    def _named_tuple(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        cls: Any = self.value
        if isinstance(cls.__dict__.get("__new__"), types.FunctionType) and "_fields" not in cls.__dict__:
            return self.unsupported(tx, "__new__ of a tuple class")
        values = dict(zip(cls._fields, args, strict=False))
        values.update(kwargs)
        for name in cls._fields:
            if name not in values:
                if name not in cls._field_defaults:
                    tx.raise_(TypeError, f"{cls.__name__}.__new__() missing an argument: {name!r}")
                values[name] = tx.wrap(cls._field_defaults[name], None)
        if len(values) > len(cls._fields) or len(args) > len(cls._fields):
            tx.raise_(TypeError, f"{cls.__name__}.__new__() got unexpected arguments")
        return NamedTupleVar(cls, [values[name] for name in cls._fields])

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)


class SuperVar(Var):
    """`super(cls, obj)`."""

    __slots__ = ("cls", "obj")

    def __init__(self, cls: type, obj: Var) -> None:
        super().__init__()
        self.cls, self.obj = cls, obj

    def python_type(self) -> type:
        return super

    def getattr_(self, tx: Tracer, name: str) -> Var:
        of_class = isinstance(self.obj, ClassVar)
        start = self.obj.constant() if of_class else self.obj.python_type()
        mro = start.__mro__
        for base in mro[mro.index(self.cls) + 1 :]:
            if name in base.__dict__:
                found = base.__dict__[name]
                source = AttrSource(ConstSource.of(base, base.__name__), name)
                if isinstance(found, types.FunctionType):
                    fn = _function(tx, found, source)
                    return fn if of_class else BoundMethodVar(fn, self.obj)
                if isinstance(found, classmethod):
                    owner = self.obj if of_class else make(start)
                    return BoundMethodVar(_function(tx, found.__func__), owner)
                if isinstance(found, staticmethod):
                    return _function(tx, found.__func__)
                if isinstance(found, property):
                    return tx.inline(_function(tx, found.fget), [self.obj], {})
                if _is_builtin(found):
                    return BoundMethodVar(BuiltinVar(found), self.obj)
                return tx.wrap(found, source)
        return tx.raise_(AttributeError, f"'super' object has no attribute {name!r}")


def _function(tx: Tracer, fn: Any, source: Source | None = None) -> Var:
    if isinstance(fn, types.FunctionType) and source is None and fn not in BUILTINS:
        return FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
    return tx.wrap(fn, source or ConstSource.of(fn, getattr(fn, "__qualname__", "function")))


def _is_builtin(value: Any) -> bool:
    return isinstance(
        value,
        types.BuiltinFunctionType
        | types.WrapperDescriptorType
        | types.MethodDescriptorType
        | types.ClassMethodDescriptorType
        | types.MethodWrapperType,
    )


def _plain_exception(cls: type) -> bool:
    return not any(
        isinstance(base.__dict__.get(name), types.FunctionType)
        for base in cls.__mro__
        for name in ("__init__", "__new__")
    )


def type_var(tx: Tracer, value: Var) -> Var:
    """`type(value)`."""
    try:
        return make(value.python_type())
    except NotConstant:
        return value.unsupported(tx, "type()")


maker(type)(ClassVar)
__all__ = ["FOLDED", "ClassVar", "SuperVar", "type_var"]
