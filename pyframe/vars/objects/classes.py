"""Vars for classes and for `super()`.

Reading a class attribute follows `type.__getattribute__`, including metaclasses and descriptors; calling a class
creates an instance.  The MRO, the metaclass and the attributes that the trace reads are guarded.
"""

from __future__ import annotations

import collections.abc
import contextlib
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.python_compat import CLASSMETHODS_CHAIN
from ...core.source import ConstSource, Source
from ..codegen import Codegen
from ..protocol import arity, dunder, slots
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.class_reads import MISSING, is_immutable, lookup, note_class, reads_attributes_itself
from ..protocol.const import ConstVar, fold, make
from ..registry import Args, Kwargs, call_model, register
from ..tracer import Tracer
from .class_writes import write
from .functions import BoundMethodVar, BuiltinVar
from .instantiation import construct
from .lookup import (
    FUNCTIONS,
    class_function,
    class_source,
    constant_function,
    defined_in,
    guarded_lookup,
    wins_over_fields,
    written_in_class,
)
from .originals import as_first_seen, guard_class


class ClassVar(HeldVar):
    """A class."""

    __slots__ = ()

    value: type

    def __init__(self, value: type, source: Source | None = None) -> None:
        super().__init__(value, source)
        note_class(value)

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__qualname__

    def getattr_(self, tx: Tracer, name: str) -> Var:
        cls = self.value
        written = written_in_class(tx, cls, name)
        if written is None:
            tx.raise_(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")
        if written is not MISSING:
            return written
        if name == "__dict__" and any(base in tx.class_writes for base in cls.__mro__):
            return self.unsupported(tx, "__dict__ of a class that the program has changed")
        if reads_attributes_itself(type(cls)):
            return self.unsupported(tx, f"attribute {name!r}, read by a metaclass,")
        found = guarded_lookup(tx, cls, name)
        of_meta = lookup(type(cls), name)
        if type(of_meta) is property:
            return tx.call(constant_function(tx, of_meta.fget), [self], {})
        if found is MISSING and isinstance(of_meta, FUNCTIONS):
            return BoundMethodVar(class_function(tx, type(cls), name, of_meta), self)
        if isinstance(found, classmethod):
            if CLASSMETHODS_CHAIN and type(found.__func__) is property:
                return tx.call(constant_function(tx, found.__func__.fget), [self], {})
            return BoundMethodVar(class_function(tx, cls, name, found), self)
        if isinstance(found, (staticmethod, *FUNCTIONS)):
            return class_function(tx, cls, name, found)
        if found is MISSING and isinstance(of_meta, types.WrapperDescriptorType | types.MethodDescriptorType):
            return BoundMethodVar(BuiltinVar(of_meta), self)
        read = lookup(type(of_meta), "__get__") if found is MISSING or wins_over_fields(type(of_meta)) else None
        if isinstance(read, types.FunctionType):
            descriptor = tx.wrap(of_meta, ConstSource.of(of_meta, f"{type(cls).__name__}.{name}"))
            return tx.call(constant_function(tx, read), [descriptor, self, make(type(cls))], {})
        get = lookup(type(found), "__get__")
        if isinstance(get, types.FunctionType):
            descriptor = tx.wrap(found, ConstSource.of(found, f"{cls.__name__}.{name}"))
            return tx.call(constant_function(tx, get), [descriptor, ConstVar(None), self], {})
        fallback = lookup(type(cls), "__getattr__") if found is MISSING and of_meta is MISSING else MISSING
        if isinstance(fallback, types.FunctionType):
            return tx.call(class_function(tx, type(cls), "__getattr__", fallback), [self, ConstVar(name)], {})
        try:
            value = getattr(cls, name)
        except (AttributeError, NameError) as error:  # NameError: lazy annotations are evaluated by this read
            tx.raise_(type(error), *error.args)
        source = class_source(cls, name)
        if isinstance(value, types.FunctionType):
            return class_function(tx, cls, name, value)
        if callable(value) and not isinstance(value, type) and _is_builtin(value):
            return BuiltinVar(value)
        if name in ("__mro__", "__bases__", "__class__"):  # guarded with the class
            return make(value)
        return tx.wrap(value, source)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        write(tx, self, name, value)

    def truth(self, tx: Tracer) -> bool:
        method = self._of_metaclass(tx, "__bool__") or self._of_metaclass(tx, "__len__")
        return True if method is None else tx.call(method, [], {}).truth(tx)

    def _operator(self, tx: Tracer, name: str, other: Var) -> Var | None:
        """Call the operator method `name` of the metaclass.  None if it has none in Python, or for NotImplemented."""
        method = self._of_metaclass(tx, name)
        if method is None:
            return None
        result = tx.call(method, [other], {})
        return None if slots.constant_or(result, None) is NotImplemented else result

    def getitem(self, tx: Tracer, key: Var) -> Var:
        method = self._of_metaclass(tx, "__getitem__")
        if method is not None:
            return tx.call(method, [key], {})
        raw = guarded_lookup(tx, self.value, "__class_getitem__")
        if isinstance(raw, classmethod) and isinstance(raw.__func__, types.FunctionType) and _of_user(raw.__func__):
            return tx.call(BoundMethodVar(class_function(tx, self.value, "__class_getitem__", raw), self), [key], {})
        if self.value is collections.abc.Callable:  # `Callable[[int], str]`: the result copies the list
            with contextlib.suppress(NotConstant):
                return fold(tx, operator.getitem, self.value, key.plain())
        if raw is not MISSING and key.is_constant():
            return fold(tx, operator.getitem, self.value, key.constant())
        if raw is MISSING:
            tx.raise_(TypeError, f"type {self.value.__name__!r} is not subscriptable")
        return super().getitem(tx, key)

    def iterate(self, tx: Tracer) -> Var:
        method = self._of_metaclass(tx, "__iter__")
        return super().iterate(tx) if method is None else slots.checked_iterator(tx, tx.call(method, [], {}))

    def contains(self, tx: Tracer, item: Var) -> bool:
        method = self._of_metaclass(tx, "__contains__")
        return super().contains(tx, item) if method is None else tx.call(method, [item], {}).truth(tx)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        found = self._operator(tx, dunder.comparison(op), other)
        if found is not None:
            return found
        if op not in ("==", "!=") or not other.is_constant():
            return None
        return ConstVar((self.value is other.constant()) == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        found = self._operator(tx, dunder.name_of(op, reflected), other)
        if found is not None:
            return found
        if op == "|" and other.is_constant():
            pair = (other.constant(), self.value) if reflected else (self.value, other.constant())
            return ConstVar(pair[0] | pair[1])
        return None

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        cls = self.value
        if (model := call_model(cls)) is not None:
            if not is_immutable(cls):
                if not as_first_seen(cls):
                    return self.unsupported(tx, "a call, after the program changed the class,")
                guard_class(tx, cls)
            arity.check(tx, cls, args, kwargs)
            return model(tx, list(args), dict(kwargs))
        meta_call = guarded_lookup(tx, type(cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return tx.call(class_function(tx, type(cls), "__call__", meta_call), [self, *args], kwargs)
        if isinstance(meta_call, type):  # a class is not bound to `self`; see TypedDict
            return tx.call(tx.wrap(meta_call, class_source(type(cls), "__call__")), args, kwargs)
        return construct(tx, self, args, kwargs)

    # ---- special methods of a metaclass written in Python ----
    def _of_metaclass(self, tx: Tracer, name: str) -> Var | None:
        if type(self.value) is type:
            return None
        raw = guarded_lookup(tx, type(self.value), name)
        if not isinstance(raw, types.FunctionType):
            return None
        return BoundMethodVar(class_function(tx, type(self.value), name, raw), self)

    def hash_(self, tx: Tracer) -> Var | None:
        method = self._of_metaclass(tx, "__hash__")
        return None if method is None else tx.call(method, [], {})

    def repr_(self, tx: Tracer) -> Var | None:
        method = self._of_metaclass(tx, "__repr__")
        return None if method is None else tx.call(method, [], {})

    def str_(self, tx: Tracer) -> Var | None:
        method = self._of_metaclass(tx, "__str__")
        return self.repr_(tx) if method is None else tx.call(method, [], {})

    def length(self, tx: Tracer) -> Var:
        method = self._of_metaclass(tx, "__len__")
        return super().length(tx) if method is None else tx.call(method, [], {})

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _is_builtin(value: Any) -> bool:
    return isinstance(
        value,
        types.BuiltinFunctionType
        | types.WrapperDescriptorType
        | types.MethodDescriptorType
        | types.ClassMethodDescriptorType
        | types.MethodWrapperType,
    )


def _of_user(fn: types.FunctionType) -> bool:
    return not defined_in(fn, typing)


def type_var(tx: Tracer, value: Var) -> Var:
    """`type(value)`."""
    try:
        return make(value.python_type())
    except NotConstant:
        return value.unsupported(tx, "type()")


def is_callable(tx: Tracer, value: Var) -> bool:
    return lookup(type_var(tx, value).constant(), "__call__") is not MISSING


class _HasSubclasses:
    """Guard predicate: whether a class has these direct subclasses."""

    def __init__(self, classes: list[type]) -> None:
        self.classes = classes

    def __call__(self, cls: type) -> bool:
        return type.__subclasses__(cls) == self.classes


@register(type.__subclasses__)
def _subclasses(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    cls = slots.constant_or(args[0], None)
    if not isinstance(cls, type) or tx.placeholder_objects:  # some of these may be classes that the program created
        return args[0].unsupported(tx, "__subclasses__()")
    found: list[type] = type.__subclasses__(cls)
    source = ConstSource.of(cls, cls.__name__)
    tx.guard(source, "PREDICATE", (_HasSubclasses(found), (), f"has {len(found)} subclasses"))
    return make(found)
