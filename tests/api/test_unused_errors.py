"""Operators that raise because of elements raise where nothing uses their results, as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe

UNUSED = {
    "getitem": lambda a, i: a[i],
    "chain": lambda a, i: a[:, i].sum(0).sin(),
    "embedding": lambda a, i: F.embedding(i, a),
    "floordiv": lambda a, i: i // (i - i),
    "scatter": lambda a, i: a.scatter(0, i[:, None], 1.0),
    "cross_entropy": lambda a, i: F.cross_entropy(a, i),
}


@pytest.mark.parametrize(("name", "dynamic"), [*((name, False) for name in UNUSED), ("getitem", True)])
def test_unused_results_are_checked(name, dynamic):
    def program(a, i):
        UNUSED[name](a, i)
        return a + 1

    def outcome(fn, a, i):
        try:
            return fn(a, i).tolist()
        except (RuntimeError, IndexError) as error:
            return type(error)

    pyframe.reset()
    compiled = pyframe.compile(program, dynamic=dynamic)
    good = torch.tensor([0, 1, 2]) if name != "floordiv" else torch.tensor([500, 600, 700])
    bad = torch.tensor([0, 1, 9])
    for a in (torch.eye(3), -torch.eye(3), torch.eye(3).requires_grad_()):
        for i in (good, bad):
            assert outcome(compiled, a, i) == outcome(program, a, i)


def test_nothing_is_checked_of_no_elements():
    def program(a, i):
        a[i]
        return a + 1

    empty = torch.zeros(0, dtype=torch.long)
    assert pyframe.compile(program)(torch.zeros(3), empty).tolist() == [1, 1, 1]


def test_a_factor_that_nothing_uses_decides():
    def is_positive(a):
        try:
            torch.linalg.cholesky(a)
            torch.tensor([1.0])[a[0, 0].long()]
        except (torch.linalg.LinAlgError, IndexError):
            return a * 0
        return a + 1

    compiled = pyframe.compile(is_positive)
    for a in (torch.eye(3) * 0.5, -torch.eye(3), torch.eye(3) * 2):
        assert compiled(a).tolist() == is_positive(a).tolist()
