"""Corners of the language without tensors: every frame of a function goes through the tracer, and does the same."""

from __future__ import annotations

from typing import Any

import pytest
from language_support import Table
from util import outcome, same

from pyframe.testing import trace_everything

case = Table()


class Plain:
    pass


class OwnNew:
    def __new__(cls, *args):
        return super().__new__(cls, *args)

    def __init__(self, *args):
        super().__init__(*args)


class OwnInit:
    def __init__(self, *args):
        super().__init__(*args)


@case(1)
def arguments_of_init_of_a_plain_class(n):
    Plain().__init__(n)


@case(1)
def arguments_of_object_init(n):
    object.__init__(Plain(), n)


@case(1)
def arguments_passed_on_to_object_new(n):
    return OwnNew(n)


@case(1)
def arguments_passed_on_to_object_init(n):
    return OwnInit(n)


def refuses(self):
    raise AttributeError("refused")


class InitOfProperty:
    __init__ = property(refuses)


class EqualOfProperty:
    __eq__ = property(refuses)


@case(0)
def a_property_in_place_of_init(n):
    return InitOfProperty()


@case(0)
def a_property_in_place_of_eq(n):
    return EqualOfProperty() == EqualOfProperty()


class CountsHashes:
    def __init__(self):
        self.hashes = self.comparisons = 0

    def __hash__(self):
        self.hashes += 1
        return 7

    def __eq__(self, other):
        self.comparisons += 1
        return False


def stores_under(table, members):
    key, other = CountsHashes(), CountsHashes()
    table[key] = 1
    members.add(key)
    made = {key: 1, other: 2}
    return len(made), key.hashes, other.hashes, key.comparisons, other.comparisons, key in table


@case(0)
def keys_that_count_how_often_they_are_hashed(_):
    return stores_under({}, set()), stores_under({CountsHashes(): 1}, {CountsHashes()})


class Refusing:
    refuses = False

    def __hash__(self):
        if self.refuses:
            raise KeyError("refused")
        return 1


@case(0)
def a_key_that_refuses_later(_):
    key, table = Refusing(), {}
    table[key] = 3
    key.refuses = True
    return list(table.values())


@case(0)
def setdefault_hashes_once(_):
    key, table = CountsHashes(), {}
    table.setdefault(key, 1)
    return key.hashes


class Emptying:
    def __init__(self, table):
        self.table = table

    def __eq__(self, other):
        self.table.clear()
        return True


@case(0)
def comparing_dicts_empties_one(_):
    first, second = {}, {1: 1, 2: 2}
    first.update({1: Emptying(second), 2: 3})
    return first == second, second


@case(0)
def values_written_while_iterating(_):
    table, seen = {1: "a", 2: "b"}, []
    for key, value in table.items():
        table[2] = "c"
        seen.append((key, value))
    return seen, table


@case(0)
def a_key_that_comes_back_while_iterating(_):
    table = {0: 0}
    for key in table:
        del table[0]
        table[0] = 0
    return key


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("row", case, ids=Table.name)
def test_does_the_same(row: Any) -> None:
    fn, args = row
    expected = outcome(fn, args)
    with trace_everything(recompile_limit=2):
        got = outcome(fn, args)
    assert same(expected, got)
