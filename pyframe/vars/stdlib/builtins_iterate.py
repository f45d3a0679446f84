"""Models of the builtins that iterate.

`iter`, `zip`, `map`, `filter`, `enumerate` and `reversed` return lazy iterators; `sorted`, `any`, `all`, `sum`, `min`
and `max` consume their argument.
"""

from __future__ import annotations

from typing import Any

from ...core.python_compat import EMPTY_EXTREME
from ..containers.iterator import ItemsIteratorVar, IteratorVar, LazyVar, ReversedVar
from ..containers.ranges import RangeVar
from ..containers.sequence import ListVar, SequenceVar, TupleVar, sorted_by, sorted_items
from ..containers.sets import SetVar
from ..objects.classes import is_callable
from ..objects.instances import InstanceVar
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, bool_var
from ..registry import Args, Handler, Kwargs, register
from ..torch_objects import choices
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer


@register(iter)
def _iter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) == 1:
        iterator = args[0].iterate(tx)
        if slots.has_type(iterator, object) and not slots.has_method(iterator, "__next__"):
            tx.raise_(TypeError, f"iter() returned non-iterator of type {slots.type_name(iterator)!r}")
        return iterator
    function, sentinel = args
    if not is_callable(tx, function):
        tx.raise_(TypeError, "iter(v, w): v must be callable")

    def step(tx: Tracer) -> Var | None:
        item = tx.call(function, [], {})
        return None if slots.compare(tx, "==", item, sentinel).truth(tx) else item

    return LazyVar(_CALL_ITERATOR, step, args, rebuild=iter)


_CALL_ITERATOR: type = type(iter(int, 1))


