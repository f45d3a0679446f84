"""Programs that test one rule of the language each, in the manner of the tests of a tracer."""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict, defaultdict, deque

import pytest
import torch
from language_support import Table, agree

case = Table()


class Color(enum.Flag):
    RED = enum.auto()
    GREEN = enum.auto()
    BLUE = enum.auto()


class Two:
    def __index__(self):
        return 2


@case()
def attributes_of_metaclasses_are_none_of_instances(x):
    objects = ({}, [], (), set(), iter([]), "a", 1, OrderedDict(), defaultdict(list), deque(), functools.partial(max))
    names = ("mro", "__name__", "__qualname__", "__bases__")
    return x + 1, [hasattr(each, name) for each in objects for name in names]


@case()
def a_partial_of_a_partial_that_has_attributes(x):
    inner = functools.partial(torch.add, x)
    inner.note = 3
    outer = functools.partial(inner, 1)
    return outer(), outer.__class__.__name__, outer.func is inner, outer.func.note, hasattr(outer.func, "__name__")


@case()
def objects_as_indices(x):
    two = Two()
    return x[two] if len(x) > 2 else x, [5, 6, 7][two], (5, 6, 7)[two], "abc"[two], b"abc"[two], range(5)[two]


@case()
def inverted_flags(x):
    return x + 1, ~Color.RED, ~(Color.RED | Color.BLUE), ~~Color.GREEN, bool(~Color.RED & Color.RED)


@pytest.mark.parametrize("each", case, ids=case.name)
def test_one_graph(each):
    agree(*each)
