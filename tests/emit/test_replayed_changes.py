"""Changes of containers, attributes, globals and cells: made after the graph, in order, on the very objects."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from language_support import same

import pyframe

X = torch.arange(3.0)
TOTAL: Any = 0
NAMES: list[Any] = []


class Recorder:
    """Notes every assignment as it happens."""

    def __init__(self) -> None:
        object.__setattr__(self, "seen", [])

    def __setattr__(self, name: str, value: Any) -> None:
        self.seen.append(name)
        object.__setattr__(self, name, value)


def deque_appends(x: Any, q: Any) -> Any:
    q.append(x + 1)
    q.appendleft(0)
    q.rotate(1)
    return len(q)


def deque_bounded(x: Any, q: Any) -> Any:
    for i in range(5):
        q.append(x * i)
    q.popleft()
    q.extendleft([7])
    return q[0]


def deque_emptied(x: Any, q: Any) -> Any:
    total = x
    while q:
        total = total + q.pop()
    return total


def set_changes(x: Any, s: Any) -> Any:
    s.add(9)
    s.discard(1)
    s |= {20, 21}
    s -= {20}
    return x * len(s)


def set_cleared(x: Any, s: Any) -> Any:
    s.clear()
    s.update([5], (6,))
    return x + len(s)


def dict_order(x: Any, d: Any) -> Any:
    first = d.pop("a")
    d["a"] = first
    d["n"] = x + 1
    return list(d)


def default_dict(x: Any, d: Any) -> Any:
    d["new"].append(x)
    return len(d)


def ordered_dict(x: Any, d: Any) -> Any:
    d.move_to_end("a")
    d["z"] = x
    return x + 1


def list_of_lists(x: Any, rows: Any) -> Any:
    rows[0].append(rows)
    rows.append(rows[0])
    rows[0].append(x + 1)
    return len(rows)


def assignments_in_order(x: Any, r: Any) -> Any:
    r.b = x + 1
    r.a = 1
    r.b = x + 2
    return r.a


def swap(x: Any, pair: Any) -> Any:
    pair[0], pair[1] = pair[1], pair[0]
    pair[0].append(x * 2)
    return x + 1


CASES: list[tuple[Callable[..., Any], Any]] = [
    (deque_appends, collections.deque([1, 2])),
    (deque_bounded, collections.deque([1, 2], maxlen=3)),
    (deque_emptied, collections.deque([X, X + 1])),
    (set_changes, {1, 2}),
    (set_cleared, {1, 2}),
    (dict_order, {"a": 1, "b": 2}),
    (default_dict, collections.defaultdict(list, k=[1])),
    (ordered_dict, collections.OrderedDict(a=1, b=2)),
    (list_of_lists, [[1], [2]]),
    (assignments_in_order, Recorder()),
    (swap, [[1], [2]]),
]


@pytest.mark.parametrize(("fn", "target"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_containers_and_attributes(fn: Any, target: Any) -> None:
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        mine, theirs = copy.deepcopy(target), copy.deepcopy(target)
        assert same(fn(X, theirs), compiled(X, mine))
        assert same(theirs, mine)


@pytest.mark.parametrize(("fn", "target"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_before_a_break(fn: Any, target: Any) -> None:
    def breaks(x: Any, obj: Any) -> Any:
        result = fn(x, obj)
        pyframe.graph_break()
        return result, obj

    compiled = pyframe.compile(breaks, backend="eager")
    for _ in range(2):
        mine, theirs = copy.deepcopy(target), copy.deepcopy(target)
        expected, got = breaks(X, theirs), compiled(X, mine)
        assert same(expected, got)
        assert got[1] is mine


def counts_globally(x: Any) -> Any:
    global TOTAL
    TOTAL = TOTAL + 1
    NAMES.append(TOTAL)
    return x + 1


def test_globals() -> None:
    global TOTAL
    compiled = pyframe.compile(counts_globally, backend="eager")
    TOTAL = 0
    NAMES.clear()
    for turn in range(1, 4):
        assert torch.equal(compiled(X), X + 1)
        assert turn == TOTAL and NAMES == list(range(1, turn + 1))


def stores_tensor(x: Any) -> Any:
    global TOTAL
    TOTAL = x * 2
    return TOTAL + 1


def test_tensor_in_a_global() -> None:
    compiled = pyframe.compile(stores_tensor, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 2 + 1)
        assert torch.equal(TOTAL, X * 2)


def counter() -> tuple[Callable[..., Any], Callable[..., Any]]:
    count = 0
    last = None

    def step(x: Any) -> Any:
        nonlocal count, last
        count += 1
        last = x + 1
        return x * 2

    return step, lambda: (count, last)


def test_cells() -> None:
    step, read = counter()
    compiled = pyframe.compile(step, backend="eager")
    for turn in range(1, 4):
        assert torch.equal(compiled(X + turn), (X + turn) * 2)
        assert read()[0] == turn and torch.equal(read()[1], X + turn + 1)


def test_cell_of_a_caller() -> None:
    log: list[Any] = []
    seen = None

    def note(v: Any) -> None:
        nonlocal seen
        seen = v
        log.append(v)

    def fn(x: Any) -> Any:
        note(x + 1)
        note(x + 2)
        return x

    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        log.clear()
        compiled(X)
        assert torch.equal(seen, X + 2) and same(log, [X + 1, X + 2])


def test_one_object_twice() -> None:
    def fn(x: Any, a: Any, b: Any) -> Any:
        a.append(x)
        return len(b)

    compiled = pyframe.compile(fn, backend="eager")
    one: list[Any] = []
    assert compiled(X, [], []) == 0
    assert compiled(X, one, one) == 1
    assert compiled(X, [], []) == 0
