"""The methods of `object`, called for an instance of a class written in Python: comparison by identity, `__setattr__`,
`__reduce_ex__` and so on."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import lookup
from ..protocol.const import ConstVar, make
from ..protocol.text import str_of
from ..tracer import Tracer
from .copying import reduced

if TYPE_CHECKING:
    from .instances import InstanceVar

_COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")
# Modelled as the methods of object, even where a C class in between overrides them.
_READS_AS_EVER = ("__getattribute__", "__reduce_ex__")


def object_method(tx: Tracer, obj: InstanceVar, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """Call the method `name` of `object` itself, for an instance: overrides in its class are bypassed."""
    none: Var = ConstVar(None)
    if name in _COMPARISONS and not _compares_as_object(obj.cls, name):
        return obj.unsupported(tx, f"method {name!r}")
    owner = getattr(lookup(obj.cls, name), "__objclass__", object)
    if owner is not object and name not in _READS_AS_EVER:  # defined by a C class between this one and object
        return obj.unsupported(tx, f"method {name!r}")
    match name:
        case "__init__":
            if args or kwargs:
                refuse_arguments(tx, obj.cls)
            return none
        case "__init_subclass__":
            return none
        case "__setattr__":
            obj.store(tx, args[0].constant(), args[1])
            return none
        case "__delattr__":
            obj.store(tx, args[0].constant(), None)
            return none
        case "__getattribute__":
            return obj.generic_getattr(tx, args[0].constant(), fallback=False)
        case "__eq__":
            return ConstVar(True) if slots.identical(tx, obj, args[0]) else make(NotImplemented)
        case "__ne__":
            result = obj.compare(tx, "==", args[0])
            return make(NotImplemented) if result is None else ConstVar(not result.truth(tx))
        case "__lt__" | "__le__" | "__gt__" | "__ge__":
            return make(NotImplemented)
        case "__str__":
            return obj.repr_(tx) or obj.unsupported(tx, "str()")
        case "__format__":
            if slots.constant_or(args[0], "x") != "":
                tx.raise_(TypeError, f"unsupported format string passed to {obj.cls.__name__}.__format__")
            return str_of(tx, obj)
        case "__reduce_ex__":
            return reduced(tx, obj)
        case _:
            return obj.unsupported(tx, f"method {name!r}")


def _compares_as_object(cls: type, name: str) -> bool:
    """Whether `object` is the first C class along the MRO that defines the comparison `name`."""
    own = (base.__dict__.get(name) for base in cls.__mro__)
    in_c = (each for each in own if isinstance(each, types.WrapperDescriptorType))
    return next(in_c) is object.__dict__[name]


def refuse_arguments(tx: Tracer, cls: type) -> None:
    """`object.__init__` with arguments: a TypeError unless the class overrides `__new__` but not `__init__`."""
    wants = "takes exactly one argument (the instance to initialize)"
    if lookup(cls, "__init__") is not object.__init__:
        tx.raise_(TypeError, f"object.__init__() {wants}")
    if lookup(cls, "__new__") is object.__new__:
        tx.raise_(TypeError, f"{cls.__name__}.__init__() {wants}")
