"""Models of builtins, by the builtin itself (filled into `function.BUILTINS`)."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..core.tracer import Tracer
from . import slots
from .base import NotConstant, Var
from .const import BINARY, COMPARE, ConstVar, MethodVar, fold, make
from .exception import ExceptionVar, Raised
from .function import BUILTINS, BoundMethodVar, BuiltinVar, FunctionVar, Handler, PartialVar
from .instance import MISSING, InstanceVar, lookup
from .iterator import LazyVar, from_python
from .klass import ClassVar, SuperVar, type_var
from .mapping import DictVar, key_of, pairs_of
from .polyfills import builtins as polyfills
from .sequence import DequeVar, ListVar, RangeVar, SequenceVar, SliceVar, TupleVar, sorted_items
from .sets import SetVar

Args = list[Var]
Kwargs = dict[str, Var]


def model(*targets: Any) -> Callable[[Handler], Handler]:
    def register(fn: Handler) -> Handler:
        for target in targets:
            BUILTINS[target] = fn
        return fn

    return register


def _bool(value: bool) -> Var:
    return ConstVar(bool(value))


def _items(tx: Tracer, args: Args) -> list[Var]:
    return args[0].unpack(tx) if args else []


@model(len)
def _len(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return args[0].length(tx)


@model(bool)
def _to_bool(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _bool(bool(args) and args[0].truth(tx))


@model(iter)
def _iter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return args[0].iterate(tx)


@model(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    item = args[0].next_(tx)
    if item is None:
        return args[1] if len(args) > 1 else tx.raise_(StopIteration)
    return item


@model(isinstance)
def _isinstance(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    try:
        kind = args[0].python_type()
    except NotConstant:
        return args[0].unsupported(tx, "isinstance()")
    classes = args[1].constant()
    value = slots.constant_or(args[0], None)
    if isinstance(args[0], InstanceVar) and isinstance(args[0].value, kind):
        value = args[0].value
    return _bool(issubclass(kind, classes) or (value is not None and isinstance(value, classes)))


@model(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return fold(tx, issubclass, args[0].constant(), args[1].constant())


@model(type)
def _type(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) != 1:
        return tx.graph_break("unsupported-object", "making a class")
    return type_var(tx, args[0])


def _attribute(tx: Tracer, obj: Var, name: str) -> Var | None:
    try:
        return obj.getattr_(tx, name)
    except Raised as raised:
        if not issubclass(raised.exc.python_type(), AttributeError):
            raise
        return None


@model(getattr)
def _getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    name = args[1].constant()
    if len(args) == 2:
        return args[0].getattr_(tx, name)
    return _attribute(tx, args[0], name) or args[2]


@model(hasattr)
def _hasattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _bool(_attribute(tx, args[0], args[1].constant()) is not None)


@model(setattr)
def _setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args[0].setattr_(tx, args[1].constant(), args[2])
    return ConstVar(None)


@model(delattr)
def _delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args[0].setattr_(tx, args[1].constant(), None)
    return ConstVar(None)


@model(object.__setattr__)
def _object_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar):
        args[0].store(tx, args[1].constant(), args[2])
    else:
        args[0].setattr_(tx, args[1].constant(), args[2])
    return ConstVar(None)


@model(object.__init__)
def _object_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return ConstVar(None)


@model(object.__new__)
def _object_new(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return InstanceVar.fresh(args[0].constant())


@model(Exception.__init__, BaseException.__init__)
def _exception_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], ExceptionVar):
        args[0].args = args[1:]
    return ConstVar(None)


@model(object)
def _object(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return InstanceVar.fresh(object)


@model(list)
def _list(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return ListVar(_items(tx, args))


@model(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args and type(args[0]) is TupleVar:
        return args[0]
    return TupleVar(_items(tx, args))


@model(set)
def _set(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return SetVar([key_of(tx, item) for item in _items(tx, args)])


@model(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return SetVar([key_of(tx, item) for item in _items(tx, args)], None, frozenset)


def _mapping(cls: type) -> Handler:
    def build(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        items = dict(pairs_of(tx, args[0])) if args else {}
        items.update(kwargs)
        return DictVar(items, None, cls)

    return build


model(dict)(_mapping(dict))
model(collections.OrderedDict)(_mapping(collections.OrderedDict))


@model(collections.defaultdict)
def _defaultdict(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    factory = args[0] if args and slots.constant_or(args[0], 0) is not None else None
    items = dict(pairs_of(tx, args[1])) if len(args) > 1 else {}
    return DictVar({**items, **kwargs}, None, collections.defaultdict, factory)


@model(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen", ConstVar(None))
    items = _items(tx, args)
    size = limit.constant()
    return DequeVar(items[len(items) - size :] if size is not None and len(items) > size else items, size)


@model(range)
def _range(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return RangeVar(range(*(slots.index(tx, arg) for arg in args)))


@model(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    none: Var = ConstVar(None)
    return SliceVar(none, args[0], none) if len(args) == 1 else SliceVar(*[*args, none][:3])


def _lazily(tx: Tracer, iterators: list[Var], combine: Callable[[list[Var]], Var], strict: bool) -> Iterator[Var]:
    while True:
        row = []
        for place, iterator in enumerate(iterators):
            item = iterator.next_(tx)
            if item is None:
                if strict and (place or any(it.next_(tx) is not None for it in iterators[1:])):
                    tx.raise_(ValueError, "zip() arguments have different lengths")
                return
            row.append(item)
        if not row:
            return
        yield combine(row)


@model(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    parts = [arg.iterate(tx) for arg in args]
    return LazyVar(zip, _lazily(tx, parts, TupleVar, strict), parts, kwargs)


@model(map)
def _map(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    parts = [arg.iterate(tx) for arg in args[1:]]
    rows = _lazily(tx, parts, lambda row: tx.call(args[0], row, {}), False)
    return LazyVar(map, rows, [args[0], *parts])


@model(filter)
def _filter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    test = None if slots.constant_or(args[0], 0) is None else args[0]
    source = args[1].iterate(tx)

    def items() -> Iterator[Var]:
        while (item := source.next_(tx)) is not None:
            if (item if test is None else tx.call(test, [item], {})).truth(tx):
                yield item

    return LazyVar(filter, items(), [args[0], source])


@model(enumerate)
def _enumerate(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstVar(0))
    source = args[0].iterate(tx)
    parts: list[Var] = [source, ConstVar(slots.index(tx, start))]

    def row(items: list[Var]) -> Var:
        number = parts[1]
        parts[1] = ConstVar(number.constant() + 1)
        return TupleVar([number, items[0]])

    return LazyVar(enumerate, _lazily(tx, [source], row, False), parts)


@model(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and lookup(args[0].cls, "__reversed__") is not MISSING:
        return args[0]._invoke(tx, "__reversed__")
    if isinstance(args[0], InstanceVar):
        size = slots.index(tx, args[0].length(tx))
        return from_python(iter([args[0].getitem(tx, ConstVar(at)) for at in reversed(range(size))]))
    return from_python(iter(args[0].unpack(tx)[::-1]))


@model(sorted)
def _sorted(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return ListVar(sorted_items(tx, args[0].unpack(tx), kwargs.get("key"), kwargs.get("reverse")))


@model(any)
def _any(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    iterator = args[0].iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        if item.truth(tx):
            return _bool(True)
    return _bool(False)


@model(all)
def _all(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    iterator = args[0].iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        if not item.truth(tx):
            return _bool(False)
    return _bool(True)


@model(sum)
def _sum(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstVar(0))
    for item in args[0].unpack(tx):
        total = slots.binary(tx, "+", total, item)
    return total


def _extreme(symbol: str) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        items = args if len(args) > 1 else args[0].unpack(tx)
        if not items:
            return kwargs.get("default") or tx.raise_(ValueError, "arg is an empty sequence")
        key = kwargs.get("key")
        keys = items if key is None else [tx.call(key, [item], {}) for item in items]
        best = 0
        for at in range(1, len(items)):
            if slots.compare(tx, symbol, keys[at], keys[best]).truth(tx):
                best = at
        return items[best]

    return run


model(min)(_extreme("<"))
model(max)(_extreme(">"))


def _via(function: Any, method: str) -> Handler:
    """A builtin that folds on constants, runs `__method__` of instances, and else asks call_method."""

    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        if all(arg.is_constant() for arg in args) and not kwargs:
            return fold(tx, function, *(arg.constant() for arg in args))
        if kwargs and all(arg.is_constant() for arg in (*args, *kwargs.values())):
            named = {name: arg.constant() for name, arg in kwargs.items()}
            return fold(tx, function, *(arg.constant() for arg in args), **named)
        if isinstance(args[0], InstanceVar) and not isinstance(
            lookup(args[0].cls, method), types.FunctionType
        ):
            return args[0].unsupported(tx, function.__name__)
        return args[0].call_method(tx, method, args[1:], kwargs)

    return run


for _function, _method in (
    (abs, "__abs__"),
    (int, "__int__"),
    (float, "__float__"),
    (complex, "__complex__"),
    (round, "__round__"),
    (hash, "__hash__"),
    (repr, "__repr__"),
    (format, "__format__"),
    (divmod, "__divmod__"),
):
    model(_function)(_via(_function, _method))


@model(str)
def _str(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args and isinstance(args[0], ExceptionVar):
        return args[0].text(tx)
    if isinstance(args[0] if args else None, InstanceVar) and isinstance(
        lookup(args[0].python_type(), "__str__"), types.FunctionType
    ):
        return args[0].call_method(tx, "__str__", [], {})
    if args and not args[0].is_constant():
        return args[0].call_method(tx, "__repr__", [], {})
    return fold(tx, str, *(arg.constant() for arg in args))


@model(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) == 3:
        return fold(tx, pow, *(arg.constant() for arg in args))
    return slots.binary(tx, "**", args[0], args[1])


@model(callable)
def _callable(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _bool(lookup(type_var(tx, args[0]).constant(), "__call__") is not MISSING)


@model(vars)
def _vars(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if not args:
        return tx.graph_break("builtin-side-effect", "vars() of the frame")
    return args[0].getattr_(tx, "__dict__")


@model(id)
def _id(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return tx.graph_break("unknown-c-function", "id() of a traced value")


@model(super)
def _super(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) != 2:
        frame = tx.frames[-1]  # type: ignore[attr-defined]
        name = frame.code.co_varnames[0]
        obj = frame.locals.get(name) or frame.cells[name].content
        args = [frame.cells["__class__"].content, obj]
    return SuperVar(args[0].constant(), args[1])


@model(functools.partial)
def _partial(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return PartialVar(args[0], args[1:], kwargs)


@model(property, staticmethod, classmethod)
def _descriptor(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return tx.graph_break("unsupported-object", "making a descriptor")


def _binary_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.binary(tx, symbol, args[0], args[1])


def _compare_model(symbol: str) -> Handler:
    return lambda tx, args, kwargs: slots.compare(tx, symbol, args[0], args[1])


for _symbol, _fn in BINARY.items():
    model(_fn)(_binary_model(_symbol))
    _in_place = getattr(operator, f"i{_fn.__name__.strip('_')}", None)
    if _in_place is not None:
        model(_in_place)(_binary_model(f"{_symbol}="))
for _symbol, _fn in COMPARE.items():
    model(_fn)(_compare_model(_symbol))
model(operator.neg)(lambda tx, args, kwargs: args[0].unary(tx, "-"))
model(operator.pos)(lambda tx, args, kwargs: args[0].unary(tx, "+"))
model(operator.invert)(lambda tx, args, kwargs: args[0].unary(tx, "~"))
model(operator.getitem)(lambda tx, args, kwargs: args[0].getitem(tx, args[1]))
model(operator.not_)(lambda tx, args, kwargs: _bool(not args[0].truth(tx)))
model(operator.truth)(lambda tx, args, kwargs: _bool(args[0].truth(tx)))
model(operator.contains)(lambda tx, args, kwargs: _bool(args[0].contains(tx, args[1])))
model(operator.is_)(lambda tx, args, kwargs: _bool(slots.identical(tx, args[0], args[1])))
model(operator.is_not)(lambda tx, args, kwargs: _bool(not slots.identical(tx, args[0], args[1])))


def _polyfill(function: types.FunctionType) -> Handler:
    return lambda tx, args, kwargs: tx.inline(function, args, kwargs)


for _target, _replacement in polyfills.TABLE.items():
    model(_target)(_polyfill(_replacement))


__all__ = ["BuiltinVar", "ClassVar", "FunctionVar", "MethodVar", "SequenceVar", "make"]


@model(object.__getattribute__)
def _object_getattribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    obj, name = args
    if isinstance(obj, InstanceVar):
        return obj.generic_getattr(tx, name.constant())
    return obj.getattr_(tx, name.constant())


@model(dataclasses.fields)
def _dataclass_fields(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    cls = args[0].constant() if isinstance(args[0], ClassVar) else args[0].python_type()
    found = dataclasses.fields(cls)
    return TupleVar([tx.wrap(f, tx.const_source(f, f"fields({cls.__name__})")) for f in found])


@model(inspect.signature)
def _signature(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """Of a function known while tracing: its code is guarded, so is what the signature says."""
    target = args[0].fn.constant() if isinstance(args[0], BoundMethodVar) else args[0].constant()
    found = inspect.signature(target, **{key: value.constant() for key, value in kwargs.items()})
    if isinstance(args[0], BoundMethodVar):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    tx.keep_alive.append(found)
    return tx.wrap(found, tx.const_source(found, "signature"))
