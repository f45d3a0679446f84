"""Special methods, by CPython's rules and with its errors: one graph, eager's results.

PYTEST_DONT_REWRITE: assert statements of the samples are themselves under test.
"""
# ruff: noqa: E501, E701, E702, F401, F811, F401, E731, F821, F841, UP007, UP045, UP006, UP042, B

import enum
import math
import operator
from typing import Any

import pytest
import torch
from language_support import Table, X, agree

case = Table()


class GA:
    def __init__(self):
        self.real = 1

    def __getattr__(self, n):
        if n.startswith("no"):
            raise AttributeError(f"custom {n}")
        return n + "!"

    def __delattr__(self, n):
        self.__dict__["deleted"] = n


class GAtt:
    def __init__(self):
        self.z = 5

    def __getattribute__(self, n):
        if n == "magic":
            return 42
        return object.__getattribute__(self, n)

    def __getattr__(self, n):
        return "fb " + n


class SA:
    def __setattr__(self, n, v):
        object.__setattr__(self, n.upper(), v)


@case()
def attrs(x):
    g = GA()
    out = [g.real, g.foo, hasattr(g, "nope"), getattr(g, "nope", 3)]
    try:
        g.nono
    except AttributeError as e:
        out.append(str(e))
    del g.whatever
    a = GAtt()
    s = SA()
    s.abc = x
    setattr(s, "q", 1)
    return out, g.deleted, a.magic, a.z, a.qq, s.ABC + 1, s.Q, vars(s).keys() == {"ABC", "Q"}


class NonData:
    def __get__(self, o, t=None):
        return ("nd", o is None, t.__name__)


class Data:
    def __set_name__(self, owner, name):
        self.n = "_" + name

    def __get__(self, o, t=None):
        return self if o is None else getattr(o, self.n, None)

    def __set__(self, o, v):
        setattr(o, self.n, v * 2)

    def __delete__(self, o):
        delattr(o, self.n)


class D:
    nd = NonData()
    d = Data()


@case()
def descriptors(x):
    o = D()
    a = o.nd
    o.nd = 5
    o.d = x
    b = o.d
    c = D.nd, isinstance(D.d, Data)
    o2 = D()
    o2.d = 4
    del o2.d
    return a, o.nd, b + 1, c, o2.d, o.__dict__.keys() == {"nd", "_d"}


class Slots:
    __slots__ = ("a", "b", "__weakref__")


class SlotsD(Slots):
    pass


@case()
def slots(x):
    s = Slots()
    s.a = x
    out = []
    for f in (lambda: s.b, lambda: setattr(s, "c", 1), lambda: delattr(s, "b"), lambda: s.__dict__):
        try:
            f()
        except AttributeError as e:
            out.append(str(e))
    d = SlotsD()
    d.c = 1
    d.a = 2
    return s.a + 1, out, d.c, d.__dict__, hasattr(s, "__dict__")


class CG:
    def __class_getitem__(cls, k):
        return (cls.__name__, k)


@case()
def class_getitem(x):
    return CG[int], CG["a", 1], x + 1


class Fmt:
    def __format__(self, s):
        return f"<{s}>"

    def __index__(self):
        return 2

    def __str__(self):
        return "S"

    def __repr__(self):
        return "R"

    def __bytes__(self):
        return b"b"

    def __int__(self):
        return 7

    def __float__(self):
        return 7.5

    def __complex__(self):
        return 1j

    def __round__(self, n=None):
        return ("round", n)

    def __trunc__(self):
        return 1

    def __floor__(self):
        return 11

    def __ceil__(self):
        return 12

    def __abs__(self):
        return 13

    def __divmod__(self, o):
        return ("dm", o)

    def __rdivmod__(self, o):
        return ("rdm", o)

    def __pow__(self, o, m=None):
        return ("pow", o, m)

    def __rpow__(self, o):
        return ("rpow", o)

    def __hash__(self):
        return 99

    def __eq__(self, o):
        return isinstance(o, Fmt)

    def __dir__(self):
        return ["b", "a"]

    def __sizeof__(self):
        return 5

    def __length_hint__(self):
        return 3


