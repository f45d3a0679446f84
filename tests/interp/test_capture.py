"""Captured functions against eager ones: values, effects, breaks, exceptions."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from typing import Any

import pytest
import torch
from util import check

X = torch.arange(6.0).reshape(2, 3)
SCALE = 3
Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any = 2

    @property
    def total(self) -> Any:
        return self.a + self.b

    def scaled(self, by: Any) -> Pair:
        return Pair(self.a * by, self.b * by)


class Child(Pair):
    def scaled(self, by: Any) -> Pair:
        return super().scaled(by + 1)


def helper(x: Any, *rest: Any, scale: float = 2, **more: Any) -> Any:
    for item in rest:
        x = x + item
    return x * scale + sum(more.values())


def arithmetic(x: Any) -> Any:
    return torch.sin(x) + x * 2 - 1 / (x + 1)


def calls(x: Any) -> Any:
    return helper(x, 1, 2, scale=SCALE, k=4), helper(*(x, 1), **{"scale": 5})


def closures(x: Any) -> Any:
    count = 0

    def bump(by: Any = 2) -> Any:
        nonlocal count
        count += by
        return x * count

    return bump() + bump(3), count


def comprehensions(x: Any) -> Any:
    rows = [row * i for i, row in enumerate(x)]
    table = {i: r.sum() for i, r in enumerate(rows) if i % 2}
    return rows, table, sum(r.sum() for r in rows), {i for i in range(3)}


def strings(x: Any) -> Any:
    name = f"{x.shape[0]:03d}-{'a'.upper()}-{SCALE!r}"
    return x + len(name), name, ",".join(str(i) for i in range(3))


def unpacking(x: Any) -> Any:
    first, *rest = [x, x + 1, x + 2]
    (a, b), c = (rest[0], rest[1]), first
    return a * b - c


def containers(x: Any) -> Any:
    d = {"a": x}
    d["b"] = d["a"] + 1
    d.update(c=d.pop("b"))
    s = [3, 1, 2]
    s.sort(key=lambda v: -v)
    q = collections.deque([1, 2], maxlen=2)
    q.append(s[0])
    return d, s[::-1], tuple(q), Point(x, y=1)._replace(y=2), collections.OrderedDict(k=x)


def dataclass_use(x: Any) -> Any:
    pair = Child(x).scaled(3)
    pair.b = pair.total
    return pair.a, pair.b, isinstance(pair, Pair)


def returns_instance(x: Any) -> Any:
    return Pair(x + 1, [x, x])


def iterators(x: Any) -> Any:
    total = x
    for i, (a, b) in enumerate(zip([1, 2], (3, 4), strict=True)):
        total = total + a * b * i
    for v in itertools.chain([1], map(lambda v: v + 1, filter(None, [0, 5]))):
        total = total * v
    return functools.reduce(lambda a, b: a + b, [total, 1, 2])


def generator(x: Any) -> Any:
    def items() -> Any:
        yield x
        got = yield from inner()
        yield got

    def inner() -> Any:
        yield x + 1
        return x + 2

    return list(items())


def handled(x: Any) -> Any:
    try:
        raise ValueError("no")
    except (KeyError, ValueError) as error:
        text = str(error)
    finally:
        x = x + 1
    return x, text


def handled_in_call(x: Any) -> Any:
    try:
        return x[{}["missing"]]
    except KeyError:
        return x * 3


def matching(x: Any) -> Any:
    match {"k": [1, 2, x]}:
        case {"k": [1, _, y]}:
            return y + 1
    return None


def partials(x: Any) -> Any:
    return functools.partial(helper, scale=7)(x, 1)


def no_grad(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y + 1


WHOLE = [
    arithmetic, calls, closures, comprehensions, strings, unpacking, containers, dataclass_use,
    returns_instance, iterators, generator, handled, handled_in_call, matching, partials, no_grad,
]  # fmt: skip


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_whole_graph(fn: Any) -> None:
    check(fn, X, breaks=0, graphs=1)


def print_between(x: Any) -> Any:
    y = x + 1
    print("between")
    return y * 2


def data_dependent(x: Any) -> Any:
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


def break_in_call(x: Any) -> Any:
    kept = [x + 1]
    y = print_between(x)
    kept.append(y)
    return kept


def break_in_try(x: Any) -> Any:
    try:
        y = x + 1
        print("inside")
        return y * 2
    finally:
        print("last")


def break_with_cells(x: Any) -> Any:
    n = 1

    def add(v: Any) -> Any:
        return v + n

    print(n)
    n = 5
    return add(x) * 2


def break_in_loop(x: Any) -> Any:
    for i in range(3):
        x = x + i
        print(i)
    return x


def escapes(x: Any) -> Any:
    y = x + 1
    raise RuntimeError(f"{y.shape}")


@pytest.mark.parametrize(
    "fn",
    [print_between, data_dependent, break_in_call, break_in_try, break_with_cells, break_in_loop, escapes],
    ids=lambda fn: fn.__name__,
)
@pytest.mark.parametrize("sign", [1, -1])
def test_with_breaks(fn: Any, sign: int) -> None:
    check(fn, X * sign)


def test_break_makes_two_graphs() -> None:
    check(print_between, X, breaks=1, graphs=2)


def list_effect(x: Any, out: list[Any]) -> Any:
    out.append(x + 1)
    out[0] = len(out)
    return x * 2


def dict_effect(x: Any, out: dict[str, Any]) -> Any:
    out["y"] = x + 1
    del out["k"]
    return x * out.setdefault("z", 3)


def attr_effect(x: Any, pair: Pair) -> Any:
    pair.a = pair.b
    pair.b = x + 1
    return pair.total


def aliased(x: Any, out: list[Any]) -> Any:
    other = [out, out]
    other[0].append(x)
    return len(other[1])


@pytest.mark.parametrize(
    ("fn", "target"),
    [(list_effect, [5, 6]), (dict_effect, {"k": 1, "j": 2}), (attr_effect, Pair(1, 2)), (aliased, [])],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_effects(fn: Any, target: Any) -> None:
    check(fn, X, target)
