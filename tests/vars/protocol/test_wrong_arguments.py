"""Builtins called with arguments that they do not take raise CPython's errors, captured as in eager."""

from __future__ import annotations

import bisect
import builtins
import collections
import functools
import itertools
import math
import operator
import re
import select
import types
from typing import Any

import pytest
import torch

import pyframe

FUNCTIONS = [
    abs, all, any, ascii, bin, bool, callable, chr, complex, delattr, dict, divmod, enumerate, filter, float, format,
    frozenset, getattr, hasattr, hash, hex, id, int, isinstance, issubclass, iter, len, list, map, max, min, next,
    object, oct, ord, pow, range, repr, reversed, round, set, setattr, slice, sorted, str, sum, tuple, vars, zip,
    property, staticmethod, classmethod,
]  # fmt: skip
LIBRARY = [
    collections.deque, collections.OrderedDict, collections.defaultdict, types.SimpleNamespace, types.MappingProxyType,
    functools.reduce, functools.partial, functools.cmp_to_key, itertools.chain, itertools.count, itertools.cycle,
    itertools.repeat, itertools.product, itertools.permutations, itertools.combinations, itertools.islice,
    itertools.accumulate, itertools.pairwise, itertools.zip_longest, itertools.takewhile, itertools.dropwhile,
    itertools.filterfalse, itertools.starmap, itertools.compress, itertools.groupby, itertools.tee, operator.add,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, operator.index, operator.not_, operator.getitem,
    operator.setitem, operator.countOf, operator.length_hint, math.sqrt, math.gcd, math.prod, bisect.bisect_left,
]  # fmt: skip
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1, 2, 3, 4), {}), ((1, 2, 3, 4, 5), {}), ((), {"x": 1}),
    ((1,), {"nope": 1}), (([1, 2],), {"nope": 1}), (("a", "b"), {}), ((None, None), {}),
]  # fmt: skip
CONTAINERS = ([1, 2], (1, 2), {"a": 1}, {1, 2}, frozenset([1]), collections.deque([1, 2]))


def outcome(function: Any, args: Any, kwargs: Any) -> Any:
    try:
        result = function(*args, **kwargs)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        return type(error).__name__, str(error)
    return "a value" if callable(result) else type(result).__name__


def differences(calls: list[tuple[Any, Any, Any]]) -> list[str]:
    """The calls, made in one captured function, whose outcome is not eager's."""

    def run(x: torch.Tensor) -> Any:
        return x + 1, [outcome(*call) for call in calls]

    try:
        captured = pyframe.compile(run, backend="eager", fullgraph=True)(torch.ones(2))[1]
    except pyframe.errors.Unsupported as unsupported:
        if len(calls) == 1:
            return [] if re.match(r"\W(unknown-c-function|unsupported-object|builtin-side)", str(unsupported)) else [str(unsupported)]
        pyframe.reset()
        return [text for call in calls for text in differences([call])]
    pyframe.reset()
    found = []
    for (function, args, kwargs), got in zip(calls, captured):
        expected = outcome(function, args, kwargs)
        if expected != got and (_of_arguments(expected) or expected[0] != got[0]):
            found.append(f"{function}{args}{kwargs}: eager {expected}, captured {got}")
    return found


def _of_arguments(expected: Any) -> bool:
    """Whether it is the number or the names of the arguments that is wrong, of which the words are compared too."""
    return isinstance(expected, str) or re.search("takes|expected|missing|keyword|given", expected[1]) is not None


@pytest.mark.parametrize("function", FUNCTIONS + LIBRARY, ids=lambda fn: fn.__name__)
def test_functions(function: Any) -> None:
    assert not differences([(function, args, kwargs) for args, kwargs in CALLS])


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: type(container).__name__)
def test_methods(container: Any) -> None:
    names = [name for name in dir(type(container)) if not name.startswith("_")]
    for name in names:
        method = getattr(type(container), name)

        def fresh(*args: Any, _method: Any = method, **kwargs: Any) -> Any:
            return _method(type(container)(container), *args, **kwargs)

        assert not differences([(fresh, args, kwargs) for args, kwargs in CALLS]), name


def test_nothing_is_checked_twice() -> None:
    """Each builtin under test is one that exists."""
    assert all(getattr(builtins, function.__name__) is function for function in FUNCTIONS)


@pytest.mark.skipif(not hasattr(select, "poll"), reason="the system has no poll")
def test_a_method_whose_signature_cannot_be_read():
    """In CPython 3.13 `inspect.signature` of the method raises AttributeError: its text names what its module lacks."""

    def f(x):
        poller = select.poll()
        poller.register(0)
        return x + len(poller.poll(0) * 0)

    assert pyframe.compile(f, backend="eager")(torch.ones(2)).tolist() == [1.0, 1.0]
