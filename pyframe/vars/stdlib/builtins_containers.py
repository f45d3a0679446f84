"""Models of container constructors: `list`, `dict`, `set`, `deque`, `defaultdict`, `range`, `slice` and others."""

from __future__ import annotations

import collections

from ...core.python_compat import UNHASHABLE_ELEMENT
from ..containers.deque import DequeVar
from ..containers.mapping import DictVar, keys_in, pairs_of
from ..containers.sequence import ListVar, SliceVar, TupleVar
from ..containers.sets import SetVar
from ..numbers.number_sets import new_set
from ..objects.classes import is_callable
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar, fold
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer


def _items(tx: Tracer, args: Args) -> list[Var]:
    return args[0].unpack(tx) if args else []


@register(list)
def _list(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return ListVar(_items(tx, args))


@register(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args and type(args[0]) is TupleVar:
        return args[0]
    return TupleVar(_items(tx, args))


@register(set)
def _set(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _filled(tx, args, set)


@register(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args and isinstance(args[0], SetVar) and args[0].cls is frozenset:
        return args[0]
    return _filled(tx, args, frozenset)


def _filled(tx: Tracer, args: Args, cls: type) -> Var:
    if args and isinstance(args[0], SetVar | DictVar):
        return SetVar(keys_in(tx, args[0], UNHASHABLE_ELEMENT), None, cls)
    return new_set(tx, _items(tx, args), cls)


def _mapping(cls: type) -> Handler:
    def build(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        if len(args) > 1:
            tx.raise_(TypeError, f"{cls.__name__} expected at most 1 argument, got {len(args)}")
        items = dict(pairs_of(tx, args[0])) if args else {}
        items.update(kwargs)
        return DictVar(items, None, cls)

    return build


register(dict)(_mapping(dict))
register(collections.OrderedDict)(_mapping(collections.OrderedDict))


def _fromkeys(cls: type) -> Handler:
    return lambda tx, args, kwargs: DictVar({}, None, cls)._fromkeys(tx, *args, **kwargs)


for _cls in (dict, collections.OrderedDict, collections.defaultdict):
    register(_cls.fromkeys)(_fromkeys(_cls))


@register(collections.defaultdict)
def _defaultdict(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    factory = args[0] if args and slots.constant_or(args[0], 0) is not None else None
    if factory is not None and not is_callable(tx, factory):
        tx.raise_(TypeError, "first argument must be callable or None")
    items = dict(pairs_of(tx, args[1])) if len(args) > 1 else {}
    return DictVar({**items, **kwargs}, None, collections.defaultdict, factory)


@register(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen", ConstVar(None))
    items = _items(tx, args)
    if not slots.has_type(limit, int, type(None)):
        tx.raise_(TypeError, "an integer is required")
    size = limit.constant()
    return DequeVar(items[len(items) - size :] if size is not None and len(items) > size else items, size)


@register(range)
def _range(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return fold(tx, range, *(slots.index(tx, arg) for arg in args))


@register(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    none: Var = ConstVar(None)
    start, stop, step = [none, args[0], none] if len(args) == 1 else [*args, none][:3]
    return SliceVar(start, stop, step)
