"""Models of builtins, by the builtin itself (filled into `function.BUILTINS`)."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from ..core.tracer import Tracer
from . import slots
from .base import NotConstant, Var
from .const import BINARY, COMPARE, ConstVar, MethodVar, fold, make
from .deque import DequeVar
from .exception import Raised, TracebackVar
from .function import BUILTINS, BoundMethodVar, BuiltinVar, FunctionVar, Handler, PartialVar
from .identity import IdVar
from .instance import MISSING, InstanceVar, lookup
from .iterator import GeneratorVar, ItemsIteratorVar, IteratorVar, LazyVar
from .klass import ClassVar, SuperVar, type_var
from .mapping import DictVar, key_of, pairs_of
from .polyfills import builtins as polyfills
from .sequence import ListVar, SequenceVar, SliceVar, TupleVar, sorted_items
from .sets import SetVar
from .text import format_of, hash_of, repr_of, str_of

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
    if len(args) == 1:
        return args[0].iterate(tx)
    function, sentinel = args

    def step(tx: Tracer) -> Var | None:
        item = tx.call(function, [], {})
        return None if slots.compare(tx, "==", item, sentinel).truth(tx) else item

    return LazyVar(_CALL_ITERATOR, step, args, rebuild=iter)


_CALL_ITERATOR: type = type(iter(int, 1))


@model(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and len(args) == 1:
        return args[0]._invoke(tx, "__next__")
    item = args[0].next_(tx)
    if item is not None:
        return item
    if len(args) > 1:
        return args[1]
    return args[0].stop(tx) if isinstance(args[0], IteratorVar) else tx.raise_(StopIteration)


@model(isinstance)
def _isinstance(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    try:
        kind = args[0].python_type()
    except NotConstant:
        return args[0].unsupported(tx, "isinstance()")
    if isinstance(args[1], TupleVar):
        return _bool(any(_isinstance(tx, [args[0], each], {}).truth(tx) for each in args[1].items))
    if isinstance(args[1], ClassVar):
        check = lookup(type(args[1].value), "__instancecheck__")
        if isinstance(check, types.FunctionType) and not isinstance(args[1].value, abc.ABCMeta):
            if not _of_torch(check):
                return _bool(args[1].getattr_(tx, "__instancecheck__").call(tx, [args[0]], {}).truth(tx))
    of_typing = isinstance(args[1], InstanceVar) and args[1].cls.__module__ == "typing"
    classes = args[1].value if of_typing else args[1].constant()  # type: ignore[attr-defined]
    value = slots.constant_or(args[0], None)
    if isinstance(args[0], InstanceVar) and isinstance(args[0].value, kind):
        value = args[0].value
    try:
        return _bool(issubclass(kind, classes) or (value is not None and isinstance(value, classes)))
    except TypeError:
        return fold(tx, isinstance, None, classes)  # raises


def _of_torch(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").startswith(("torch", "typing", "enum"))


@model(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[1], ClassVar):
        check = lookup(type(args[1].value), "__subclasscheck__")
        if isinstance(check, types.FunctionType) and not isinstance(args[1].value, abc.ABCMeta):
            return _bool(args[1].getattr_(tx, "__subclasscheck__").call(tx, [args[0]], {}).truth(tx))
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


@model(object.__delattr__)
def _object_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar):
        args[0].store(tx, args[1].constant(), None)
    else:
        args[0].setattr_(tx, args[1].constant(), None)
    return ConstVar(None)


@model(object.__init__)
def _object_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
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
        if len(args) > 1:
            tx.raise_(TypeError, f"{cls.__name__} expected at most 1 argument, got {len(args)}")
        items = dict(pairs_of(tx, args[0])) if args else {}
        items.update(kwargs)
        return DictVar(items, None, cls)

    return build


model(dict)(_mapping(dict))
model(collections.OrderedDict)(_mapping(collections.OrderedDict))


@model(dict.fromkeys, collections.OrderedDict.fromkeys)
def _fromkeys(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return DictVar({})._fromkeys(tx, *args)


@model(collections.defaultdict)
def _defaultdict(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    factory = args[0] if args and slots.constant_or(args[0], 0) is not None else None
    if factory is not None and not _callable(tx, [factory], {}).truth(tx):
        tx.raise_(TypeError, "first argument must be callable or None")
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
    return fold(tx, range, *(slots.index(tx, arg) for arg in args))


@model(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    none: Var = ConstVar(None)
    return SliceVar(none, args[0], none) if len(args) == 1 else SliceVar(*[*args, none][:3])


def _row(tx: Tracer, iterators: list[Var]) -> list[Var] | None:
    """The next item of each iterator; None once one has ended."""
    row = []
    for iterator in iterators:
        item = iterator.next_(tx)
        if item is None:
            return None
        row.append(item)
    return row


def _strict_row(tx: Tracer, iterators: list[Var]) -> list[Var] | None:
    row: list[Var] = []
    for place, iterator in enumerate(iterators):
        item = iterator.next_(tx)
        if item is not None:
            row.append(item)
            continue
        if place:
            others = "argument 1" if place == 1 else f"arguments 1-{place}"
            tx.raise_(ValueError, f"zip() argument {place + 1} is shorter than {others}")
        for later in range(1, len(iterators)):
            if iterators[later].next_(tx) is not None:
                others = "argument 1" if later == 1 else f"arguments 1-{later}"
                tx.raise_(ValueError, f"zip() argument {later + 1} is longer than {others}")
        return None
    return row


@model(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    parts = [arg.iterate(tx) for arg in args]

    def step(tx: Tracer) -> Var | None:
        row = (_strict_row if strict else _row)(tx, parts)
        return TupleVar(row) if row else None

    return LazyVar(zip, step, parts, kwargs)


@model(map)
def _map(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) < 2:
        tx.raise_(TypeError, "map() must have at least two arguments.")
    parts = [arg.iterate(tx) for arg in args[1:]]

    def step(tx: Tracer) -> Var | None:
        row = _row(tx, parts)
        return None if row is None else tx.call(args[0], row, {})

    return LazyVar(map, step, [args[0], *parts])


@model(filter)
def _filter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    test = None if slots.constant_or(args[0], 0) is None else args[0]
    source = args[1].iterate(tx)

    def step(tx: Tracer) -> Var | None:
        while (item := source.next_(tx)) is not None:
            if (item if test is None else tx.call(test, [item], {})).truth(tx):
                return item
        return None

    return LazyVar(filter, step, [args[0], source])


@model(enumerate)
def _enumerate(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstVar(0))
    source = args[0].iterate(tx)
    parts: list[Var] = [source, ConstVar(slots.index(tx, start))]

    def step(tx: Tracer) -> Var | None:
        item, number = source.next_(tx), parts[1]
        if item is None:
            return None
        parts[1] = ConstVar(number.constant() + 1)
        return TupleVar([number, item])

    return LazyVar(enumerate, step, parts)


@model(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and lookup(args[0].cls, "__reversed__") is not MISSING:
        return args[0]._invoke(tx, "__reversed__")
    if isinstance(args[0], InstanceVar):
        size = slots.index(tx, args[0].length(tx))
        return ItemsIteratorVar([args[0].getitem(tx, ConstVar(at)) for at in reversed(range(size))])
    if isinstance(args[0], SetVar | IteratorVar):
        tx.raise_(TypeError, f"{slots.type_name(args[0])!r} object is not reversible")
    return ItemsIteratorVar(args[0].unpack(tx)[::-1])


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
    if slots.has_type(total, str, bytes):
        kind = "strings" if slots.has_type(total, str) else "bytes"
        tx.raise_(TypeError, f"sum() can't sum {kind} [use {'' if kind == 'strings' else 'b'}''.join(seq) instead]")
    iterator = args[0].iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        total = slots.binary(tx, "+", total, item)
    return total


def _extreme(symbol: str, name: str) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        items = args if len(args) > 1 else args[0].unpack(tx)
        if not items:
            empty = "arg is an empty sequence" if sys.version_info < (3, 12) else "iterable argument is empty"
            return kwargs.get("default") or tx.raise_(ValueError, f"{name}() {empty}")
        key = kwargs.get("key")
        key = None if key is not None and slots.constant_or(key, 0) is None else key
        keys = items if key is None else [tx.call(key, [item], {}) for item in items]
        best = 0
        for at in range(1, len(items)):
            if slots.compare(tx, symbol, keys[at], keys[best]).truth(tx):
                best = at
        return items[best]

    return run


model(min)(_extreme("<", "min"))
model(max)(_extreme(">", "max"))


def _via(function: Any, method: str) -> Handler:
    """A builtin that folds on constants, runs `__method__` of instances, and else asks call_method."""

    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        if all(arg.is_constant() for arg in args) and not kwargs:
            return fold(tx, function, *(arg.constant() for arg in args))
        if kwargs and all(arg.is_constant() for arg in (*args, *kwargs.values())):
            named = {name: arg.constant() for name, arg in kwargs.items()}
            return fold(tx, function, *(arg.constant() for arg in args), **named)
        if isinstance(args[0], InstanceVar):
            return _numeric(tx, function, method, args, kwargs)
        return args[0].call_method(tx, method, args[1:], kwargs)

    return run


for _function, _method in (
    (abs, "__abs__"),
    (int, "__int__"),
    (float, "__float__"),
    (complex, "__complex__"),
    (round, "__round__"),
    (divmod, "__divmod__"),
):
    model(_function)(_via(_function, _method))


_INSTEAD = {int: ("__index__", "__trunc__"), float: ("__index__",), complex: ("__float__", "__index__")}


def _numeric(tx: Tracer, function: Any, method: str, args: Args, kwargs: Kwargs) -> Var:
    """`function` of an instance: its method, or one that stands in for that."""
    for name in (method, *_INSTEAD.get(function, ())):
        if lookup(args[0].python_type(), name) is not MISSING:
            result = args[0]._invoke(tx, name, *args[1:], *kwargs.values())  # type: ignore[attr-defined]
            return result if name == method else tx.call(ClassVar(function), [result], {})
    if hasattr(args[0], "base"):
        return tx.call(tx.wrap(function, None), [args[0].base, *args[1:]], kwargs)
    name = function.__name__
    expected = {
        int: "int() argument must be a string, a bytes-like object or a real number, not {!r}",
        float: "float() argument must be a string or a real number, not {!r}",
        complex: "complex() first argument must be a string or a number, not {!r}",
        abs: "bad operand type for abs(): {!r}",
        round: "type {} doesn't define __round__ method",
    }.get(function, name + " of {!r}")
    return tx.raise_(TypeError, expected.format(slots.type_name(args[0])))


def _of_index(function: Any) -> Handler:
    return lambda tx, args, kwargs: fold(tx, function, slots.index(tx, args[0]))


for _function in (bin, hex, oct, chr):
    model(_function)(_of_index(_function))


@model(sys.exc_info)
def _exc_info(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    handled = tx.handled()
    if handled is None:
        return TupleVar([ConstVar(None)] * 3)
    return TupleVar([make(handled.python_type()), handled, TracebackVar()])


@model(hash)
def _hash(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return hash_of(tx, args[0])


@model(repr)
def _repr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return repr_of(tx, args[0])


@model(ascii)
def _ascii(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    text = repr_of(tx, args[0])
    return ConstVar(text.constant().encode("ascii", "backslashreplace").decode())


@model(format)
def _format(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return format_of(tx, args[0], args[1] if len(args) > 1 else ConstVar(""))


@model(str)
def _str(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) == 1 and not kwargs:
        return str_of(tx, args[0])
    return fold(tx, str, *(arg.constant() for arg in args), **{key: arg.constant() for key, arg in kwargs.items()})


@model(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args = [*args, *(kwargs[name] for name in ("base", "exp", "mod")[len(args) :] if name in kwargs)]
    if len(args) < 3 or slots.constant_or(args[2], 0) is None:
        return slots.binary(tx, "**", args[0], args[1])
    if isinstance(args[0], InstanceVar):
        return args[0]._invoke(tx, "__pow__", *args[1:])
    return fold(tx, pow, *(arg.constant() for arg in args))


@model(dir)
def _dir(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if not args:
        return tx.graph_break("builtin-side-effect", "dir() of the frame")
    obj = args[0]
    if isinstance(obj, InstanceVar):
        if lookup(obj.cls, "__dir__") is not object.__dir__:
            return ListVar(sorted_items(tx, obj._invoke(tx, "__dir__").unpack(tx), None, None))
        fields = obj.fields(tx) if obj.cls.__dictoffset__ else {}
        return make(sorted({*dir(obj.cls), *fields}))
    if isinstance(obj, ClassVar):
        return obj.unsupported(tx, "dir()")
    return make(dir(obj.python_type()))


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
    return IdVar(args[0])


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
    inner = args[0]
    if type(inner) is PartialVar and not inner.attrs:
        return PartialVar(inner.fn, [*inner.args, *args[1:]], {**inner.kwargs, **kwargs})
    return PartialVar(inner, args[1:], kwargs)


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
model(operator.abs)(lambda tx, args, kwargs: BUILTINS[abs](tx, args, kwargs))
model(operator.index)(lambda tx, args, kwargs: ConstVar(slots.index(tx, args[0])))
model(operator.neg)(lambda tx, args, kwargs: args[0].unary(tx, "-"))
model(operator.pos)(lambda tx, args, kwargs: args[0].unary(tx, "+"))
model(operator.invert)(lambda tx, args, kwargs: args[0].unary(tx, "~"))
model(operator.getitem)(lambda tx, args, kwargs: args[0].getitem(tx, args[1]))
model(operator.setitem)(lambda tx, args, kwargs: args[0].setitem(tx, args[1], args[2]) or ConstVar(None))
model(operator.delitem)(lambda tx, args, kwargs: args[0].setitem(tx, args[1], None) or ConstVar(None))
model(operator.concat)(_binary_model("+"))
model(operator.iconcat)(_binary_model("+="))
model(operator.not_)(lambda tx, args, kwargs: _bool(not args[0].truth(tx)))
model(operator.truth)(lambda tx, args, kwargs: _bool(args[0].truth(tx)))
model(operator.contains)(lambda tx, args, kwargs: _bool(args[0].contains(tx, args[1])))
model(operator.is_)(lambda tx, args, kwargs: _bool(slots.identical(tx, args[0], args[1])))
model(operator.is_not)(lambda tx, args, kwargs: _bool(not slots.identical(tx, args[0], args[1])))


def _polyfill(target: Any, function: types.FunctionType) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        result = tx.inline(function, args, kwargs)
        if isinstance(result, GeneratorVar):  # what a lazy class of C gives: that class makes it, if it is passed on
            result.origin = (BuiltinVar(target), args, kwargs)
            if isinstance(target, type):
                result.type = target
        return result

    return run


for _target, _replacement in polyfills.TABLE.items():
    model(_target)(_polyfill(_target, _replacement))


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
    if not isinstance(target, types.FunctionType | types.BuiltinFunctionType | type):
        return args[0].unsupported(tx, "signature()")
    found = inspect.signature(target, **{key: value.constant() for key, value in kwargs.items()})
    if isinstance(args[0], BoundMethodVar):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    tx.keep_alive.append(found)
    return tx.wrap(found, tx.const_source(found, "signature"))
