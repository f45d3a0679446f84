"""Global variables that a program assigns and reads in different ways: by name, through their dict, through the module."""

from __future__ import annotations

import sys

import pytest
import torch

import pyframe

COUNT = 0
HERE = sys.modules[__name__]


def by_name_read_as_attribute(x):
    global COUNT
    COUNT = COUNT + 1
    return x + HERE.COUNT


def by_name_read_in_dict(x):
    global COUNT
    COUNT = COUNT + 1
    return x + vars(HERE)["COUNT"]


def by_name_read_in_globals_of_function(x):
    global COUNT
    COUNT = COUNT + 1
    return x + by_name_read_in_dict.__globals__["COUNT"]


def in_dict_read_by_name(x):
    globals()["COUNT"] = COUNT + 1
    return x + COUNT


def in_dict_of_module_read_in_all_ways(x):
    vars(HERE)["COUNT"] = COUNT + 1
    return x + COUNT + HERE.COUNT * 10 + vars(HERE)["COUNT"] * 100


def by_name_after_the_dict_is_known(x):
    global COUNT
    names = globals()
    COUNT = COUNT + 7
    y = x + names["COUNT"]
    names["COUNT"] = 9
    y = y * COUNT
    COUNT += 1
    return y, names["COUNT"], COUNT


def read_by_a_called_function(x):
    vars(HERE)["COUNT"] = COUNT + 1
    return x + _count()


def _count():
    return COUNT


def deleted_in_dict(x):
    names = globals()
    names["abs"] = lambda y: y * 5
    y = abs(x)
    del names["abs"]
    return y + abs(x)


PROGRAMS = [
    by_name_read_as_attribute, by_name_read_in_dict, by_name_read_in_globals_of_function, in_dict_read_by_name,
    in_dict_of_module_read_in_all_ways, by_name_after_the_dict_is_known, read_by_a_called_function, deleted_in_dict,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_assigned_and_read_in_different_ways(program):
    global COUNT
    seen = []
    for run in (program, pyframe.compile(program, backend="eager")):
        COUNT = 0
        seen.append([[run(torch.full((2,), -1.0)) for _ in range(3)], COUNT])
    torch.testing.assert_close(seen[1], seen[0])
