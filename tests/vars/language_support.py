"""Tables of small functions, each run eagerly and captured: values, effects and exceptions must agree."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import pyframe
from pyframe.metrics import counters

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from util import outcome  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)
_PLAIN = (int, float, complex, str, bytes, type(None), type, range, slice)


class Table(list[Any]):
    """Functions under test; `table(arg, ...)` is a decorator that adds one with its arguments."""

    def __call__(self, *args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            self.append((fn, args or (X,)))
            return fn

        return add

    @staticmethod
    def name(case: Any) -> str:
        return str(case[0].__name__)


def same(a: Any, b: Any, seen: set[tuple[int, int]] | None = None) -> bool:
    """Equal in type, value and order, tensors by content, other objects by their attributes."""
    seen = set() if seen is None else seen
    if a is b or (id(a), id(b)) in seen:
        return True
    seen.add((id(a), id(b)))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, type) and isinstance(b, type):  # classes made by the function
        return a.__qualname__ == b.__qualname__
    if type(a) is not type(b) and type(a).__qualname__ != type(b).__qualname__:
        return False
    if isinstance(a, float) and a != a:
        return b != b
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        return bool(a == b) and same(vars(a) if hasattr(a, "__dict__") else None, vars(b) if hasattr(b, "__dict__") else None)
    if isinstance(a, list | tuple | deque):
        items = len(a) == len(b) and all(same(p, q, seen) for p, q in zip(a, b))
        return items and getattr(a, "maxlen", None) == getattr(b, "maxlen", None) and _attributes(a, b, seen)
    if isinstance(a, dict):
        kind = OrderedDict if isinstance(a, OrderedDict) else dict
        keys, others = list(kind.keys(a)), list(kind.keys(b))
        return len(keys) == len(others) and all(
            same(k, j, seen) and same(dict.__getitem__(a, k), dict.__getitem__(b, j), seen) for k, j in zip(keys, others)
        ) and _attributes(a, b, seen)
    if isinstance(a, set | frozenset):
        return a == b
    if isinstance(a, BaseException):
        return str(a) == str(b) and same(a.__cause__, b.__cause__, seen) and same(a.__context__, b.__context__, seen)
    if callable(a) and hasattr(a, "__code__"):
        return a.__code__ is b.__code__ and same([c.cell_contents for c in a.__closure__ or ()], [c.cell_contents for c in b.__closure__ or ()], seen)
    return _attributes(a, b, seen)


def _attributes(a: Any, b: Any, seen: Any) -> bool:
    slots = [n for c in type(a).__mro__ for n in ([c.__dict__["__slots__"]] if isinstance(c.__dict__.get("__slots__"), str) else c.__dict__.get("__slots__", ()))]
    if not hasattr(a, "__dict__") and not slots:
        return isinstance(a, list | tuple | dict | deque) or bool(a == b) or type(a) is object
    missing = object()
    fields = all(same(getattr(a, n, missing), getattr(b, n, missing), seen) for n in slots if not n.startswith("__"))
    return fields and same(getattr(a, "__dict__", None), getattr(b, "__dict__", None), seen)


def agree(fn: Callable[..., Any], args: Any, fullgraph: bool = True) -> None:
    """A miss and a hit do what eager does; the second call is a hit."""
    pyframe.reset()
    expected = outcome(fn, copy.deepcopy(args))
    compiled = pyframe.compile(fn, backend="eager", fullgraph=fullgraph)
    first = outcome(compiled, copy.deepcopy(args))
    if not counters["graphs"]:  # a function without tensor operations is left alone: capture it as part of another
        pyframe.reset()
        compiled = pyframe.compile(lambda *args: (fn(*args), X + 1)[0], backend="eager", fullgraph=fullgraph)
        first = outcome(compiled, copy.deepcopy(args))
    for turn, got in (("miss", first), ("hit", outcome(compiled, copy.deepcopy(args)))):
        assert same(expected, got), f"{fn.__name__}, {turn}:\n  eager    {expected}\n  captured {got}"
    assert counters["graphs"] or expected[0] == "raised", "nothing was captured"
    assert not counters["recompiles"], "the second call was captured again"


class Point:
    """A class of the program that `match` statements and failing constructors use."""

    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b
