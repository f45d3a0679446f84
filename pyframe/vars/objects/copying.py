"""Models `__reduce_ex__` and `__reduce__`, on which the `copy` module is built, and `copy.deepcopy` of
numbers and texts.

The result of `__reduce_ex__` is the usual tuple: a function that rebuilds the object, its arguments, the state, and
iterators over list and dict items.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import types
from collections.abc import Callable
from typing import Any

import torch

from ...core.python_compat import full_name
from ...core.source import ConstSource
from ..containers.mapping import DictVar
from ..containers.sequence import SequenceVar, TupleVar
from ..protocol import dunder
from ..protocol.base import Var
from ..protocol.class_reads import lookup
from ..protocol.const import ConstVar, make
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .functions import FunctionVar, PartialVar

_NONE: Var = ConstVar(None)


def reduced(tx: Tracer, obj: Any) -> Var:
    """`obj.__reduce_ex__(4)` for an InstanceVar whose class does not override `__reduce_ex__`."""
    if isinstance(lookup(obj.cls, "__reduce__"), types.FunctionType):
        return obj.call_method(tx, "__reduce__", [], {})
    in_attributes = getattr(obj, "kind", None) is not None or issubclass(obj.cls, types.SimpleNamespace)
    if not in_attributes and lookup(obj.cls, "__reduce__") is not object.__reduce__:
        return obj.unsupported(tx, "__reduce__(), written in C,")
    if not in_attributes and not isinstance(lookup(obj.cls, "__getstate__"), types.FunctionType):
        _check_fields(tx, obj.cls)
    lists, dicts = obj.contents(tx)
    return TupleVar([*_constructor_call(tx, obj), _state(tx, obj), lists or _NONE, dicts or _NONE])


_OWN_COPIES = (type(None), bool, int, float, complex, str, bytes)


@register(copy.deepcopy)
def _deepcopy(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`copy.deepcopy`. The first number or text of each type is copied by tracing the library's code, whose guards say
    that it is its own copy; so are the others then, if `memo` is a dict of this trace that does not have them."""
    value, memo = args[0] if args else None, args[1] if len(args) == 2 else None
    if kwargs or not isinstance(value, ConstVar) or type(value.value) not in _OWN_COPIES or len(args) > 2:
        return tx.inline(copy.deepcopy, args, kwargs)
    known = value.constant()
    if type(known) in tx.own_copies and (memo is None or _is_missing(tx, memo, value)):
        return value
    copied = tx.inline(copy.deepcopy, args, kwargs)
    if copied is value:
        tx.own_copies.add(type(known))
    return copied


def _is_missing(tx: Tracer, memo: Var, value: Var) -> bool:
    """Whether `memo` is a dict of this trace without the id() of the value."""
    return isinstance(memo, DictVar) and memo.source is None and tx.inline(_lacks, [memo, value], {}).truth(tx)


def _lacks(memo: dict[int, Any], value: Any) -> bool:
    return id(value) not in memo


_MANAGED_DICT, _IMMUTABLE = 1 << 4, 1 << 8  # flags of types: Py_TPFLAGS_MANAGED_DICT, Py_TPFLAGS_IMMUTABLETYPE


def _check_fields(tx: Tracer, cls: type) -> None:
    """Raise the TypeError of `object.__getstate__` for objects with fields in C and no `__getnewargs__` or
    `__getnewargs_ex__`.  Iterators of itertools are an example from CPython 3.14 on."""
    if any(isinstance(lookup(cls, name), types.FunctionType) for name in ("__getnewargs_ex__", "__getnewargs__")):
        return
    pointer = tuple.__itemsize__
    known = object.__basicsize__ + pointer * (cls.__weakrefoffset__ > 0)
    known += pointer * (cls.__dictoffset__ != 0 and not cls.__flags__ & _MANAGED_DICT)
    known += pointer * len(copyreg._slotnames(cls))  # type: ignore[attr-defined]
    if cls.__itemsize__ or cls.__basicsize__ > known:
        name = full_name(cls) if cls.__flags__ & _IMMUTABLE else cls.__name__
        tx.raise_(TypeError, f"cannot pickle {name!r} object")


def _constructor_call(tx: Tracer, obj: Any) -> list[Var]:
    """The function that creates an object like `obj`, without its state, and the arguments of that function."""
    cls = make(obj.cls)
    if isinstance(lookup(obj.cls, "__getnewargs_ex__"), types.FunctionType):
        args, named = obj.call_method(tx, "__getnewargs_ex__", [], {}).unpack(tx)
        return [_function(copyreg.__newobj_ex__), TupleVar([cls, args, named])]  # type: ignore[attr-defined]
    args = TupleVar([])
    if isinstance(lookup(obj.cls, "__getnewargs__"), types.FunctionType):
        args = obj.call_method(tx, "__getnewargs__", [], {})
    elif getattr(obj, "kind", None) not in (None, list, dict, set, collections.OrderedDict):
        args = TupleVar([obj.base])
    return [_function(copyreg.__newobj__), TupleVar([cls, *args.unpack(tx)])]  # type: ignore[attr-defined]


def _function(fn: Callable[..., Any]) -> Var:
    assert isinstance(fn, types.FunctionType)
    return FunctionVar(fn, ConstSource.of(fn, f"copyreg.{fn.__name__}"))


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


def _reduce_builtin(tx: Tracer, obj: Var, protocol: Var | None = None) -> Var:
    """`obj.__reduce_ex__(4)` of an instance of a built-in type."""
    kind = obj.python_type()
    if isinstance(obj, PartialVar):
        state = [obj.fn, TupleVar(obj.args), DictVar(obj.kwargs), DictVar(obj.attrs) if obj.attrs else _NONE]
        return TupleVar([make(kind), TupleVar([obj.fn]), TupleVar(state)])
    if kind is collections.deque:
        limit = obj.getattr_(tx, "maxlen")
        args = [] if limit.constant() is None else [TupleVar([]), limit]
        return TupleVar([make(kind), TupleVar(args), _NONE, obj.iterate(tx)])
    if isinstance(obj, DictVar):
        if obj.cls is collections.OrderedDict and (obj.fields or obj.source and tx.existing(obj).__dict__):
            return obj.unsupported(tx, "a copy with its attributes")
        factory = [obj.factory] if obj.factory is not None else []
        return TupleVar([make(kind), TupleVar(factory), _NONE, _NONE, _items(tx, obj)])
    if kind in (set, frozenset):
        return TupleVar([make(kind), TupleVar([make(obj.unpack(tx))]), _NONE])
    if kind in (range, slice):
        return TupleVar([make(kind), TupleVar([obj.getattr_(tx, name) for name in ("start", "stop", "step")])])
    if kind is torch.Size:
        return TupleVar([make(kind), TupleVar([TupleVar(obj.unpack(tx))])])
    if isinstance(obj, SequenceVar) and hasattr(kind, "__getnewargs__"):
        args = [make(kind), *obj.call_method(tx, "__getnewargs__", [], {}).unpack(tx)]
        new = _function(copyreg.__newobj__)  # type: ignore[attr-defined]
        return TupleVar([new, TupleVar(args), _NONE, _NONE, _NONE])
    return obj.unsupported(tx, "__reduce_ex__()")


def _items(tx: Tracer, obj: DictVar) -> Var:
    return obj.call_method(tx, "items", [], {}).iterate(tx)


dunder.add("__copy__", lambda tx, obj: obj.call_method(tx, "copy", [], {}))
dunder.add("__reduce_ex__", _reduce_builtin)
dunder.add("__reduce__", _reduce_builtin)
