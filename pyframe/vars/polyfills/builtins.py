"""Polyfills of the standard library's C functions (functools, itertools, operator, bisect, heapq ...).

They are as lazy as the originals, since a traced program can see how far an iterator has been advanced.
"""
# ruff: noqa: B007  `for item in iterator: break` takes one item and knows whether there was one

from __future__ import annotations

import _collections
import bisect
import collections
import functools
import heapq
import importlib.util
import itertools
import math
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..registry import register

_MISSING = object()


# ---- functools ----
@register(functools.reduce, polyfill=True)
def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _MISSING) -> Any:
    iterator = iter(iterable)
    value = initial
    if value is _MISSING:
        for value in iterator:
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    for item in iterator:
        value = function(value, item)
    return value


class _Key:
    """The sort key that `functools.cmp_to_key` creates for a value."""

    def __init__(self, compare: Callable[[Any, Any], int], obj: Any) -> None:
        self.compare, self.obj = compare, obj

    def __lt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) >= 0

    __hash__ = None  # type: ignore[assignment]


@register(functools.cmp_to_key, polyfill=True)
def cmp_to_key(mycmp: Callable[[Any, Any], int]) -> Callable[[Any], Any]:
    return lambda obj: _Key(mycmp, obj)


def lru_cache_wrapper(user_function: Any, maxsize: int | None, typed: bool, cache_info_type: Any) -> Any:
    """The wrapper that `functools.lru_cache` creates for a function."""
    kept: Any = collections.OrderedDict()
    counts = [0, 0]
    mark = object()

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if maxsize == 0:
            counts[1] += 1
            return user_function(*args, **kwargs)
        if not kwargs and not typed and len(args) == 1 and type(args[0]) in (int, str):
            key = args[0]
        else:
            key = args
            if kwargs:
                key += (mark, *(part for item in kwargs.items() for part in item))
            if typed:
                key += (*map(type, args), *map(type, kwargs.values()))
        try:
            known = key in kept
        except TypeError:
            known = None
        if known is None:  # unhashable: raise the error of hash(), since that of a dict mentions a key from 3.14 on
            for part in key:
                if part is not mark:
                    hash(part)
        if known:
            counts[0] += 1
            kept.move_to_end(key)
            return kept[key]
        counts[1] += 1
        result = user_function(*args, **kwargs)
        kept[key] = result
        if maxsize is not None and len(kept) > maxsize:
            kept.popitem(last=False)
        return result

    def cache_info() -> Any:
        return cache_info_type(*counts, maxsize, len(kept))

    def cache_clear() -> None:
        kept.clear()
        counts[:] = [0, 0]

    wrapper.cache_info, wrapper.cache_clear = cache_info, cache_clear  # type: ignore[attr-defined]
    return wrapper


# ---- itertools ----
@register(itertools.chain, polyfill=True)
def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


@register(itertools.chain.from_iterable, polyfill=True)
def from_iterable(iterables: Iterable[Iterable[Any]]) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


@register(itertools.count, polyfill=True)
def count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    if not (hasattr(start, "__add__") and hasattr(step, "__add__")) or isinstance(start, str):
        raise TypeError("a number is required")
    return _count(start, step)


def _count(start: Any, step: Any) -> Iterator[Any]:
    while True:
        yield start
        start = start + step


@register(itertools.cycle, polyfill=True)
def cycle(iterable: Iterable[Any]) -> Iterator[Any]:
    return _cycle(iter(iterable))


def _cycle(iterator: Iterator[Any]) -> Iterator[Any]:
    saved = []
    for item in iterator:
        yield item
        saved.append(item)
    while saved:
        yield from saved


@register(itertools.repeat, polyfill=True)
def repeat(object: Any, times: Any = _MISSING) -> Iterator[Any]:  # noqa: A002  the C function's name for it
    return _repeat(object, None if times is _MISSING else operator.index(times))


def _repeat(object: Any, times: int | None) -> Iterator[Any]:  # noqa: A002
    if times is None:
        while True:
            yield object
    for _ in range(times):
        yield object


