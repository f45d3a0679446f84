"""Instances of user classes: attributes by CPython's rules, changes kept in an overlay."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import AttrSource, ConstSource, DictItemSource, InstanceDictSource, Source
from ..core.tracer import Tracer
from . import slots
from .base import Var
from .const import ConstVar, make
from .exception import Raised
from .fields import FieldsVar
from .function import BoundMethodVar, BuiltinVar, FunctionVar

MISSING = object()
_METHOD_OF = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARE_OF = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
_UNARY_OF = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


def lookup(cls: type, name: str) -> Any:
    """The raw attribute found along the MRO, or MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


class InstanceVar(Var):
    """An object of a class written in Python.  `value` is the object when it existed before the frame; `attrs`
    holds what was read or written (None: deleted)."""

    __slots__ = ("attrs", "cls", "value")

    def __init__(self, value: Any, source: Source | None = None, cls: type | None = None) -> None:
        super().__init__(source)
        self.cls = cls or type(value)
        self.value = value
        self.attrs: dict[str, Var | None] = {}

    @classmethod
    def fresh(cls, type_: type) -> InstanceVar:
        """A new instance that the traced program makes."""
        return cls(MISSING, None, type_)

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__qualname__}"

    # ---- attributes ----
    def _function(self, tx: Tracer, fn: types.FunctionType, name: str) -> Var:
        return tx.wrap(fn, AttrSource(ConstSource.of(self.cls, self.cls.__name__), name))

    def _instance_attr(self, tx: Tracer, name: str) -> Var | None:
        if name in self.attrs:
            return self.attrs[name]
        if self.value is MISSING:
            return None
        fields = getattr(self.value, "__dict__", {})
        dict_source = InstanceDictSource(self.source) if self.source else None
        if name not in fields:
            if hasattr(self.value, "__dict__"):
                tx.guard(dict_source, "DICT_LACKS", name)
            return None
        var = tx.wrap(fields[name], DictItemSource(dict_source, name) if dict_source else None)
        self.attrs[name] = var
        return var

    def getattr_(self, tx: Tracer, name: str) -> Var:
        custom = lookup(self.cls, "__getattribute__")
        if not isinstance(custom, types.FunctionType):
            return self.generic_getattr(tx, name)
        try:
            return tx.call(self._function(tx, custom, "__getattribute__"), [self, ConstVar(name)], {})
        except Raised as raised:
            fallback = lookup(self.cls, "__getattr__")
            if not issubclass(raised.exc.python_type(), AttributeError) or not isinstance(fallback, types.FunctionType):
                raise
            return tx.call(self._function(tx, fallback, "__getattr__"), [self, ConstVar(name)], {})

    def generic_getattr(self, tx: Tracer, name: str) -> Var:
        """`object.__getattribute__`, with `__getattr__` where the class has no `__getattribute__` of its own."""
        if name == "__class__":
            return make(self.cls)
        if name == "__dict__":
            return FieldsVar(self, tx)
        raw = lookup(self.cls, name)
        if isinstance(raw, property):
            return tx.call(_const_fn(tx, raw.fget), [self], {})
        if isinstance(raw, types.MemberDescriptorType):
            return self._slot(tx, name, raw)
        own = self._instance_attr(tx, name)
        if own is not None:
            return own
        if isinstance(raw, types.FunctionType):
            return BoundMethodVar(self._function(tx, raw, name), self)
        if isinstance(raw, classmethod):
            return BoundMethodVar(_const_fn(tx, raw.__func__), make(self.cls))
        if isinstance(raw, staticmethod):
            return _const_fn(tx, raw.__func__)
        if raw is MISSING:
            fallback = lookup(self.cls, "__getattr__")
            custom = isinstance(lookup(self.cls, "__getattribute__"), types.FunctionType)
            if isinstance(fallback, types.FunctionType) and not custom:
                return tx.call(self._function(tx, fallback, "__getattr__"), [self, ConstVar(name)], {})
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if isinstance(raw, types.GetSetDescriptorType):
            if self.value is MISSING:
                return self.unsupported(tx, f"attribute {name!r}, computed in C,")
            try:
                found = raw.__get__(self.value)
            except AttributeError as error:
                tx.raise_(AttributeError, *error.args)
            return tx.wrap(found, AttrSource(self.source, name) if self.source else None)
        get = lookup(type(raw), "__get__")
        if isinstance(get, types.FunctionType):
            descriptor = tx.wrap(raw, ConstSource.of(raw, f"{self.cls.__name__}.{name}"))
            return tx.call(_const_fn(tx, get), [descriptor, self, make(self.cls)], {})
        if get is not MISSING and not isinstance(raw, type):
            return BoundMethodVar(BuiltinVar(raw), self)
        return tx.wrap(raw, AttrSource(ConstSource.of(self.cls, self.cls.__name__), name))

    def _slot(self, tx: Tracer, name: str, raw: Any) -> Var:
        if name not in self.attrs and self.value is not MISSING:
            try:
                found = raw.__get__(self.value, self.cls)
            except AttributeError:
                tx.guard(self.source, "NO_ATTR", name)
            else:
                self.attrs[name] = tx.wrap(found, AttrSource(self.source, name) if self.source else None)
        var = self.attrs.get(name)
        return tx.raise_(AttributeError, name) if var is None else var

    def fields(self, tx: Tracer) -> dict[str, Var]:
        """What `__dict__` holds now."""
        names = dict.fromkeys(getattr(self.value, "__dict__", {}))
        if self.value is not MISSING and self.source is not None:
            tx.guard(InstanceDictSource(self.source), "DICT_KEYS", tuple(names))
        names.update(dict.fromkeys(self.attrs))
        found = {name: self._instance_attr(tx, name) for name in names}
        return {name: var for name, var in found.items() if var is not None}

    def set_field(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`__dict__[name] = value` (None deletes)."""
        if hasattr(type(lookup(self.cls, name)), "__set__"):
            self.unsupported(tx, f"writing {name!r}, a descriptor of the class, into __dict__")
        InstanceVar.store(self, tx, name, value)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        special = lookup(self.cls, "__setattr__" if value is not None else "__delattr__")
        if isinstance(special, types.FunctionType):
            args = [self, ConstVar(name)] + ([value] if value is not None else [])
            tx.call(_const_fn(tx, special), args, {})
            return
        self.store(tx, name, value)

    def store(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`object.__setattr__` (or `__delattr__` for None)."""
        raw = lookup(self.cls, name)
        if isinstance(raw, property):
            fn = raw.fset if value is not None else raw.fdel
            if fn is None:
                tx.raise_(AttributeError, f"property {name!r} of {self.cls.__name__!r} object has no setter")
            tx.call(_const_fn(tx, fn), [self] + ([value] if value is not None else []), {})
            return
        if hasattr(type(raw), "__set__") and not isinstance(raw, types.MemberDescriptorType):
            self.unsupported(tx, f"a data descriptor's set of {name!r}")
        if value is None and self._instance_attr(tx, name) is None and not isinstance(raw, types.MemberDescriptorType):
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.attrs[name] = value
        if self.source is not None:
            tx.effects.add("ATTR", self, name, tx.user_line())

    def written(self, name: str) -> Var | None:
        """What the assignments to an attribute have left; None: deleted."""
        return self.attrs.get(name)

    def setter(self, special: str) -> Any:
        """What replays an assignment (`special` is `__setattr__` or `__delattr__`): None for the plain statement, the
        method of object where the class has its own, which was traced."""
        return getattr(object, special) if isinstance(lookup(self.cls, special), types.FunctionType) else None

    # ---- methods named by slots ----
    def _special(self, tx: Tracer, name: str) -> Var | None:
        raw = lookup(self.cls, name)
        if isinstance(raw, types.FunctionType):
            return BoundMethodVar(self._function(tx, raw, name), self)
        return None

    def _invoke(self, tx: Tracer, name: str, *args: Var) -> Var:
        method = self._special(tx, name)
        if method is None:
            if lookup(self.cls, name) is MISSING:
                tx.raise_(TypeError, f"{self.cls.__name__!r} object has no {name}")
            return self.unsupported(tx, name)
        return tx.call(method, args, {})

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        method = self._special(tx, "__call__")
        return self.unsupported(tx, "a call") if method is None else tx.call(method, args, kwargs)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return self._invoke(tx, "__getitem__", key)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None:
            self._invoke(tx, "__delitem__", key)
        else:
            self._invoke(tx, "__setitem__", key, value)

    def _result(self, tx: Tracer, method: Var | None, *args: Var) -> Var | None:
        if method is None:
            return None
        result = tx.call(method, args, {})
        return None if slots.constant_or(result, None) is NotImplemented else result

    def unary(self, tx: Tracer, op: str) -> Var:
        return self._invoke(tx, _UNARY_OF[op])

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        base = _METHOD_OF[op.removesuffix("=")]
        prefix = "i" if op.endswith("=") else "r" if reflected else ""
        return self._result(tx, self._special(tx, f"__{prefix}{base}__"), other)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        result = self._result(tx, self._special(tx, _COMPARE_OF[op]), other)
        if result is None and op == "!=":
            same = self._result(tx, self._special(tx, "__eq__"), other)
            return None if same is None else ConstVar(not same.truth(tx))
        return result

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            if lookup(self.cls, name) is not MISSING:
                return self._invoke(tx, name).truth(tx)
        return True

    def length(self, tx: Tracer) -> Var:
        return self._invoke(tx, "__len__")

    def contains(self, tx: Tracer, item: Var) -> bool:
        if lookup(self.cls, "__contains__") is not MISSING:
            return self._invoke(tx, "__contains__", item).truth(tx)
        return any(slots.equal(tx, each, item) for each in self.unpack(tx))

    def iterate(self, tx: Tracer) -> Var:
        return self._invoke(tx, "__iter__")

    def next_(self, tx: Tracer) -> Var | None:
        return tx.until_stop(self._special(tx, "__next__"))

    def enter(self, tx: Tracer) -> Var:
        return self._invoke(tx, "__enter__")

    def exit(self, tx: Tracer, *args: Var) -> Var:
        return self._invoke(tx, "__exit__", *(args or (ConstVar(None),) * 3))

    def reconstruct(self, cg: Any) -> None:
        if self.value is not MISSING and self.source is None:
            cg.load_const(self.value)
            return
        cg.load_const(object.__new__)
        cg.call_top(lambda: cg.load_const(self.cls))
        cg.remember(self)  # before the attributes, which may lead back here
        for name, value in self.attrs.items():
            if value is not None:
                plain = lookup(self.cls, "__setattr__") is object.__setattr__
                cg.set_attr_of_top(name, value, plain=plain and not isinstance(lookup(self.cls, name), property))


def _const_fn(tx: Tracer, fn: Any) -> Var:
    """A function reached only through a class that is guarded already."""
    if isinstance(fn, types.FunctionType):
        return FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
    return tx.wrap(fn, ConstSource.of(fn, getattr(fn, "__name__", "function")))

