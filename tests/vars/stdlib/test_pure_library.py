"""Patterns, dates, json, signatures and the like inside traced code: one graph; objects of C that are not modelled break."""
# ruff: noqa: E501

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import heapq
import inspect
import json
import re
import string
import types
import typing
from typing import Any

import pytest
import torch
from language_support import Table, X, agree
from util import check

import pyframe
from pyframe.metrics import counters

whole = Table()
broken = Table()
PATTERN = re.compile(r"layer(\d+)\.(?P<kind>\w+)")


@whole()
def matches(x):
    m = re.match(r"(\w+)\.(\d+)", "layer.12")
    n = PATTERN.search("a layer3.attn b")
    found = [re.fullmatch("a", "b"), re.search("b", "abc").span(), PATTERN.match("no"), bool(n)]
    return x + int(m.group(2)), m.groups(), n["kind"], n.groupdict(), n.start(1), m[1], PATTERN.pattern, PATTERN.groups, found[0], found[1], found[3], found[2] is None


@whole()
def substitutions(x):
    seen = []

    def upper(m):
        seen.append(m.start())
        return m.group().upper()

    try:
        re.compile("(")
    except re.error as error:
        text = error.args[0]
    return (
        x + 1, re.sub("a", "b", "banana"), re.sub("a", upper, "banana", count=2), PATTERN.sub(lambda m: m[1], "layer1.q layer2.k"), re.split(",", "a,b"), re.findall(r"\d", "1 2"),
        [m.group() for m in re.finditer("a.", "abac")], re.escape("a.b"), re.compile("a+").subn("-", "baab"), re.sub("x*", lambda m: "-", "abxd"), seen, text, re.sub("(a)(b)?", r"[\1]", "aab"),
    )  # fmt: skip


@whole(X, "layer7.mlp")
def names_of_layers(x, name):
    found = PATTERN.fullmatch(name)
    return x * int(found.group(1)) if found and found["kind"] == "mlp" else x


@whole()
def templates(x):
    t = string.Template("$a ${b} $$")
    return x + 1, t.substitute(a=1, b="z"), string.Template("$x $y").safe_substitute(x=1), string.Formatter().format("{} {a!r:>5} {b[0]}", 1, a="b", b=[2]), t.template


@whole()
def jsons(x):
    text = json.dumps({"b": [1, 2.5, None, "x"], "a": True}, sort_keys=True)
    back = json.loads(text)
    back["b"].append(x.shape[0])
    try:
        json.loads("{")
    except ValueError as error:
        return x + 1, text, back, json.dumps([1], indent=2), type(error).__name__, error.args[0][:10]


@whole()
def dates(x):
    d = datetime.date(2020, 2, 28) + datetime.timedelta(days=2)
    t = datetime.datetime(2020, 1, 1, 12)
    return x + d.day, d.isoformat(), (t - datetime.datetime(2019, 1, 1)).days, t.replace(year=2021).year, datetime.timedelta(hours=1) < datetime.timedelta(minutes=90), str(t), datetime.timedelta(seconds=3).total_seconds(), d == datetime.date(2020, 3, 1)


def annotated(a: int, b: str = "z", *rest, c: float = 2.0, **kw) -> torch.Tensor: ...


class Annotated:
    size: int
    name: str

    def method(self, a, b=1): ...


@whole()
def inspected(x):
    spec, of_method = inspect.getfullargspec(annotated), inspect.getfullargspec(Annotated().method)
    spec.args.append("mine")
    hints = typing.get_type_hints(annotated)
    return x + len(spec.args), spec.varargs, spec.kwonlyargs, spec.kwonlydefaults, spec.defaults, of_method.args, hints["a"], sorted(hints), typing.get_type_hints(Annotated)


@whole()
def namespaces(x):
    n = types.SimpleNamespace(a=1)
    n.b = "c"
    return x + n.a, repr(n), n == types.SimpleNamespace(a=1, b="c")


@whole()
def reprs_of_collections(x):
    return x + 1, repr(collections.ChainMap({"a": 1}, {"b": 2})), repr(collections.UserList([1])), repr(collections.UserDict(a=1)), collections.UserString("ab").upper() + "c"


@whole()
def heaps(x):
    h = [3, 1, 2]
    heapq.heapify(h)
    return x + heapq.heappushpop(h, 0), heapq.heappushpop(h, 7), heapq.heapreplace(h, 5), h


class Row(typing.TypedDict):
    a: int


@whole()
def typed_dicts(x):
    row: Row = {"a": 1}
    made = Row(a=2)
    return x + row["a"], type(made) is dict, made


@functools.lru_cache
def doubled(n):
    return n * 2


@broken()
def a_method_of_an_object_of_c(x):
    y = x * doubled(3)
    info = doubled.cache_info()
    return y + 1, info.maxsize, [*doubled.cache_parameters()]


@whole()
def decimals(x):
    a = decimal.Decimal("1.5")
    try:
        b = a + 1
    except TypeError:
        b = None
    return x + 1, b, a == decimal.Decimal("1.50"), -a, a < 2, hash(a) == hash(1.5), repr(a)


@whole(X, decimal.Decimal("1.5"), decimal.Decimal("1.50"))
def decimals_from_outside(x, a, b):
    y = x + 1
    return y * 2, a == b, a in (b,), a - 1


@broken()
def today(x):
    return x + 1, datetime.datetime.now().year > 2000, datetime.datetime(2020, 1, 1).timestamp() > 0


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    agree(*row)


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    pyframe.reset()
    doubled(3)
    check(row[0], *row[1])
    assert counters["graphs"] and counters["graph_breaks"]
