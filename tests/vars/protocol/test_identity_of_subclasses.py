"""Objects of subclasses of int and str are distinguished by identity, whatever source they are read from."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch

import pyframe
from pyframe import testing

X = torch.ones(1)


class Named(int):
    pass


class Text(str):
    pass


A, B, S, T = Named(1), Named(1), Text("a"), Text("a")


def which(x: torch.Tensor, items: list[Any]) -> Any:
    first, second = items
    return x + 1, [first is A, first is B, second is S, second is T, A is items[0], A is B, first == A]


@pytest.mark.parametrize("items", [[A, S], [B, T], [A, T], [3, "a"], [1, "a"]], ids=str)
def test_is(items: list[Any]) -> None:
    assert pyframe.compile(which, backend="eager", fullgraph=True)(X, items)[1] == which(X, items)[1]


def test_new_entries_fit_the_call_they_were_made_for() -> None:
    """The compiler of regular expressions compares named constants by identity throughout."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with testing.trace_everything(recompile_limit=2):
            pattern = re._compiler.compile(r"(a|b)*c+[a-z]{3,5}?$")
    assert pattern.match("abccxyz")
