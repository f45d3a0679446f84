"""Corners of the language without tensors: every frame of a function goes through the tracer, and does the same."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import types
import typing
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


@case(0)
def a_break_after_an_iterator_moved(_):
    return list(map(functools.lru_cache(abs), [1, -2, 1]))


@case(0)
def copies_of_iterators_of_c(_):
    letters = itertools.chain("ab", "cd")
    first = list(copy.deepcopy(letters))
    next(letters)
    return first, list(copy.copy(letters)), list(copy.copy(iter([1, 2])))


@case(0)
def comparisons_written_in_c(_):
    key = functools.cmp_to_key(lambda x, y: x - y)
    return key(3) == key(3), key(3) != key(3), key(3) < key(1)


class Meta(type):
    @functools.cached_property
    def kept(cls):
        return True


class OfMeta(metaclass=Meta):
    pass


@case(0)
def a_descriptor_of_the_metaclass_raises(_):
    return OfMeta.kept


@case(0)
def types_that_make_no_instances(_):
    try:
        type(iter({}.keys()))()
    except TypeError as error:
        return str(error)


class Frozen(frozenset):
    pass


@case(0)
def frozensets_of_objects(_):
    key, plain = Refusing(), frozenset([1, 2])
    return key in Frozen([key]), frozenset(plain) is plain, plain.copy() is plain, {1: 2}.keys() & plain, plain | {}.keys()


@case(0)
def operators_of_dict_by_name(_):
    table = {0: 0}
    return table.__or__(()), table.__ior__([(1, 1)]), table.__ior__("")


@case(0)
def a_dataclass_that_is_refused(_):
    try:

        @dataclasses.dataclass
        class Record:
            x: typing.ClassVar[int] = dataclasses.field(default_factory=int)

    except TypeError as error:
        return str(error)


@case(0)
def fields_of_no_dataclass(_):
    try:
        return dataclasses.fields(object)
    except TypeError as error:
        return str(error)


def compared(number):
    return number == True, number != False, number > True  # noqa: E712


@case((3, 4, 5))
def numbers_that_vary_compared_with_bools(numbers):
    return [compared(number) for number in numbers], [compared(number) for number in reversed(numbers)]


@case(bytearray(b"ab"), b"ab")
def bytes_compared_with_a_bytearray(mutable, constant):
    return mutable == constant, constant == mutable, constant != mutable, mutable <= constant, constant < mutable


class Fields:
    count = 0

    def bump(self, table):
        self.count += 1
        table["other"] = self.count
        return self.count, table["count"]


@case()
def super_after_its_argument_was_deleted():
    class Deletes:
        def method(self):
            del self
            return super().method()

    try:
        return Deletes().method()
    except (RuntimeError, NameError) as error:  # NameError from CPython 3.12 on
        return type(error), str(error)


@case()
def super_before_the_class_exists():
    try:

        class CalledInItsBody:
            def method(self):
                return super().__init__()

            method(1)

    except (RuntimeError, NameError) as error:  # NameError from CPython 3.12 on
        return type(error), str(error)


@case(Fields(), {"count": 5})
def a_dict_that_is_the_fields_of_an_object(plain, table):
    each = Fields()
    return plain.bump(table), plain.bump(dict(table)), each.bump(vars(each)), bumped(each, vars(each)), vars(each)


def bumped(each, table):
    return each.bump(table)


class ByInstance:
    def __init__(self):
        self.asked = []

    def __mro_entries__(self, bases):
        self.asked.append(len(bases))
        return ()


@case(ByInstance())
def bases_that_are_no_classes(base):
    class Derived(base):
        pass

    return Derived.__bases__, base.asked


class ClaimsToBeTypings:
    def __mro_entries__(self, bases):
        calls.append(len(bases))
        return ()

    __mro_entries__.__module__ = "typing"


calls: list[int] = []


@case(ClaimsToBeTypings())
def bases_from_a_function_that_names_another_module(base):
    class Derived(base):
        pass

    found = list(calls)
    calls.clear()
    return Derived.__bases__, found


class Derived(property):
    pass


class WithProperties:
    @classmethod
    @property
    def of_class(cls):
        return cls.__name__

    derived = Derived(lambda self: 5)


@case(WithProperties())
def properties_of_classes_and_derived_ones(each):
    return each.derived, each.of_class, WithProperties.of_class


class Masked:
    asked = 0

    @property
    def __class__(self):
        Masked.asked += 1
        return int

    def value(self):
        return 3


class Unasked:
    @property
    def __class__(self):
        raise RuntimeError

    def value(self):
        return 4


@case(Masked)
def a_class_that_is_hidden(make):
    each, before = make(), Masked.asked
    return each.value(), Masked.asked - before, Unasked().value(), asks_nothing(Unasked())


def asks_nothing(each):
    return each.value()


def cell(*value):
    def inner():
        return held

    if value:
        (held,) = value
    return inner.__closure__[0]


@case(0)
def cells_by_content(_):
    try:
        cell().cell_contents
    except ValueError as error:
        return cell() == cell(), cell(2) == cell(2.0), cell(2) < cell(3), str(error)


@case(0)
def dir_of_functions(_):
    def inner(): ...

    inner.known = 1
    return "known" in dir(inner), "known" in dir(types.MethodType(inner, 1)), "append" in dir([])


@case(memoryview(bytearray(b"ab")))
def a_memoryview_that_can_be_written(view):
    view[0] = 99
    return bytes(view)


def three(a, b=1, c=2):
    return a, b, c


@case(0)
def more_defaults_than_parameters(_):
    three.__defaults__ = (7, 8, 9, 10)
    try:
        return three(), three(1)
    finally:
        three.__defaults__ = (1, 2)


class Slotted:
    __slots__ = ("slot",)


class Borrowing:
    slot = Slotted.slot


@case(Borrowing())
def a_slot_of_another_class(each):
    def attempt(what):
        try:
            return what()
        except TypeError as error:
            return str(error)

    return attempt(lambda: each.slot), attempt(lambda: setattr(each, "slot", 1))


def fresh(args):
    """Copies of arguments; a view is copied with what it shows."""
    return tuple(memoryview(bytearray(arg)) if isinstance(arg, memoryview) else copy.deepcopy(arg) for arg in args)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("row", case, ids=Table.name)
def test_does_the_same(row: Any) -> None:
    fn, args = row
    expected = outcome(fn, fresh(args))
    with trace_everything(recompile_limit=2):
        got = outcome(fn, fresh(args))
    assert same(expected, got)
