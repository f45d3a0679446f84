"""Expressions, `match` and simple statements of Python mixed with tensor operations: traced into one graph, with eager's results.

PYTEST_DONT_REWRITE: the assert statements of the samples are themselves under test.
"""
# ruff: noqa: F821, F841, F842, UP028, UP031, UP032, UP037

from __future__ import annotations

from typing import Any

import pytest
import torch
from language_support import Point, Table, agree

case = Table()
SCALE = 3
# ---- match ----
def describe(value):
    match value:
        case None:
            return "none"
        case True | False:
            return "bool"
        case int(n) if n > 10:
            return f"big {n}"
        case int() | float():
            return "number"
        case str() as s:
            return s.upper()
        case []:
            return "empty"
        case [one]:
            return ("one", one)
        case [first, *rest, last]:
            return (first, len(rest), last)
        case {"kind": "box", "size": (w, h), **more}:
            return (w * h, sorted(more))
        case {"kind": kind}:
            return kind
        case Point(0, b=y):
            return ("axis", y)
        case Point(a=str(), b=y):
            return y
        case _:
            return "other"


@case()
def match_values(x):
    values = [None, True, 5, 50, 2.5, "abc", [], [x], [1, 2, x, 4], (1, 2), {"kind": "box", "size": (2, 3), "z": 1}]
    more = [{"kind": "k"}, {}, Point(0, x), Point("a", 1), Point(2, 2), b"bytes", {1, 2}]
    return [describe(v) for v in values + more]


@case()
def match_constants(x):
    out = []
    for v in ("a", "b", 1, 1.0, SCALE, None):
        match v:
            case "a" | "b":
                out.append(x)
            case 1:
                out.append(x + 1)
            case None:
                out.append(None)
            case other:
                out.append(x * other)
    return out


# ---- expressions ----
@case()
def walrus(x):
    if (n := x.shape[0]) > 1:
        x = x * n
    values = [y := 1, y + 1]
    while (n := n - 1) >= 0:
        x = x + n
    return x, values, [last := i for i in range(3)], last


@case()
def f_strings(x):
    n, f, s = 42, 3.14159, "text"
    width = 10
    parts = f"{n:>8d}|{n:#x}|{n:,}|{f:.2f}|{f:{width}.3e}|{s!r:>8}|{s:*^10}|{n=}|{f=:.1f}|{{}}|{x.shape}|{x.dtype}|{None}|{True:d}"
    return x + len(parts), parts, f"{[1, 2]} {(1,)} {{'a': 1}} { {'a': 1} }", "%s-%d-%5.2f" % (s, n, f), "{} {a!r:>5}".format(n, a=s)


@case()
def stars(x):
    def f(*args, k=1, **kw):
        return len(args), k, sorted(kw)

    def pos(a, b, /, c, *, d=4):
        return a + b + c + d

    first, (second, *third), *_ = [x, [1, 2, 3], 4, 5]
    return f(*[1, 2], *(3,), **{"k": 2}, **{"z": 1}), pos(x, 1, c=2), [*range(2), *"ab"], {*[1], *(2,)}, {**{"a": 1}, "b": x}, first, second, third


@case()
def deletes(x):
    y = x + 1
    del y
    d, items = {"a": 1, "b": 2}, [1, 2, 3, 4]
    del d["a"], items[0], items[-2:]
    try:
        return y
    except UnboundLocalError as error:
        return x, d, items, str(error)


@case()
def nonlocals(x):
    n, history = 1, []

    def bump():
        nonlocal n
        n += 1
        history.append(n)

        def deeper():
            nonlocal n
            n *= 10
            return x * n

        return deeper()

    return bump(), bump(), n, history


@case()
def lambdas(x):
    fs = [lambda v, k=k: v * k for k in range(3)]
    late = [lambda: k for k in range(3)]
    return [f(x) for f in fs], [f() for f in late], (lambda *a, **k: (a, k))(1, b=2), sorted([3, 1, 2], key=lambda v: -v)


def doubling(fn):
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


def scaled(by):
    def decorate(fn):
        return lambda *args: fn(*args) * by

    return decorate


@doubling
@scaled(5)
def decorated(x):
    return x + 1


@case()
def decorators(x):
    @doubling
    @scaled(3)
    def inner(v):
        return v - 1

    return decorated(x), inner(x)


@case()
def chained_comparisons(x):
    a, b = 3, 5
    return 1 < a < b <= 5 != 6, a < 1 < 2, (a and b) or x, a or b, not a, x if a else b, None is None, a in (1, 3), a not in [1]


@case()
def slices(x):
    items = list(range(10))
    items[2:5] = "xyz"
    items[::5] = [0, 0]
    return items[::-1], items[-3:], x[:, 1:], x[..., None], x[0, ::2], "hello"[1:-1:2], (1, 2, 3)[:2]


@case()
def augmented(x):
    y = x.clone()
    y += 1
    y *= 2
    n = 7
    n //= 2
    n **= 3
    n <<= 1
    s = "a"
    s += "b"
    items = alias = [1]
    items += (2,)
    items *= 2
    t = u = (1,)
    t += (2,)
    d = {"n": 1}
    d["n"] += 5
    d |= {"m": 2}
    st = {1}
    st |= {2}
    st -= {1}
    return y, n, s, items, alias is items, t, u, d, st


@case()
def global_reads(x):
    return x * SCALE, [SCALE for _ in range(2)], (lambda: SCALE + 1)()


@case()
def loops(x):
    out = []
    for i in range(6):
        if i == 1:
            continue
        if i == 4:
            break
        out.append(x * i)
    else:
        out.append("no break")
    n = 0
    while n < 3:
        n += 1
    else:
        out.append(n)
    for _ in ():
        pass
    else:
        out.append("else")
    return out


@case()
def comprehensions(x):
    grid = [[i * j for j in range(3)] for i in range(2)]
    table = {k: v for k, v in zip("abc", grid)}
    n = 10
    return grid, table, {i % 2 for i in range(5)}, [n + x for n in range(2)], n, [a for a, *b in [(1, 2), (3, 4)]]


# ---- classes made inside ----
@case()
def annotations_inside(x):
    y: int = 3
    z: torch.Tensor

    def f(a: int, b: "str" = "x") -> float:
        return a

    return x * y, sorted(f.__annotations__), f(2)


@case()
def conditional_imports(x):
    import math
    from collections import OrderedDict as OD
    from os import path

    return x * math.floor(2.5), OD(a=1), path.join("a", "b")


@case()
def function_attributes(x):
    def f(a, b=2, *, c=3):
        """doc"""
        return a + b + c

    f.calls = 0
    f.calls += 1
    f.__defaults__ = (5,)
    return f(x), f.calls, f.__name__, f.__doc__, f.__qualname__, f.__defaults__, f.__kwdefaults__, f.__code__.co_argcount


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)
