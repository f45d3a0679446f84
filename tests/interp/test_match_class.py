"""Class patterns: `isinstance`, `__match_args__` and attributes as CPython asks for them, also after a change."""

from __future__ import annotations

import pytest
import torch
from util import result_or_error

import pyframe

x = torch.arange(3.0)


class Node:
    __match_args__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Count(int):
    pass


class Claims(type):
    def __instancecheck__(cls, obj):
        return True


class Anything(metaclass=Claims):
    pass


def positional(a, node):
    match node:
        case Node(1, right):
            return a + right
        case Node(left=left):
            return a - left
        case int(number):
            return a * number
        case str() | float(imag=0.0, real=1.5):
            return a / 2
    return a


def absent(a, node):
    match node:
        case Node(1, there=_):
            return a + 1
        case object(denominator=n):
            return a * (n + 1)
    return a


def twice(a, node):
    match node:
        case Node(1, left=_):
            return a + 1
    return a


def claimed(a, node):
    match node:
        case Anything():
            return a + 1
    return a


SUBJECTS = (Node(1, 2), Node(3, 4), Count(5), 6, "text", 1.5, None)
CHANGES = {
    "none": lambda patch: None,
    "fewer": lambda patch: patch.setattr(Node, "__match_args__", ()),
    "other": lambda patch: patch.setattr(Node, "__match_args__", ("right", "left")),
    "gone": lambda patch: patch.delattr(Node, "__match_args__"),
    "list": lambda patch: patch.setattr(Node, "__match_args__", ["left", "right"]),
    "numbers": lambda patch: patch.setattr(Node, "__match_args__", (1, 2)),
    "computed": lambda patch: patch.setattr(Node, "__match_args__", property(lambda self: ())),
}


@pytest.mark.parametrize("fn", [positional, absent, twice, claimed], ids=lambda fn: fn.__name__)
def test_class_patterns(fn):
    compiled = pyframe.compile(fn, backend="eager", options={"recompile_limit": 64})
    for change in CHANGES.values():
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            for subject in SUBJECTS:
                for _ in range(2):
                    assert repr(result_or_error(compiled, x, subject)) == repr(result_or_error(fn, x, subject)), subject
