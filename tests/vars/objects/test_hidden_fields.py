"""Items of `__dict__` whose names are data descriptors of the class, own attributes of partials, methods of C types as
arguments, and `Tensor.__iter__`: eager's values at each call, in one graph."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from util import same

import pyframe
from pyframe.metrics import counters

X = torch.arange(4.0)


class Doubles:
    def __set__(self, obj, value):
        obj.__dict__["field"] = obj.__dict__.get("field", 0) + value * 2


class Record:
    field = Doubles()

    def __init__(self):
        self.__dict__["field"] = 0
        self.held = 2

    @property
    def held(self):
        return self.__dict__["held"] + 1

    @held.setter
    def held(self, value):
        self.__dict__["held"] = value

    @held.deleter
    def held(self):
        del self.__dict__["held"]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.__dict__["scale"] = 3

    @property
    def scale(self):
        return self.__dict__["scale"]

    @scale.setter
    def scale(self, value):
        self.__dict__["scale"] = value

    def forward(self, x):
        self.scale = self.scale + 1
        return x * self.scale


def sets(record, x):
    record.field = 10
    record.held = x + 1
    return x + record.field + record.held


def deletes(record, x):
    del record.held
    return x + 1, "held" in record.__dict__


def creates(record, x):
    new = Record()
    new.field = 3
    new.held = x * 2
    return new.__dict__, new, x + new.held + new.field


def across_a_break(record, x):
    record.field = 1
    torch._dynamo.graph_break()
    record.held = x
    return record.held + record.field


@pytest.mark.parametrize("program", [sets, deletes, creates, across_a_break])
def test_items_that_descriptors_write(program: Callable[..., Any]) -> None:
    compiled = pyframe.compile(program, backend="eager")
    for _ in range(2):
        theirs, mine = Record(), Record()
        want, got = program(theirs, X), compiled(mine, X)
        assert same(want[-1], got[-1]) and same(theirs.__dict__, mine.__dict__)
        if program is creates:
            assert same(want[0], got[0]) and same(want[1].__dict__, got[1].__dict__) and got[0] is got[1].__dict__
    assert sum(counters["graph_breaks"].values()) == (program is across_a_break)


def test_module_whose_property_writes_its_own_item() -> None:
    theirs, mine = Layer(), Layer()
    compiled = pyframe.compile(mine, backend="eager")
    for _ in range(3):
        assert same(theirs(X), compiled(X)) and mine.scale == theirs.scale
    assert not counters["graph_breaks"]


def add(q, r):
    """Adds."""
    return q + r


def reads_a_partial(fn, x):
    found = hasattr(fn, "__name__"), getattr(fn, "__name__", "none"), getattr(fn, "extra", 0), fn.__doc__
    return found, fn(x)


def test_own_attributes_of_partials() -> None:
    plain, named = functools.partial(add, r=1), functools.partial(add, r=2)
    functools.update_wrapper(named, add)
    named.extra = 3
    compiled = pyframe.compile(reads_a_partial, backend="eager")
    for fn in (named, plain, named, plain):
        assert same(reads_a_partial(fn, X), compiled(fn, X))
    assert not counters["graph_breaks"]


def increment(x):
    return x + 1


def calls_each(x, length, item, shape, contains, call):
    return x + length() + item(1), shape(x), contains("b"), call(x)


def test_methods_of_builtin_types_as_arguments() -> None:
    compiled = pyframe.compile(calls_each, backend="eager")
    for numbers, names in (([1, 2, 3], {"b": 1}), ([4, 5], {"a": 1})):
        args = (X, numbers.__len__, numbers.__getitem__, torch.Tensor.shape.__get__, names.__contains__, increment.__call__)
        assert same(calls_each(*args), compiled(*args))
    assert not counters["graph_breaks"]


def writes_by_a_method(x, set_item):
    set_item(0, x)
    return x + 1


def test_method_of_a_list_that_writes() -> None:
    items = [1, 2]
    pyframe.compile(writes_by_a_method, backend="eager")(X, items.__setitem__)
    assert same(items, [X, 2])


def iterates(x):
    rows = x.__iter__()
    total = next(rows)
    for row in rows:
        row.add_(1.0)
        total = total + row
    return total, list(torch.Tensor.__iter__(x))


def test_iter_method_of_a_tensor() -> None:
    theirs, mine = torch.ones(3, 2), torch.ones(3, 2)
    assert same(iterates(theirs), pyframe.compile(iterates, backend="eager")(mine)) and same(theirs, mine)
    assert not counters["graph_breaks"]


def test_class_methods_of_bool_are_evaluated() -> None:
    def program(x):
        return bool.__new__(bool, 1), bool.from_bytes(b"\x00\x01", "big"), x + 1

    assert same(program(X), pyframe.compile(program, backend="eager")(X))
    assert not counters["graph_breaks"]


def test_storage_type() -> None:
    def program(x):
        return x.storage_type(), x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once in a process that TypedStorage is deprecated
        kind, _ = pyframe.compile(program, backend="eager")(X)
    assert kind is torch.FloatStorage
