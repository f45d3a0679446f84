"""Vars for `super()`, whose attributes are found as CPython's `super_getattro` finds them."""

from __future__ import annotations

import functools
import types
from typing import Any

from ...core.source import ConstSource
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import lookup
from ..protocol.const import ConstVar, make
from ..tracer import Tracer
from .binding import bind
from .classes import ClassVar
from .functions import BoundMethodVar, BuiltinVar
from .instances import InstanceVar
from .lookup import FUNCTIONS, class_function, class_source, constant_function, guarded_lookup

_INIT_SUBCLASS = object.__dict__["__init_subclass__"]


class SuperVar(Var):
    """`super(cls, obj)`."""

    __slots__ = ("cls", "obj")

    def __init__(self, cls: type, obj: Var) -> None:
        super().__init__()
        self.cls, self.obj = cls, obj

    def python_type(self) -> type:
        return super

    def getattr_(self, tx: Tracer, name: str) -> Var:
        of_class = isinstance(self.obj, ClassVar) and slots.derives(self.obj.value, self.cls)
        start = self.obj.constant() if of_class else self.obj.python_type()
        mro = start.__mro__
        if self.cls not in mro:
            tx.raise_(TypeError, "super(type, obj): obj must be an instance or subtype of type")
        for base in mro[mro.index(self.cls) + 1 :] if name != "__class__" else ():
            if name in base.__dict__ or (base in tx.class_writes and name in tx.class_writes[base].attrs):
                found = guarded_lookup(tx, base, name)
                return self._of_class(tx, base, name, found, start) if of_class else self._bound(tx, base, name, found)
            lookup(base, name)  # guarded: it has none of its own
        of_super = {"__class__": super, "__thisclass__": self.cls, "__self_class__": start}
        if name in of_super:
            return make(of_super[name])
        if name == "__self__":
            return self.obj
        return tx.raise_(AttributeError, f"'super' object has no attribute {name!r}")

    def _bound(self, tx: Tracer, base: type, name: str, found: Any) -> Var:
        """What the attribute `found` of `base` gives for the object."""
        obj = self.obj
        if name == "__new__" and not isinstance(found, staticmethod):
            return BuiltinVar(getattr(base, name))
        if isinstance(found, types.MemberDescriptorType | types.GetSetDescriptorType):
            if lookup(obj.python_type(), name) is not found:
                return obj.unsupported(tx, f"{base.__qualname__}.{name}, a descriptor that a subclass replaces,")
            return obj.getattr_(tx, name)
        if isinstance(obj, InstanceVar):
            return bind(tx, obj, name, found, base)
        if isinstance(found, FUNCTIONS):
            return BoundMethodVar(class_function(tx, base, name, found), obj)
        if isinstance(found, property) and found.fget is not None:
            return tx.call(constant_function(tx, found.fget), [obj], {})
        if isinstance(found, types.WrapperDescriptorType | types.MethodDescriptorType):
            return BoundMethodVar(BuiltinVar(found), obj)
        if isinstance(found, functools.cached_property):
            return obj.unsupported(tx, f"the cached property {base.__qualname__}.{name}, read through super(),")
        return self._of_type(tx, base, name, found, obj, obj.python_type())

    def _of_class(self, tx: Tracer, base: type, name: str, found: Any, start: type) -> Var:
        """What the attribute `found` of `base` gives for the class `start`."""
        if isinstance(found, FUNCTIONS):
            return class_function(tx, base, name, found)
        if name == "__new__" and not isinstance(found, staticmethod):
            return BuiltinVar(getattr(base, name))
        if isinstance(found, types.WrapperDescriptorType | types.MethodDescriptorType):
            return BuiltinVar(found)
        if isinstance(found, types.MemberDescriptorType | types.GetSetDescriptorType):  # `base.__dict__` is not it
            return tx.wrap(found, ConstSource.of(found, f"{base.__name__}.{name}"))
        return self._of_type(tx, base, name, found, ConstVar(None), start)

    def _of_type(self, tx: Tracer, base: type, name: str, found: Any, obj: Var, start: type) -> Var:
        """The same for attributes to which the object does not matter, and for descriptors written in Python, which get
        `obj`."""
        owner = self.obj if isinstance(self.obj, ClassVar) and self.obj.value is start else make(start)
        if isinstance(found, classmethod):
            return BoundMethodVar(class_function(tx, base, name, found), owner)
        if isinstance(found, staticmethod):
            return class_function(tx, base, name, found)
        if found is _INIT_SUBCLASS:
            return BoundMethodVar(BuiltinVar(found), owner)
        if isinstance(found, types.ClassMethodDescriptorType):
            return BuiltinVar(found.__get__(None, start))
        get = lookup(type(found), "__get__")
        if isinstance(get, types.FunctionType) and not isinstance(found, functools.cached_property):
            descriptor = tx.wrap(found, ConstSource.of(found, f"{base.__name__}.{name}"))
            return tx.call(constant_function(tx, get), [descriptor, obj, owner], {})
        if isinstance(found, types.BuiltinFunctionType):
            return BuiltinVar(found)
        return tx.wrap(found, class_source(base, name))