class Idx:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10


class Rev:
    def __reversed__(self):
        return iter("zyx")

    def __len__(self):
        return 0


class SeqOnly:
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return i + 100


class Miss(dict):
    def __missing__(self, k):
        return "m" + k


class NoIter:
    __iter__ = None

    def __getitem__(self, i):
        return i


class NoCont:
    __contains__ = None

    def __iter__(self):
        return iter([1])


@case()
def sequences(x):
    i = Idx()
    out = []
    for f in (
        lambda: iter(NoIter()),
        lambda: 1 in NoCont(),
        lambda: list(5),
        lambda: len(i),
        lambda: hash([]),
        lambda: reversed(Fmt()),
        lambda: i[5],
        lambda: next(i),
        lambda: 3 in 4,
        lambda: 5[0],
        lambda: (1)(),
        lambda: None.foo,
        lambda: [1]["a"],
        lambda: {}[[]],
        lambda: "a" + 1,
        lambda: -"a",
        lambda: 1 < "a",
        lambda: [] < 3,
        lambda: [].nope,
        lambda: i.nope,
    ):
        try:
            f()
        except (TypeError, IndexError, AttributeError) as e:
            out.append((type(e).__name__, str(e)))
    return (
        list(i),
        20 in i,
        5 in i,
        list(reversed(Rev())),
        bool(Rev()),
        list(reversed(SeqOnly())),
        Miss(a=1)["a"],
        Miss()["q"],
        Miss().get("q"),
        "q" in Miss(),
        out,
        [*i],
        max(i),
        sorted(i, reverse=True),
        x + 1,
        dict(zip(i, "abc")),
        tuple(i),
        sum(i),
        (lambda *a: a)(*i),
    )


class L:
    def __add__(self, o):
        return NotImplemented

    def __lt__(self, o):
        return NotImplemented


class R(L):
    def __radd__(self, o):
        return "R.radd"

    def __gt__(self, o):
        return "R.gt"


class IA:
    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return IA(self.v + o)

    def __imul__(self, o):
        self.v *= o
        return self

    def __matmul__(self, o):
        return "mm"

    def __rmatmul__(self, o):
        return "rmm"

    def __imatmul__(self, o):
        return "imm"

    def __rsub__(self, o):
        return ("rsub", o)

    def __lshift__(self, o):
        return "ls"

    def __rtruediv__(self, o):
        return "rt"

    def __mod__(self, o):
        return "mod"

    def __rmod__(self, o):
        return "rmod"


@case()
def operators(x):
    a = IA(1)
    b = a
    a += 2
    c = IA(2)
    d = c
    c *= 3
    e = IA(0)
    e @= 1
    out = []
    for f in (lambda: L() + 1, lambda: L() + L(), lambda: L() < L(), lambda: a - 1, lambda: a**2, lambda: ~a, lambda: a // 2, lambda: 1 & a):
        try:
            f()
        except TypeError as ex:
            out.append(str(ex))
    return a.v, b.v, d.v, c is d, e, IA(1) @ 2, [1] @ IA(1), L() + R(), L() < R(), 5 - a, a << 1, 1 / a, a % 3, 3 % a, out, x + 1


class Ctx:
    def __init__(self, sup):
        self.sup = sup
        self.log = []

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, t, v, tb):
        self.log.append(t.__name__ if t else None)
        return self.sup


@case()
def contexts(x):
    a = Ctx(True)
    b = Ctx(False)
    with a:
        raise KeyError("k")
    try:
        with b as bb, a:
            raise ValueError("v")
    except ValueError:
        pass
    try:
        with b:
            raise ValueError("v")
    except ValueError as e:
        s = str(e)

    def f():
        with b:
            return 5

    for i in range(3):
        with b:
            if i == 1:
                break
    return a.log, b.log, bb is b, s, f(), x + 1


