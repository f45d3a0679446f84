"""Sets of numbers that are computed from tensors, where it is known which of them are equal."""

from __future__ import annotations

import pytest
import torch

import pyframe
from pyframe.metrics import counters

MASK = torch.tensor([True, False, True, True])


def one_length(mask):
    lengths = [n + 16 for n in (mask.sum().item(),)]
    padded = len(set(lengths)) > 1
    return (mask if padded else ~mask), max(lengths), torch.ones(lengths[0])


def known_to_differ(mask):
    n = mask.sum().item()
    return ~mask, len({n, n + 1, n, 3 + n, -1})


def returned(mask):
    found = frozenset((mask.sum().item(),))
    return ~mask, found, [each + 1 for each in found], bool(found), isinstance(found, frozenset)


def may_be_equal(mask):
    return ~mask, len({mask.sum().item(), (~mask).sum().item()})


def item_asked_for(mask):
    n = mask.sum().item()
    return ~mask, n in {n, n + 1}, 2 in {n, n + 2}


def ordered(mask):
    n = mask.sum().item()
    return ~mask, sorted({n + 1, n}), list(frozenset([n, n + 1])) == [n, n + 1]


def agree(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for mask in (MASK, ~MASK, torch.tensor([True, True, False, False])):
        assert repr(compiled(mask)) == repr(fn(mask))


@pytest.mark.parametrize("fn", (one_length, known_to_differ, returned))
def test_one_graph(fn):
    agree(fn)
    assert counters["graphs"] == 1


@pytest.mark.parametrize("fn", (may_be_equal, item_asked_for, ordered))
def test_right(fn):
    agree(fn)
