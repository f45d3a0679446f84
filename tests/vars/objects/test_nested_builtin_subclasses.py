"""Instances of subclasses of built-in types that hold one another keep their classes."""

from __future__ import annotations

import torch

import pyframe


class Table(dict):
    pass


class Items(list):
    pass


def nested(x):
    table, items = Table(), Items()
    table["inner"] = Table(v=x + 1)
    table.setdefault("other", Table())
    items.append(Items([x]))
    items.insert(0, Items())
    return table, items, table.get("missing", Table())


def test_classes_of_what_is_held_are_kept():
    table, items, default = pyframe.compile(nested, backend="eager")(torch.ones(2))
    assert type(table) is type(default) is Table and type(items) is Items
    assert [type(each) for each in table.values()] == [Table, Table]
    assert [type(each) for each in items] == [Items, Items]
    assert torch.equal(table["inner"]["v"], torch.full((2,), 2.0)) and len(items[1]) == 1