class BL:
    def __bool__(self):
        return False

    def __len__(self):
        return 5


class LenO:
    def __len__(self):
        return 0


class BadB:
    def __bool__(self):
        return 3


class BadL:
    def __len__(self):
        return -1


class BadL2:
    def __len__(self):
        return "a"


@case()
def truths(x):
    out = []
    for f in (lambda: bool(BadB()), lambda: bool(BadL()), lambda: len(BadL2()), lambda: not BadB()):
        try:
            f()
        except (TypeError, ValueError) as e:
            out.append((type(e).__name__, str(e)))
    return bool(BL()), not LenO(), out, (1 if BL() else 2), BL() or "x", LenO() and 1, x + 1, all([BL()]), any([LenO()]), list(filter(None, [BL(), 1]))


class Meta(type):
    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.made = True
        return o

    def __instancecheck__(cls, o):
        return o == 5

    def __subclasscheck__(cls, c):
        return c is int

    def __contains__(cls, i):
        return i == "in"

    def __len__(cls):
        return 7

    def __iter__(cls):
        return iter([1, 2])

    def __getitem__(cls, k):
        return ("meta", k)

    def __add__(cls, o):
        return "plus"

    def __eq__(cls, o):
        return "eq" if o == 1 else type.__eq__(cls, o)

    def __hash__(cls):
        return 5

    def __repr__(cls):
        return "<M>"

    def __bool__(cls):
        return False

    def __getattr__(cls, n):
        return "attr " + n

    def __str__(cls):
        return "strM"

    @property
    def p(cls):
        return cls.__name__ + "p"

    def __setattr__(cls, n, v):
        type.__setattr__(cls, n, v)


class M(metaclass=Meta):
    def __init__(self, v):
        self.v = v


@case()
def metaclasses(x):
    m = M(x)
    return m.made, m.v + 1, isinstance(5, M), isinstance("a", M), issubclass(int, M), "in" in M, len(M), list(M), M["k"], M.p


@case()
def metaclass_ops(x):
    return M + 1, M == 1, repr(M), str(M), f"{M}", bool(M), M.foo, hash(M), x + 1, not M


