"""Sets whose items are not constants: objects, modules, tensors, tuples, devices."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from util import same

import pyframe
from pyframe.metrics import counters


class Item:
    def __init__(self, number):
        self.number = number


@dataclasses.dataclass(frozen=True)
class Key:
    number: int


A, B, C = Item(1), Item(2), Item(3)
MODULE = nn.Linear(3, 3)
PARAMETERS = set(MODULE.parameters())
x = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("fn", "given"),
    [
        (lambda x, s: x + (A in s) + 2 * (C in s) + 4 * len(s) + bool(s), {A, B}),
        (lambda x, s: x + sum(item.number for item in s), frozenset([A, B])),
        (lambda x, s: x * max(s, key=lambda item: item.number).number, {A, B, C}),
        (lambda x, s: (x + len(s & {A, C}), len(s | {C}), len(s - {A}), s == {B, A}, s <= {A, B, C}), {A, B}),
        (lambda x, s: x + ((1, "a") in s) + ((3, "c") in s), {(1, "a"), (2, "b")}),
        (lambda x, s: x + (Key(1) in s) + (Key(3) in s), {Key(1), Key(2)}),
        (lambda x, s: x + (1 in s) + (A in s) + (None in s), {1, A, None, torch.float32}),
        (lambda x, s: x + (x.device in s), {torch.device("cpu")}),
        (lambda x, s: x + (MODULE in s) + len([m for m in s if isinstance(m, nn.Linear)]), {MODULE, nn.ReLU()}),
        (lambda x, s: x + sum(p in s for p in MODULE.parameters()), PARAMETERS),
        (lambda x, s: x + (frozenset([1]) in s) + len(s), {frozenset([1]), frozenset([2])}),
    ],
)  # fmt: skip
def test_reads(fn, given):
    graphs = counters["graphs"]
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert same(compiled(x, given), fn(x, given))
    assert counters["graphs"] == graphs + 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, s, item: (s.add(item), x + len(s))[1],
        lambda x, s, item: (s.discard(item), x + len(s))[1],
        lambda x, s, item: x * (s.pop() if len(s) == 1 else item).number,
        lambda x, s, item: (s.clear(), s.update([item, C]), x * len(s))[2],
    ],
)
def test_changes_are_replayed(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for items, item in (([A], A), ([A], B), ([B], C), ([A, B], C)):
        got, expected = set(items), set(items)
        assert same(compiled(x, got, item), fn(x, expected, item))
        assert got == expected


def test_a_set_that_changes_between_calls():
    items = {A}

    def fn(x):
        return x + (B in items) + len(items)

    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for change in (None, B, C):
        items |= {change} - {None}
        assert same(compiled(x), fn(x))
