"""`object.__reduce_ex__`, on which `copy` is built: how to make an object again."""

from __future__ import annotations

import copyreg
import types
from typing import Any

from ..core.source import ConstSource
from ..core.tracer import Tracer
from .base import Var
from .const import ConstVar, make
from .function import FunctionVar
from .lookup import lookup
from .mapping import DictVar
from .sequence import TupleVar


def reduced(tx: Tracer, obj: Any) -> Var:
    """`obj.__reduce_ex__(4)` of an InstanceVar whose class keeps object's."""
    if isinstance(lookup(obj.cls, "__reduce__"), types.FunctionType):
        return obj.call_method(tx, "__reduce__", [], {})
    args: list[Var] = [make(obj.cls)]
    for name in ("__getnewargs_ex__", "__getnewargs__"):
        if isinstance(lookup(obj.cls, name), types.FunctionType):
            if name == "__getnewargs_ex__":
                obj.unsupported(tx, name)
            args += obj.call_method(tx, name, [], {}).unpack(tx)
    make_new = FunctionVar(copyreg.__newobj__, ConstSource.of(copyreg.__newobj__, "copyreg.__newobj__"))
    lists, dicts = obj.contents(tx)
    return TupleVar([make_new, TupleVar(args), _state(tx, obj), lists or ConstVar(None), dicts or ConstVar(None)])


def _state(tx: Tracer, obj: Any) -> Var:
    if isinstance(lookup(obj.cls, "__getstate__"), types.FunctionType):
        return obj.call_method(tx, "__getstate__", [], {})
    fields: Var = ConstVar(None)
    if obj.cls.__dictoffset__ != 0:
        held = obj.fields(tx)
        fields = DictVar(held) if held else fields
    names = [name for name in copyreg._slotnames(obj.cls) if tx.has_attribute(obj, name)]  # type: ignore[attr-defined]
    if not names:
        return fields
    return TupleVar([fields, DictVar({name: obj.getattr_(tx, name) for name in names})])