class Base:
    subs = []

    def __init_subclass__(cls, /, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag


class Sub(Base, tag="t"):
    pass


@case()
def class_attr_read(x):
    return (
        Sub.tag,
        Sub().tag,
        x + 1,
        Base.__subclasses__() if False else 0,
        Sub.__mro__,
        Sub.__bases__,
        Sub.__name__,
        Sub.__module__,
        Sub.__qualname__,
        Sub.__doc__,
        Sub.__dict__["tag"],
    )


class HK:
    def __init__(self, v):
        self.v = v

    def __hash__(self):
        return hash(self.v)

    def __eq__(self, o):
        return isinstance(o, HK) and self.v == o.v


@case()
def hashing(x):
    d = {HK(1): "a", HK(2): "b"}
    d[HK(1)] = "c"
    s = {HK(1), HK(1), HK(3)}
    return (
        d[HK(1)],
        len(d),
        len(s),
        HK(3) in s,
        HK(9) in d,
        d.get(HK(2)),
        (HK(1), 2) in {(HK(1), 2): 3},
        s - {HK(1)} == {HK(3)},
        x + 1,
        d.pop(HK(2)),
        list(d.values()),
        {**d}[HK(1)],
        frozenset([HK(1)]) == frozenset([HK(1)]),
    )


class It:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 3:
            raise StopIteration
        return self.n


class Call:
    def __call__(self, *a, k=1):
        return a, k


@case()
def iteration(x):
    a, *b = It()
    c = [i for i in It()]
    d = {**dict(zip("ab", It()))}
    it = It()
    out = []
    while True:
        try:
            out.append(next(it))
        except StopIteration:
            break
    return (
        a,
        b,
        c,
        d,
        out,
        next(It()),
        list(map(Call(), It())),
        Call()(1, k=2),
        callable(Call()),
        x + 1,
        (lambda: (yield))().__next__(),
        list(zip(It(), It())),
        next(iter(It()), None),
        dict.fromkeys(It(), 0),
    )


@case()
def closures(x):
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    fs = [lambda i=i: i for i in range(3)]
    gs = [lambda: i for i in range(3)] if False else []
    inc()
    inc()

    def deco(f):
        def w(*a, **k):
            return f(*a, **k) + 1

        w.tag = 1
        return w

    @deco
    @deco
    def g(y):
        return y

    del fs[0]
    return n, [f() for f in fs], g(x), g.tag, (lambda *, a=1: a)(a=5)


@case()
def matching(x):
    out = []
    for v in (1, "a", [1, 2, 3], {"k": 1, "z": 2}, HK(5), (1, (2, 3)), None, 3.5):
        match v:
            case 1 | 2:
                out.append("num")
            case str(s):
                out.append("str" + s)
            case [a, *rest]:
                out.append((a, rest))
            case {"k": k, **r}:
                out.append((k, r))
            case HK(v=q):
                out.append(q)
            case None:
                out.append("none")
            case float() if v > 3:
                out.append("f")
    return out, x + 1


@case()
def walrus_and_more(x):
    if (n := len([1, 2])) > 1:
        y = x + n
    a = b = [1]
    a.append(2)
    (c, d), [e, *f] = (1, 2), "abc"
    g = {k: v for k, v in zip("ab", (1, 2)) if v > 1}
    h = {i % 2 for i in range(5)}
    i = [j for k in range(3) for j in range(k) if j]
    l = [*a, *b]
    m = {**g, "q": 1}
    assert n == 2, "msg"
    try:
        assert n == 3, f"bad {n}"
    except AssertionError as err:
        o = str(err)
    for z in []:
        pass
    else:
        p = "else"
    while False:
        pass
    else:
        q = 1
    del a[0], m["q"]
    return y, b, c, d, e, f, g, h, i, l, m, o, p, q, 1 < n < 3, not n, n if n else 0, x[..., None, 1:2].shape, lambda: 0


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


kept_in_c = Table()


@kept_in_c()
def errors_with_more_than_arguments(x):
    out = []
    for make in (
        lambda: OSError(2, "nope"), lambda: OSError(17, "there", "file"), lambda: ImportError("x", name="n", path="p"), lambda: AttributeError("m", name="nm", obj=3),
        lambda: NameError("m", name="n"), lambda: UnicodeDecodeError("utf8", b"a", 0, 1, "r"), lambda: FileNotFoundError(2, "gone", "f"),
    ):  # fmt: skip
        try:
            raise make()
        except Exception as e:
            out.append((type(e).__name__, str(e), e.args, getattr(e, "errno", None), getattr(e, "filename", None), getattr(e, "name", None), isinstance(e, LookupError)))
    return out, x + 1


@kept_in_c()
def errors_that_leave_the_graph(x):
    return ImportError("x", name="n"), OSError(2, "nope", "file"), x + 1


@kept_in_c()
def wrong_arguments_of_errors(x):
    out = []
    for make in (lambda: UnicodeDecodeError("utf8", 1), lambda: ImportError("x", nope=1), lambda: ValueError(x=1)):
        try:
            make()
        except TypeError as e:
            out.append(str(e))
    return out, x + 1


class Permission(enum.Flag):
    R = 1
    W = 2


class ToBytes:
    def __bytes__(self):
        return b"bytes"


class ToIndex:
    def __index__(self):
        return 2


@kept_in_c()
def flags_and_bytes(x):
    return list(Permission.R | Permission.W), len(Permission.R), [p.name for p in Permission], bytes(ToBytes()), bytes(ToIndex()), b"", bytes([1, 2]), x + 1


@pytest.mark.parametrize("row", kept_in_c, ids=Table.name)
def test_what_c_keeps(row: Any) -> None:
    agree(*row)
