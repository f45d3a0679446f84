"""Attributes of existing classes that traced code sets and deletes: eager's values, at each of several calls."""
# ruff: noqa: B010, E501

from __future__ import annotations

from typing import Any

import pytest
import torch
from language_support import Table, X
from util import outcome, same

import pyframe
from pyframe.metrics import counters

whole = Table()
broken = Table()


class Base:
    counter = 0
    shared = "base"
    scale = 2.0

    def step(self):
        Base.counter += 1
        return Base.counter

    @classmethod
    def bump(cls):
        cls.counter += 2
        return cls.counter

    def triple(self, x):
        return x * 3


class Sub(Base):
    made = 0

    def __init__(self):
        type(self).made += 1

    @property
    def fixed(self):
        return 1

    def up(self):
        return super().shared


class Layer(torch.nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        type(self).last = self.calls
        return x * self.last


CLASSES = (Base, Sub, Layer)
BEFORE = {cls: dict(vars(cls)) for cls in CLASSES}
FIELDS = ("counter", "shared", "scale", "made", "calls", "last", "new", "triple", "up", "cache")


def _reset() -> None:
    for cls in CLASSES:
        for name in FIELDS:
            if name in BEFORE[cls]:
                setattr(cls, name, BEFORE[cls][name])
            elif name in vars(cls):
                delattr(cls, name)


@whole()
def counted(x):
    Base.counter += 1
    return x + Base.counter, Sub.counter, Sub().counter


@whole()
def counted_in_methods(x):
    s = Sub()
    s.step()
    return x + s.step(), Sub.made, s.bump(), Sub.counter, Base.counter, s.counter


@whole()
def new_and_deleted(x):
    Base.new = x
    y = Sub.new + 1
    del Base.new
    return y, hasattr(Sub, "new"), hasattr(Base(), "new"), getattr(Base, "new", 3)


@whole()
def kept_tensor(x):
    Base.cache = x * 2
    Base.cache += 1
    return x + Base().cache


@whole()
def by_name(x):
    setattr(Sub, "shared", "sub")
    return x + 1, Sub.shared, Base.shared, Sub().shared, super(Sub, Sub()).shared


@whole()
def a_method(x):
    Sub.triple = lambda self, x: x * 4
    return Sub().triple(x), Base().triple(x), Sub.triple(None, x)


@whole()
def instance_before_class(x):
    s = Sub()
    s.scale = 5.0
    Sub.scale = 7.0
    return x * s.scale, Sub().scale


@whole()
def in_a_module(x):
    return LAYER(x)


@whole()
def no_such_attribute(x):
    found = []
    for name in ("nothing", "shared"):
        try:
            delattr(Sub, name)
        except AttributeError:
            found.append(name)
    return x + 1, found


@whole()
def through_a_local_class(x):
    class Local(Base):
        pass

    Base.shared = "changed"
    Local.counter += 3
    return x + Local.counter, Local().shared, Base.counter


@broken()
def across_a_break(x):
    Base.counter += 1
    print("between", Base.counter)
    Base.counter += 1
    return x + Base.counter


@broken()
def behind_a_deleted_one(x):
    Sub.shared = 1
    del Sub.shared
    return x + 1, Sub.shared


@broken()
def a_property(x):
    s = Sub()
    Sub.fixed = 5
    del Sub.fixed
    return x + 1, hasattr(s, "fixed")


@broken()
def a_method_changed_that_super_finds(x):
    Base.shared = "other"
    return x + 1, Sub().up(), sorted(n for n in vars(Base) if n == "shared")


LAYER = Layer()


def _calls(fn: Any) -> list[Any]:
    _reset()
    found = []
    for turn in range(4):
        found.append(outcome(fn, (X + turn,)))
        found.append([{n: v for n, v in vars(cls).items() if n in FIELDS and not callable(v)} for cls in CLASSES])
    _reset()
    return found


def _check(fn: Any) -> None:
    pyframe.reset()
    kept = Sub.__dict__["fixed"]
    expected = _calls(fn)
    Sub.fixed = kept
    got = _calls(pyframe.compile(fn, backend="eager"))
    Sub.fixed = kept
    assert all(map(same, expected, got)), f"{fn.__name__}:\n  eager    {expected}\n  captured {got}"


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    _check(row[0])
    assert counters["graphs"] and not counters["graph_breaks"]
    assert counters["recompiles"] <= 2  # 0, 1, and any other number


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    _check(row[0])
    assert counters["graphs"] and sum(counters["graph_breaks"].values())
