"""`copy.copy` and `copy.deepcopy` inside traced code: one graph, eager's results and eager's identities."""
# ruff: noqa: E501, E701, E702

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import sys
import types
from typing import Any
from unittest import mock

import pytest
import torch
from language_support import Table, X, agree

import pyframe

case = Table()


class Box:
    def __init__(self, v, w=0):
        self.v, self.w = v, w


class Hook:
    def __init__(self, v):
        self.v = v

    def __deepcopy__(self, memo):
        r = Hook(copy.deepcopy(self.v, memo))
        r.tag = "deep"
        return r

    def __copy__(self):
        r = Hook(self.v)
        r.tag = "shallow"
        return r


class State:
    def __init__(self, v):
        self.v, self.cache = v, [1]

    def __getstate__(self):
        return {"v": self.v}

    def __setstate__(self, s):
        self.__dict__.update(s)
        self.cache = "restored"


class Red:
    def __init__(self, a):
        self.a = a

    def __reduce__(self):
        return (Red, (self.a,), {"extra": 5})


class Slot:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class NewArgs:
    def __new__(cls, a, b=2):
        self = super().__new__(cls)
        self.n = (a, b)
        return self

    def __init__(self, *a, **k):
        pass

    def __getnewargs__(self):
        return self.n


class NewArgsEx:
    def __new__(cls, a, *, b=2):
        self = super().__new__(cls)
        self.n = (a, b)
        return self

    def __init__(self, *a, **k):
        pass

    def __getnewargs_ex__(self):
        return (self.n[:1], {"b": self.n[1]})


@dataclasses.dataclass
class DC:
    a: int
    b: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class FS:
    a: int
    b: tuple = ()


class MyList(list):
    pass


class MyDict(dict):
    pass


P = collections.namedtuple("P", "x y")


class Color(enum.Enum):
    R = 1


class Cfg:
    def __init__(self, **kw):
        self.sub = kw.pop("sub", None)
        for k, v in kw.items():
            setattr(self, k, v)

    def to_dict(self):
        out = copy.deepcopy(self.__dict__)
        out["t"] = type(self).__name__
        return out


CFG = Cfg(a=1, b=[1, 2], c={"x": (1, [2])}, sub=Cfg(z=torch.float32, e=Color.R))


@case()
def plain_objects(x):
    b = Box([1, x], {"k": [2]})
    d = copy.deepcopy(b)
    s = copy.copy(b)
    b.v.append(7)
    return d.v[0], len(d.v), d.v[1] is x, d.v[1] + 1, len(s.v), d, s


@case()
def aliasing(x):
    a = [1]
    b = {"p": a, "q": a, "self": None}
    b["self"] = b
    c = copy.deepcopy(b)
    c["p"].append(2)
    return c["p"] is c["q"], c["self"] is c, a, len(c["q"]), x + 1


@case()
def cycles(x):
    n = Box(None)
    n.v = n
    n.w = [n]
    m = copy.deepcopy(n)
    return m.v is m, m.w[0] is m, x + 1, m is not n


@case()
def hooks(x):
    h = Hook([x])
    return copy.copy(h), copy.deepcopy(h), copy.copy(h).tag, copy.deepcopy([h, h])[0].tag


@case()
def states(x):
    return copy.copy(State(3)).cache, copy.deepcopy(State([x])).v[0] + 1


@case()
def reduces(x):
    return copy.copy(Red(x)), copy.deepcopy(Red([1])).extra


@case()
def slots(x):
    s = Slot(x)
    c = copy.copy(s)
    d = copy.deepcopy(Slot([1, 2]))
    return c.a is x, d.a, hasattr(c, "b")


@case()
def newargs(x):
    return copy.copy(NewArgs(1, 3)).n, copy.deepcopy(NewArgsEx(1, b=9)).n, x + 1


@case()
def dcs(x):
    d = DC(1, [x])
    e = copy.deepcopy(d)
    f = copy.copy(d)
    g = copy.deepcopy(FS(1, (2, 3)))
    return e, f.b is d.b, g, e.b[0] + 1, g == FS(1, (2, 3))


@case()
def containers(x):
    l = MyList([1, [2]])
    l.tag = 5
    d = MyDict(a=[1])
    q = collections.deque([1, [2]], 5)
    o = collections.OrderedDict(a=[1])
    dd = collections.defaultdict(list, a=[1])
    c = collections.Counter("aab")
    return (
        copy.deepcopy(l),
        copy.copy(l),
        copy.deepcopy(d),
        copy.copy(d),
        copy.deepcopy(q),
        copy.copy(q),
        copy.deepcopy(o),
        copy.copy(o),
        copy.deepcopy(dd),
        copy.copy(dd),
        copy.deepcopy(c),
        copy.copy(c),
        x + 1,
    )


@case()
def tuples(x):
    t = (1, (2, 3))
    p = P(1, [2])
    return (
        copy.deepcopy(t) is t,
        copy.deepcopy((1, [2])),
        copy.deepcopy(p),
        copy.copy(p),
        copy.deepcopy({1, 2}),
        copy.deepcopy(frozenset([1])),
        x + 1,
        copy.deepcopy(range(3)),
    )


