"""Subclasses of built-in types, enumerations, dataclasses, named tuples, model outputs and classes with a `__new__` of
their own in traced code, and objects of the program that outlive the call."""
# ruff: noqa: UP008

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, NamedTuple

import pytest
import torch
from language_support import Table, X, agree
from transformers.utils import ModelOutput

case = Table()


class Singleton:
    _instance = None
    created = 0

    def __new__(cls, *args):
        self = super().__new__(cls)
        self.from_new = args
        return self

    def __init__(self, v):
        self.v = v


class Other:
    def __new__(cls, v):
        return [v]


class Immutable(tuple):
    def __new__(cls, a, b=0):
        return super().__new__(cls, a if isinstance(a, tuple) else (a, b))

    @property
    def total(self):
        return self[0] + self[1]


@case()
def new_methods(x):
    s = Singleton(x)
    i = Immutable(x, 2)
    return s.v, s.from_new, Other(x), i.total, i[1], len(i), i, isinstance(i, tuple), list(i)


class MyDict(dict):
    def __missing__(self, key):
        return f"missing {key}"

    def extra(self):
        return len(self)


class MyList(list):
    tag = "list"

    def total(self):
        return sum(self)

    def append(self, item):
        super().append(item)
        self.appended = item


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


class MyInt(int):
    def doubled(self):
        return self * 2


class MyOrdered(collections.OrderedDict):
    def first(self):
        return next(iter(self.values()))


class Attr(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)

    def __setattr__(self, name, value):
        self[name] = value


@case()
def builtin_subclasses(x):
    d = MyDict(a=x)
    d["b"] = 2
    i = MyList([1, 2])
    i.append(3)
    o = MyOrdered(a=x, b=1)
    a = Attr(k=1)
    a.z = x
    return d["a"], d["zz"], d.extra(), d.get("q"), d, i, i.total(), i.appended, i.tag, len(i), i[0], o.first(), o, a.k, a.z, a, isinstance(i, list), [*i], {**d}


@case()
def str_and_int_subclasses(x):
    s, n = MyStr("ab"), MyInt(3)
    return s.shout(), s + "c", len(s), n.doubled(), x * n, n + 1, s, n, isinstance(s, str), s == "ab", {s: 1}["ab"], f"{s}{n}"


class Color(enum.Enum):
    RED = 1
    GREEN = "g"

    @property
    def lower(self):
        return self.name.lower()

    @classmethod
    def default(cls):
        return cls.RED

    def __str__(self):
        return f"color {self.name}"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = 1
    B = 2


@case()
def enums(x):
    out = []
    try:
        Color(99)
    except ValueError as error:
        out.append(str(error))
    return Color.RED is Color(1), Color["GREEN"], Color.GREEN.value, Color.RED.name, Color.RED.lower, [c.name for c in Color], Color.default(), x * Level.HIGH, Level.LOW < Level.HIGH, Level(5) is Level.HIGH, Flags.A | Flags.B, Flags.A in (Flags.A | Flags.B), str(Color.RED), f"{Level.LOW}", repr(Level.HIGH), Color.RED == Color.RED, Color.RED != Color.GREEN, {Color.RED: x}[Color.RED], len(Color), isinstance(Color.RED, Color), Color.RED in Color, hash(Color.RED) == hash(Color.RED), Level.HIGH + 1, out, list(Color.__members__)


@dataclasses.dataclass
class Config:
    a: Any
    b: int = 2
    items: list[Any] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, repr=False, compare=False)

    def __post_init__(self):
        self.post = self.b + 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: int = 1


@dataclasses.dataclass(order=True, slots=True)
class Ranked:
    rank: int
    name: str = "n"


@dataclasses.dataclass(kw_only=True)
class KeywordOnly:
    p: int
    q: dataclasses.InitVar[int] = 5

    def __post_init__(self, q):
        self.total = self.p + q


@case()
def dataclass_features(x):
    c = Config(x, items=[1])
    d = dataclasses.replace(c, b=5)
    f = Frozen(x)
    out = []
    try:
        f.a = 1
    except dataclasses.FrozenInstanceError as error:
        out.append(str(error))
    try:
        Config()
    except TypeError as error:
        out.append(str(error))
    return c.post, d.b, d.post, d.items is c.items, [f.name for f in dataclasses.fields(c)], dataclasses.asdict(Frozen(1, 2)), dataclasses.astuple(Ranked(1)), Ranked(1) < Ranked(2), Ranked(1) == Ranked(1), repr(Ranked(3, "z")), repr(Config(1)), Config(1) == Config(1), hash(Frozen(1)) == hash(Frozen(1)), out, c, f, KeywordOnly(p=1).total, dataclasses.is_dataclass(c), Ranked(1)


