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


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("row", case, ids=Table.name)
def test_does_the_same(row: Any) -> None:
    fn, args = row
    expected = outcome(fn, args)
    with trace_everything(recompile_limit=2):
        got = outcome(fn, args)
    assert same(expected, got)