@case()
def atoms(x):
    f = lambda: 1
    return (
        copy.deepcopy(f) is f,
        copy.deepcopy(Color.R),
        copy.deepcopy(torch.float32),
        copy.deepcopy(None),
        copy.deepcopy(int),
        copy.deepcopy(len),
        x + 1,
        copy.deepcopy(x.shape),
        copy.deepcopy(torch.device("cpu")),
        copy.deepcopy(Box) is Box,
    )


@case()
def tensors(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return y, x, y is x, copy.deepcopy([x, x])[0] + 1


@case(X, [X.clone(), {"a": 1}])
def arg_list(x, items):
    c = copy.deepcopy(items)
    c[0].mul_(2)
    c[1]["a"] = 5
    return c, items, x + 1


@case(X, CFG)
def config(x, cfg):
    c = copy.deepcopy(cfg)
    c.b.append(5)
    c.sub.z = 3
    return c, x + len(cfg.b), cfg.to_dict(), cfg.sub is c.sub, cfg


@case()
def config_global(x):
    c = copy.deepcopy(CFG)
    c.b.append(5)
    return c, x + len(CFG.b)


@case()
def memo(x):
    m = {}
    a = [1]
    b = copy.deepcopy(a, m)
    return b is m[id(a)], x + 1, b


@case()
def simple_ns(x):
    n = types.SimpleNamespace(a=[1], b=x)
    return copy.copy(n), copy.deepcopy(n), x + 1


@case()
def partials(x):
    p = functools.partial(max, 1, key=None)
    return copy.copy(p)(2), copy.deepcopy(p)(3), x + 1


@case()
def exceptions(x):
    e = ValueError("a", [1])
    e.note = 5
    c = copy.copy(e)
    d = copy.deepcopy(e)
    return c.args, d.args, d.note, x + 1


@case()
def methods(x):
    b = Box(1)

    def f(self):
        return self.v

    m = types.MethodType(f, b)
    n = copy.deepcopy(m)
    return n(), n.__self__ is b, x + 1


@case()
def bytearrays(x):
    return copy.deepcopy("s"), copy.deepcopy(b"b"), copy.deepcopy(1.5), copy.copy({"a": 1}), copy.copy([1]), copy.copy({1}), x + 1


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


def test_parameters_are_copied_for_real() -> None:
    """A leaf that records gradients is made by torch itself, at a graph break."""
    linear = torch.nn.Linear(2, 2)

    def twice(x: torch.Tensor) -> Any:
        other = copy.deepcopy(linear)
        return other(x) * 2, other.weight is linear.weight, other.weight.requires_grad

    agree(twice, (torch.ones(2, 2),), fullgraph=False)


def test_a_result_of_autograd_is_not_copied() -> None:
    def copied(x: torch.Tensor) -> Any:
        y = x * 2
        try:
            copy.deepcopy(y)
        except RuntimeError as error:
            return y, str(error)
        return y

    agree(copied, (torch.ones(2, requires_grad=True),))


def test_what_torch_says_of_a_result_is_known_in_inference_mode() -> None:
    """The module is loaded by the first call, in whatever mode that is."""
    from pyframe.vars.torch_objects import tensor_copy

    with torch.inference_mode():
        assert tensor_copy._not_a_leaf() == tensor_copy._NOT_A_LEAF


class DerivedChain(itertools.chain): ...


@pytest.mark.parametrize("make", [itertools.count, lambda: itertools.chain([1]), lambda: DerivedChain([1]), lambda: iter([1])])
def test_iterators_of_c_are_copied_or_refused_as_in_eager(make: Any) -> None:
    """From CPython 3.14 on those of itertools are refused."""

    def copies(x, iterator):
        found = []
        for copied in (copy.copy, copy.deepcopy):
            try:
                found.append(type(copied(iterator)))
            except TypeError as error:
                found.append(str(error))
        return found, x + 1

    x = torch.ones(2)
    assert pyframe.compile(copies, backend="eager")(x, make())[0] == copies(x, make())[0]


SETTINGS = {"flag": True, "sizes": [1, 2, {"name": "x"}], "none": None, **{f"size{number}": number for number in range(60)}}


def test_values_that_are_their_own_copies_are_copied_by_the_library_once_for_each_type():
    def program(x):
        copied = copy.deepcopy({**SETTINGS, "again": SETTINGS["sizes"]})
        copied["sizes"].append(1)
        return x * copied["size3"], copied, copied["again"] is copied["sizes"], copy.deepcopy(7), copy.deepcopy("x", {})

    compiled = pyframe.compile(program, backend="eager", fullgraph=True)
    (got, *others), (want, *expected) = compiled(X), program(X)
    assert torch.equal(got, want) and others == expected
    assert pyframe.metrics.counters["instructions_traced"] < 4000
    with mock.patch.dict(copy._deepcopy_dispatch if sys.version_info < (3, 14) else {}, {int: lambda value, memo: 9}):
        assert compiled(X)[1:] == program(X)[1:]


def test_a_memo_has_the_copy_of_a_number():
    def program(x):
        return copy.deepcopy(5) + copy.deepcopy(5, {id(5): x}) + copy.deepcopy(6, {id(5): x + 1})

    assert torch.equal(pyframe.compile(program, backend="eager")(X), program(X))
