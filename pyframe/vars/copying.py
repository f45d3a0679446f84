"""What `copy` is built on: `__reduce_ex__`, how to make an object again, and `__deepcopy__` of tensors."""

from __future__ import annotations

import collections
import copyreg
import types
from collections.abc import Callable
from typing import Any

import torch

from ..core.source import ConstSource
from ..core.tracer import Tracer
from . import dunder
from .base import Var
from .const import ConstVar, make
from .function import FunctionVar, PartialVar
from .lookup import lookup
from .mapping import DictVar
from .sequence import SequenceVar, TupleVar

_NONE: Var = ConstVar(None)


def reduced(tx: Tracer, obj: Any) -> Var:
    """`obj.__reduce_ex__(4)` of an InstanceVar whose class keeps object's."""
    if isinstance(lookup(obj.cls, "__reduce__"), types.FunctionType):
        return obj.call_method(tx, "__reduce__", [], {})
    in_attributes = getattr(obj, "kind", None) is not None or issubclass(obj.cls, types.SimpleNamespace)
    if not in_attributes and lookup(obj.cls, "__reduce__") is not object.__reduce__:
        return obj.unsupported(tx, "__reduce__(), written in C,")  # type: ignore[no-any-return]
    lists, dicts = obj.contents(tx)
    return TupleVar([*_made_by(tx, obj), _state(tx, obj), lists or _NONE, dicts or _NONE])


def _made_by(tx: Tracer, obj: Any) -> list[Var]:
    """The function that makes an object like `obj`, without its state, and the arguments of it."""
    cls = make(obj.cls)
    if isinstance(lookup(obj.cls, "__getnewargs_ex__"), types.FunctionType):
        args, named = obj.call_method(tx, "__getnewargs_ex__", [], {}).unpack(tx)
        return [_function(copyreg.__newobj_ex__), TupleVar([cls, args, named])]  # type: ignore[attr-defined]
    args = TupleVar([])
    if isinstance(lookup(obj.cls, "__getnewargs__"), types.FunctionType):
        args = obj.call_method(tx, "__getnewargs__", [], {})
    elif getattr(obj, "kind", None) not in (None, list, dict, set, collections.OrderedDict):
        args = TupleVar([obj.base])
    return [_function(copyreg.__newobj__), TupleVar([cls, *args.unpack(tx)])]


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
    """`obj.__reduce_ex__(4)` of a value that C keeps."""
    kind = obj.python_type()
    if isinstance(obj, PartialVar):
        state = [obj.fn, TupleVar(obj.args), DictVar(obj.kwargs), DictVar(obj.attrs) if obj.attrs else _NONE]
        return TupleVar([make(kind), TupleVar([obj.fn]), TupleVar(state)])
    if kind is collections.deque:
        limit = obj.getattr_(tx, "maxlen")
        args = [] if limit.constant() is None else [TupleVar([]), limit]
        return TupleVar([make(kind), TupleVar(args), _NONE, obj.iterate(tx)])
    if isinstance(obj, DictVar):
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
        return TupleVar([_function(copyreg.__newobj__), TupleVar(args), _NONE, _NONE, _NONE])
    return obj.unsupported(tx, "__reduce_ex__()")


def _items(tx: Tracer, obj: DictVar) -> Var:
    return obj.call_method(tx, "items", [], {}).iterate(tx)


def deepcopy_tensor(tx: Tracer, tensor: Any, memo: Var) -> Var:
    """`tensor.__deepcopy__(memo)` of a leaf that records no gradients: a clone, the same for the same memo."""
    fake = tensor.fake
    original = tx.graph.originals.get(tensor.source)
    if fake.is_leaf and (fake.requires_grad or original is not None and original.__dict__):
        return tensor.unsupported(tx, "deepcopy() of a parameter, or of a tensor with attributes of its own,")
    if fake.is_leaf and torch.empty_like(fake).stride() != fake.stride():
        return tensor.unsupported(tx, "deepcopy() of a tensor whose elements overlap or leave gaps")
    return tx.inline(_deepcopied, [tensor, memo], {})


def _deepcopied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if not tensor.is_leaf:
        raise RuntimeError(_NOT_A_LEAF)
    if id(tensor) in memo:
        return memo[id(tensor)]  # type: ignore[no-any-return]
    result = tensor.detach().clone()
    memo[id(tensor)] = result
    return result


def _not_a_leaf() -> str:
    """What torch says of a tensor that is not a leaf."""
    try:
        with torch.enable_grad():
            torch.Tensor.__deepcopy__(torch.zeros((), requires_grad=True) + 1, {})
    except RuntimeError as error:
        return str(error)
    raise AssertionError("deepcopy of a tensor that is not a leaf did not fail")


_NOT_A_LEAF = _not_a_leaf()
dunder.add("__copy__", lambda tx, obj: obj.call_method(tx, "copy", [], {}))
dunder.add("__reduce_ex__", _reduce_builtin)
dunder.add("__reduce__", _reduce_builtin)