@register(next)
def _next(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and len(args) == 1:
        return args[0]._invoke(tx, "__next__")
    item = args[0].next_(tx)
    if item is not None:
        return item
    if len(args) > 1:
        return args[1]
    return args[0].stop(tx) if isinstance(args[0], IteratorVar) else tx.raise_(StopIteration)


def _row(tx: Tracer, iterators: list[Var]) -> list[Var] | None:
    """The next item of each iterator; None once one is exhausted."""
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


@register(zip)
def _zip(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    parts = [arg.iterate(tx) for arg in args]

    def step(tx: Tracer) -> Var | None:
        row = (_strict_row if strict else _row)(tx, parts)
        return TupleVar(row) if row else None

    return LazyVar(zip, step, parts, kwargs)


@register(map)
def _map(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) < 2:
        tx.raise_(TypeError, "map() must have at least two arguments.")
    parts = [arg.iterate(tx) for arg in args[1:]]

    def step(tx: Tracer) -> Var | None:
        row = _row(tx, parts)
        return None if row is None else tx.call(args[0], row, {})

    return LazyVar(map, step, [args[0], *parts])


@register(filter)
def _filter(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    test = None if slots.constant_or(args[0], 0) is None else args[0]
    source = args[1].iterate(tx)

    def step(tx: Tracer) -> Var | None:
        while (item := source.next_(tx)) is not None:
            if (item if test is None else tx.call(test, [item], {})).truth(tx):
                return item
        return None

    return LazyVar(filter, step, [args[0], source])


@register(enumerate)
def _enumerate(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstVar(0))
    first = ConstVar(slots.index(tx, start))
    source = args[0].iterate(tx)
    parts: list[Var] = [source, first]

    def step(tx: Tracer) -> Var | None:
        item, number = source.next_(tx), parts[1]
        if item is None:
            return None
        parts[1] = ConstVar(number.constant() + 1)
        return TupleVar([number, item])

    return LazyVar(enumerate, step, parts)


@register(reversed)
def _reversed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and lookup(args[0].cls, "__reversed__") is not MISSING:
        return args[0]._invoke(tx, "__reversed__")
    if isinstance(args[0], InstanceVar):
        if MISSING in (lookup(args[0].cls, "__len__"), lookup(args[0].cls, "__getitem__")):
            tx.raise_(TypeError, f"{slots.type_name(args[0])!r} object is not reversible")
        return tx.inline(_backwards, args, {})
    if isinstance(args[0], TensorVar):
        return args[0].call_method(tx, "__reversed__", [], {})
    if isinstance(args[0], SetVar | IteratorVar):
        tx.raise_(TypeError, f"{slots.type_name(args[0])!r} object is not reversible")
    if isinstance(args[0], SequenceVar) and args[0].family in (list, tuple):
        return ReversedVar(args[0].items, args[0])
    if isinstance(args[0], RangeVar):
        return RangeVar(args[0].value[::-1]).iterate(tx)
    return ItemsIteratorVar(args[0].unpack(tx)[::-1])


def _backwards(sequence: Any) -> Any:
    for at in range(len(sequence) - 1, -1, -1):
        yield sequence[at]


@register(sorted)
def _sorted(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    items, key, reverse = args[0].unpack(tx), kwargs.get("key"), kwargs.get("reverse")
    if len(items) > 1 and isinstance(items[0], TensorVar):
        by_key = key is not None and slots.constant_or(key, key) is not None
        keys = [tx.call(key, [item], {}) for item in items] if by_key and key is not None else items
        turned = reverse is not None and reverse.truth(tx)
        found = choices.in_sorted_order(tx, items, keys, turned)
        return ListVar(sorted_by(tx, items, keys, turned) if found is None else found)
    return ListVar(sorted_items(tx, items, key, reverse))


@register(any)
def _any(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    iterator = args[0].iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        if item.truth(tx):
            return bool_var(True)
    return bool_var(False)


@register(all)
def _all(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    iterator = args[0].iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        if not item.truth(tx):
            return bool_var(False)
    return bool_var(True)


@register(sum)
def _sum(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstVar(0))
    if slots.has_type(total, str, bytes):
        kind = "strings" if slots.has_type(total, str) else "bytes"
        tx.raise_(TypeError, f"sum() can't sum {kind} [use {'' if kind == 'strings' else 'b'}''.join(seq) instead]")
    iterator = args[0].iterate(tx)
    if (number := _addend(total)) is not None:
        numbers = []
        while (item := iterator.next_(tx)) is not None and (each := _addend(item)) is not None:
            numbers.append(each)
        if numbers:
            total = ConstVar(sum(numbers, number))
        if item is None:
            return total
        total = slots.binary(tx, "+", total, item)
    while (item := iterator.next_(tx)) is not None:
        total = slots.binary(tx, "+", total, item)
    return total


def _addend(value: Var) -> int | float | complex | None:
    """A constant that `sum` adds to others without calls of their operators, from CPython 3.12 on with less rounding
    than the operators; None for other values, also for an int that does not fit into 64 bits."""
    number = slots.constant_or(value, None)
    if type(number) in (bool, int):
        return number if number.bit_length() < 64 else None
    return number if type(number) in (float, complex) else None


def _extreme(symbol: str, name: str) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        items = args if len(args) > 1 else args[0].unpack(tx)
        if not items:
            return kwargs.get("default") or tx.raise_(ValueError, f"{name}() {EMPTY_EXTREME}")
        key = kwargs.get("key")
        key = None if key is not None and slots.constant_or(key, 0) is None else key
        keys = items if key is None else [tx.call(key, [item], {}) for item in items]
        if len(items) > 1 and (found := choices.extreme(tx, name, items, keys)) is not None:
            return found
        best, largest = items[0], keys[0]
        for item, each in zip(items[1:], keys[1:], strict=True):
            number = choices.extreme_number(tx, name, largest, each) if key is None else None
            if number is not None:
                best = largest = number
            elif slots.compare(tx, symbol, each, largest).truth(tx):
                best, largest = item, each
        return best

    return run


register(min)(_extreme("<", "min"))
register(max)(_extreme(">", "max"))