class Pair(NamedTuple):
    left: Any
    right: int = 5

    def total(self):
        return self.left + self.right


Named = collections.namedtuple("Named", ["a", "b"], defaults=[7])


class SubNamed(Named):
    def plus(self):
        return self.a + self.b


@case()
def named_tuples(x):
    p = Pair(x)
    a, b = p
    n = Named(1)
    s = SubNamed(x, 1)
    out = []
    for attempt in (lambda: Named(), lambda: Named(1, 2, 3), lambda: Named(1, z=2), lambda: setattr(n, "a", 1), lambda: n._replace(z=1)):
        try:
            attempt()
        except (TypeError, AttributeError, ValueError) as error:
            out.append(str(error))
    return p.total(), p.right, a, b, n, n._asdict(), n._replace(b=9), Named._fields, Named._make([1, 2]), repr(n), n == (1, 7), n[0], p._fields, isinstance(n, tuple), s.plus(), s, Pair._field_defaults, out, n + (1,), hash(n) == hash((1, 7)), n.count(1), *n


class Holder:
    shared = 10

    def __init__(self, **kw):
        self.__dict__.update(kw)


@case(X, Holder(v=1, items=[1], inner=Holder(w=2)))
def mutated_object(x, h):
    h.v = x + 1
    h.items.append(h.v)
    h.inner.w += 5
    h.new = [h.inner, x]
    h.shared += 1
    del h.inner
    h.items = h.items + [2]
    return h.shared, h.new[0].w


@case(X, Holder(a=1, b=2))
def attributes_in_order(x, h):
    del h.a
    h.c = 1
    h.a = x
    del h.b
    h.b = 5
    return list(vars(h))


@case(X, Holder(a=1))
def dict_of_argument(x, h):
    h.__dict__["z"] = x
    h.__dict__.update(q=2)
    vars(h)["a"] = 7
    return h.z + h.q, h.a, list(h.__dict__)


@case(X, Config(1, items=[3]), [Frozen(2)])
def dataclass_arguments(x, c, fs):
    c.a = x
    c.items.append(fs[0].a)
    fs.append(dataclasses.replace(fs[0], b=x))
    return c, fs[1].b


@dataclasses.dataclass
class Output(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    extra: tuple[torch.Tensor, ...] | None = None


@case()
def model_output_made(x):
    out = Output(logits=x * 2)
    return out, out.logits, out["logits"], out[0], out.to_tuple(), list(out), len(out), "loss" in out, out.loss


@case(Output(logits=X, extra=(X + 1,)))
def model_output_argument(out):
    a = out.logits + out["extra"][0] + out[0]
    b, c = out.to_tuple()
    return a, list(out.keys()), b * 2


@case(Output(logits=X))
def model_output_mutated(out):
    out.loss = out.logits.sum()
    out["extra"] = (out.logits,)
    return out, list(out.keys())


@case(MyDict(a=1), MyList([1, 2]), MyOrdered(k=X))
def builtin_subclass_arguments(d, items, o):
    d["n"] = X_of(o)
    items.append(o["k"] * 2)
    o["z"] = 1
    return d["zz"], d.extra(), items.total(), o.first(), items.appended, list(o)


def X_of(o):
    return o["k"] + 1


@case(MyStr("abc"), MyInt(4), X)
def scalar_subclass_arguments(s, n, x):
    return s.shout(), x * n, n.doubled(), s + "d", len(s), s, n


@case(Pair(X, 2), Named(1, X), SubNamed(X, 1), Immutable(X, 2))
def tuple_arguments(p, n, s, i):
    return p.total(), n.b + n[0], s.plus(), i.total, p, s, i, n._replace(a=5)


@case(X, Holder(v=3))
def identity_kept(x, h):
    box = {"h": h}
    pair = (h, box["h"])
    return pair[0] is pair[1], pair, box, h


class Counter2:
    total = 0

    def bump(self):
        self.total += 1
        return self.total


@case(X, Counter2())
def class_default_then_instance(x, c):
    return x * c.bump(), c.bump(), c.total, Counter2.total


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)
