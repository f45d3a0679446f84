"""Descriptors: what an attribute of a class gives when it is read or written through an instance.

Properties, methods, static and class methods, slots, cached properties, and descriptors written in Python are run or
bound as CPython does. The same for reads through a class is in `classes`.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from ...core.source import AttrSource, CallSource, ConstSource, DictItemSource, InstanceDictSource, Source
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import make
from ..tracer import Tracer
from .functions import BoundMethodVar, BuiltinVar
from .lookup import FUNCTIONS, class_function, class_source, constant_function, guarded_lookup

if TYPE_CHECKING:
    from .instances import InstanceVar

_METHODS_IN_C = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    functools._lru_cache_wrapper,
)  # fmt: skip


def bind(tx: Tracer, obj: InstanceVar, name: str, raw: Any, cls: type | None = None) -> Var:
    """The result of reading the class attribute `raw` through an instance: runs or binds descriptors. `cls`: the class
    in which it was found, if that is not the first of the instance's that has the attribute."""
    cls = cls or obj.cls
    if _is_property(raw, "__get__"):
        if raw.fget is None:
            tx.raise_(AttributeError, f"property {name!r} of {obj.cls.__name__!r} object has no getter")
        return tx.call(constant_function(tx, raw.fget), [obj], {})
    if isinstance(raw, types.MemberDescriptorType):
        return obj.read_slot(tx, name, raw)
    if isinstance(raw, types.GetSetDescriptorType):
        return obj.read_computed(tx, name, raw)
    if isinstance(raw, FUNCTIONS):
        return BoundMethodVar(tx.wrap(raw, class_source(cls, name)), obj)
    if isinstance(raw, classmethod):
        return BoundMethodVar(class_function(tx, cls, name, raw), make(obj.cls))
    if isinstance(raw, staticmethod):
        return class_function(tx, cls, name, raw)
    if type(raw) is functools.cached_property and raw.attrname == name:
        held = InstanceDictSource(ConstSource.of(raw, f"{cls.__name__}.{name}"))
        tx.guard(DictItemSource(held, "func"), "ID", raw.func)
        tx.guard(DictItemSource(held, "attrname"), "EQUALS", name)
        lookup(functools.cached_property, "__get__")
        value = tx.call(constant_function(tx, raw.func), [obj], {})
        obj.set_field(tx, name, value)
        return value
    get = lookup(type(raw), "__get__")
    if isinstance(get, types.FunctionType):
        descriptor = tx.wrap(raw, ConstSource.of(raw, f"{cls.__name__}.{name}"))
        return tx.call(constant_function(tx, get), [descriptor, obj, make(obj.cls)], {})
    if get is not MISSING and not isinstance(raw, type):
        if not isinstance(raw, _METHODS_IN_C):
            return obj.unsupported(tx, f"attribute {name!r}, a descriptor written in C,")
        cached = isinstance(raw, functools._lru_cache_wrapper)
        owner = make(obj.cls) if isinstance(raw, types.ClassMethodDescriptorType) else obj
        return BoundMethodVar(tx.wrap(raw, class_source(cls, name)) if cached else BuiltinVar(raw), owner)
    return tx.wrap(raw, class_source(cls, name))


def read_source(obj: InstanceVar, name: str, raw: Any) -> Source | None:
    """The source of a value read from a C descriptor.

    If the class has `__getattr__` or its own `__getattribute__`, the source calls the descriptor directly, so that
    evaluating a guard does not run them.
    """
    if obj.source is None or not has_attribute_hook(obj.cls):
        return obj.source and AttrSource(obj.source, name)
    return CallSource(obj.source, raw.__get__, name)


def has_attribute_hook(cls: type) -> bool:
    """Whether the class defines `__getattribute__` or `__getattr__`."""
    plain = lookup(cls, "__getattribute__") is object.__getattribute__
    return not plain or lookup(cls, "__getattr__") is not MISSING


def set_through(tx: Tracer, obj: InstanceVar, name: str, value: Var | None) -> None:
    """Set or delete through a data descriptor of the class."""
    raw = guarded_lookup(tx, obj.cls, name)
    args = [obj] + ([value] if value is not None else [])
    if _is_property(raw, "__set__"):
        fn = raw.fset if value is not None else raw.fdel
        if fn is None:
            what = "setter" if value is not None else "deleter"
            tx.raise_(AttributeError, f"property {name!r} of {obj.cls.__name__!r} object has no {what}")
        tx.call(constant_function(tx, fn), args, {})
        return
    method = lookup(type(raw), "__set__" if value is not None else "__delete__")
    if not isinstance(method, types.FunctionType):
        obj.unsupported(tx, f"a data descriptor's set of {name!r}")
    descriptor = tx.wrap(raw, ConstSource.of(raw, f"{obj.cls.__name__}.{name}"))
    tx.call(constant_function(tx, method), [descriptor, *args], {})


def _is_property(raw: Any, method: str) -> bool:
    """Whether `raw` is a property whose `method` (`__get__` or `__set__`) is not overridden by a subclass."""
    return isinstance(raw, property) and lookup(type(raw), method) is property.__dict__[method]