@register(itertools.product, polyfill=True)
def product(*iterables: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    return _product([tuple(pool) for pool in iterables] * operator.index(repeat))


def _product(pools: list[tuple[Any, ...]]) -> Iterator[Any]:
    rows: list[Any] = [()]
    for pool in pools:
        rows = [(*row, item) for row in rows for item in pool]
    yield from rows


@register(itertools.permutations, polyfill=True)
def permutations(iterable: Iterable[Any], r: int | None = None) -> Iterator[Any]:
    pool = tuple(iterable)
    if r is not None and not isinstance(r, int):
        raise TypeError("Expected int as r")
    if r is not None and r < 0:
        raise ValueError("r must be non-negative")
    return _permutations(pool, len(pool) if r is None else r)


def _permutations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    for places in product(range(len(pool)), repeat=r):
        if len(set(places)) == len(places):
            yield tuple(pool[at] for at in places)


@register(itertools.combinations, polyfill=True)
def combinations(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    pool = tuple(iterable)
    r = operator.index(r)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations(pool, r)


def _combinations(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    for places in permutations(range(len(pool)), r):
        if sorted(places) == list(places):
            yield tuple(pool[at] for at in places)


@register(itertools.combinations_with_replacement, polyfill=True)
def combinations_with_replacement(iterable: Iterable[Any], r: int) -> Iterator[Any]:
    pool = tuple(iterable)
    r = operator.index(r)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations_with_replacement(pool, r)


def _combinations_with_replacement(pool: tuple[Any, ...], r: int) -> Iterator[Any]:
    for places in product(range(len(pool)), repeat=r):
        if sorted(places) == list(places):
            yield tuple(pool[at] for at in places)


@register(itertools.islice, polyfill=True)
def islice(iterable: Iterable[Any], *limits: Any) -> Iterator[Any]:
    if not all(limit is None or hasattr(limit, "__index__") for limit in limits):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    bounds = slice(*(None if limit is None else operator.index(limit) for limit in limits))
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    if start < 0 or step < 1 or stop is not None and stop < 0:
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    return _islice(iter(iterable), start, stop, step)


def _islice(iterator: Iterator[Any], start: int, stop: int | None, step: int) -> Iterator[Any]:
    at = 0
    while stop is None or at < stop:
        skip = start - at if at < start else 0
        for _ in range(skip):
            for _item in iterator:
                break
            else:
                return
            at += 1
        if stop is not None and at >= stop:
            return
        for item in iterator:
            break
        else:
            return
        yield item
        at += 1
        start = at + step - 1
        if stop is not None and start > stop:
            start = stop


@register(itertools.accumulate, polyfill=True)
def accumulate(iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    return _accumulate(iter(iterable), func, initial)


def _accumulate(iterator: Iterator[Any], func: Any, initial: Any) -> Iterator[Any]:
    total = initial
    if initial is None:
        for total in iterator:
            break
        else:
            return
    yield total
    for item in iterator:
        total = total + item if func is None else func(total, item)
        yield total


@register(itertools.pairwise, polyfill=True)
def pairwise(iterable: Iterable[Any]) -> Iterator[Any]:
    return _pairwise(iter(iterable))


def _pairwise(iterator: Iterator[Any]) -> Iterator[Any]:
    for before in iterator:
        for item in iterator:
            yield before, item
            before = item


@register(itertools.zip_longest, polyfill=True)
def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    return _zip_longest([iter(iterable) for iterable in iterables], fillvalue)


def _zip_longest(iterators: list[Any], fillvalue: Any) -> Iterator[Any]:
    left = len(iterators)
    while left:
        row = []
        for place, iterator in enumerate(iterators):
            item = _MISSING
            if iterator is not None:
                item = next(iterator, _MISSING)
                if item is _MISSING:
                    left -= 1
                    iterators[place] = None
                    if not left:
                        return
            row.append(fillvalue if item is _MISSING else item)
        yield tuple(row)


@register(itertools.takewhile, polyfill=True)
def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate: Callable[[Any], Any], iterator: Iterator[Any]) -> Iterator[Any]:
    for item in iterator:
        if not predicate(item):
            return
        yield item


@register(itertools.dropwhile, polyfill=True)
def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate: Callable[[Any], Any], iterator: Iterator[Any]) -> Iterator[Any]:
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


@register(itertools.filterfalse, polyfill=True)
def filterfalse(function: Callable[[Any], Any] | None, iterable: Iterable[Any]) -> Iterator[Any]:
    return _filterfalse(function, iter(iterable))


def _filterfalse(function: Callable[[Any], Any] | None, iterator: Iterator[Any]) -> Iterator[Any]:
    for item in iterator:
        if not (item if function is None else function(item)):
            yield item


@register(itertools.starmap, polyfill=True)
def starmap(function: Callable[..., Any], iterable: Iterable[Any]) -> Iterator[Any]:
    return _starmap(function, iter(iterable))


def _starmap(function: Callable[..., Any], iterator: Iterator[Any]) -> Iterator[Any]:
    for args in iterator:
        yield function(*args)


@register(itertools.compress, polyfill=True)
def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    return _compress(iter(data), iter(selectors))


def _compress(data: Iterator[Any], selectors: Iterator[Any]) -> Iterator[Any]:
    for item, chosen in zip(data, selectors):
        if chosen:
            yield item


@register(itertools.groupby, polyfill=True)
def groupby(iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> Iterator[Any]:
    return _groupby(iter(iterable), key)


def _groupby(iterator: Iterator[Any], key: Callable[[Any], Any] | None) -> Iterator[Any]:
    state: list[Any] = []  # the next item and its key, while there is one

    def advance() -> None:
        state.clear()
        for item in iterator:
            state.extend((item, item if key is None else key(item)))
            return

    def group(wanted: Any, turn: int) -> Iterator[Any]:
        while state and turn == turns and state[1] == wanted:
            item = state[0]
            advance()
            yield item

    turns = 0
    advance()
    while state:
        wanted = state[1]
        turns += 1
        yield wanted, group(wanted, turns)
        while state and state[1] == wanted:
            advance()


@register(itertools.tee, polyfill=True)
def tee(iterable: Iterable[Any], n: int = 2) -> tuple[Iterator[Any], ...]:
    iterator = iter(iterable)
    waiting: list[Any] = [collections.deque() for _ in range(n)]

    def branch(mine: Any) -> Iterator[Any]:
        while True:
            if not mine:
                for item in iterator:
                    break
                else:
                    return
                for other in waiting:
                    other.append(item)
            yield mine.popleft()

    return tuple(branch(mine) for mine in waiting)


# ---- operator ----
@register(operator.itemgetter, polyfill=True)
def itemgetter(*items: Any) -> Callable[[Any], Any]:
    if len(items) == 1:
        return lambda obj: obj[items[0]]
    return lambda obj: tuple(obj[item] for item in items)


def _resolve(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = getattr(obj, name)
    return obj


@register(operator.attrgetter, polyfill=True)
def attrgetter(*attrs: str) -> Callable[[Any], Any]:
    if not all(isinstance(attr, str) for attr in attrs):
        raise TypeError("attribute name must be a string")
    if len(attrs) == 1:
        return lambda obj: _resolve(obj, attrs[0])
    return lambda obj: tuple(_resolve(obj, attr) for attr in attrs)


@register(operator.methodcaller, polyfill=True)
def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return lambda obj: getattr(obj, name)(*args, **kwargs)


@register(operator.countOf, polyfill=True)
def count_of(a: Any, b: Any) -> int:
    return sum(1 for item in a if item is b or item == b)


@register(operator.indexOf, polyfill=True)
def index_of(a: Any, b: Any) -> int:
    for place, item in enumerate(a):
        if item is b or item == b:
            return place
    raise ValueError("sequence.index(x): x not in sequence")


@register(operator.length_hint, polyfill=True)
def length_hint(obj: Any, default: int = 0) -> int:
    operator.index(default)
    if hasattr(obj, "__len__"):
        return len(obj)
    return obj.__length_hint__() if hasattr(obj, "__length_hint__") else default


@register(operator.call, polyfill=True)
def call(obj: Any, /, *args: Any, **kwargs: Any) -> Any:
    return obj(*args, **kwargs)


# ---- os, typing ----
@register(os.fspath, polyfill=True)
def fspath(path: Any) -> Any:
    if isinstance(path, (str, bytes)):
        return path
    if not hasattr(type(path), "__fspath__"):
        raise TypeError(f"expected str, bytes or os.PathLike object, not {type(path).__name__}")
    return path.__fspath__()


# ---- collections, heapq, bisect, math ----
@register(_collections._count_elements, polyfill=True)
def count_elements(mapping: Any, iterable: Iterable[Any]) -> None:
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


@register(bisect.insort_right, polyfill=True)
def insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


@register(bisect.insort_left, polyfill=True)
def insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


@register(bisect.bisect_right, polyfill=True)
def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        mid = (lo + hi) // 2
        if x < (a[mid] if key is None else key(a[mid])):
            hi = mid
        else:
            lo = mid + 1
    return lo


@register(bisect.bisect_left, polyfill=True)
def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        mid = (lo + hi) // 2
        if (a[mid] if key is None else key(a[mid])) < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@register(math.prod, polyfill=True)
def prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    for item in iterable:
        start = start * item
    return start


def pattern_sub(pattern: Any, repl: Any, string: Any, count: int = 0) -> Any:
    """`Pattern.sub` with a function as the replacement."""
    parts, at, done = [], 0, 0
    for match in pattern.finditer(string):
        if count and done >= count:
            break
        parts += [string[at : match.start()], repl(match)]
        at = match.end()
        done += 1
    return string[:0].join([*parts, string[at:]])


def re_sub(pattern: Any, repl: Any, string: Any, count: int = 0, flags: int = 0) -> Any:
    return pattern_sub(re.compile(pattern, flags), repl, string, count)


def _register_heapq() -> None:
    """Register the Python versions of heapq's C functions, which heapq.py defines before it imports those."""
    spec = importlib.util.find_spec("heapq")
    assert spec is not None and spec.loader is not None
    kept = sys.modules.get("_heapq")
    sys.modules["_heapq"] = None  # type: ignore[assignment]
    try:
        pure = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(pure)
    finally:
        if kept is None:
            del sys.modules["_heapq"]
        else:
            sys.modules["_heapq"] = kept
    for name in ("heapify", "heappush", "heappop", "heapreplace", "heappushpop"):
        register(getattr(heapq, name), polyfill=True)(_of_lists(name, getattr(pure, name)))


def _of_lists(name: str, pure: Callable[..., Any]) -> Callable[..., Any]:
    """A function of heapq with the errors of the C function, which takes lists only."""
    needs_item = name in ("heappop", "heapreplace")
    place = "argument" if name in ("heapify", "heappop") else "argument 1"

    def function(heap: Any, *item: Any) -> Any:
        if not isinstance(heap, list):
            raise TypeError(f"{name}() {place} must be list, not {type(heap).__name__}")
        if needs_item and not heap:
            raise IndexError("index out of range")
        return pure(heap, *item)

    return function


_register_heapq()
