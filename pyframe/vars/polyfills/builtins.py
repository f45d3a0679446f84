"""Python versions of C functions of the standard library."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], *initial: Any) -> Any:
    iterator = iter(iterable)
    if initial:
        value = initial[0]
    else:
        items = list(iterator)
        if not items:
            raise TypeError("reduce() of empty iterable with no initial value")
        value = items[0]
        iterator = iter(items[1:])
    for item in iterator:
        value = function(value, item)
    return value


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    pools = [tuple(pool) for pool in iterables] * repeat
    rows: list[Any] = [()]
    for pool in pools:
        rows = [(*row, item) for row in rows for item in pool]
    return iter(rows)


def islice(iterable: Iterable[Any], *limits: Any) -> Iterator[Any]:
    bounds = slice(*limits)
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    at = 0
    for item in iterable:
        if stop is not None and at >= stop:
            return
        if at >= start and (at - start) % step == 0:
            yield item
        at += 1


def accumulate(iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    items = list(iterable)
    if initial is not None:
        items.insert(0, initial)
    if not items:
        return
    total = items[0]
    yield total
    for item in items[1:]:
        total = total + item if func is None else func(total, item)
        yield total


def pairwise(iterable: Iterable[Any]) -> Iterator[Any]:
    items = list(iterable)
    return zip(items, items[1:], strict=False)


def repeat(item: Any, times: int) -> Iterator[Any]:
    return iter([item] * times)


def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    rows = [list(iterable) for iterable in iterables]
    longest = max([len(row) for row in rows], default=0)
    padded = [row + [fillvalue] * (longest - len(row)) for row in rows]
    return zip(*padded, strict=True)


TABLE: dict[Any, Any] = {
    functools.reduce: reduce,
    itertools.chain: chain,
    itertools.product: product,
    itertools.islice: islice,
    itertools.accumulate: accumulate,
    itertools.pairwise: pairwise,
    itertools.repeat: repeat,
    itertools.zip_longest: zip_longest,
}
