"""Classes made inside traced code: one graph, eager's results.

PYTEST_DONT_REWRITE: assert statements of the samples are themselves under test.
"""
# ruff: noqa: E501, E742, E701, E702, F401, F811, F401, E731, F821, F841, UP007, UP045, UP006, UP042, B

import abc
import collections
import dataclasses
import enum
import functools
import gc
import types
import typing
from typing import Any, Generic, NamedTuple, TypeVar

import pytest
import torch
from language_support import Table, X, agree

import pyframe

case = Table()
T = TypeVar("T")


class Base:
    registry = []

    def __init__(self, v):
        self.v = v

    def hi(self):
        return "base"


class Hooked:
    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag


class Named:
    def __set_name__(self, owner, name):
        self.name = name
        self.owner = owner.__name__

    def __get__(self, obj, t=None):
        return (self.name, self.owner, obj is None)


class Meta(type):
    def __new__(m, name, bases, ns, **kw):
        ns["added"] = len(ns) > 0
        return super().__new__(m, name, bases, ns)

    def __init__(cls, name, bases, ns, **kw):
        super().__init__(name, bases, ns)
        cls.kw = sorted(kw)

    def __call__(cls, *a):
        o = super().__call__(*a)
        o.meta = True
        return o

    @classmethod
    def __prepare__(m, name, bases, **kw):
        return {"prepared": name}


class PreparesAsFunction(type):
    def __prepare__(name, bases, **kw):  # not a class method
        return {"prepared": name}


@case()
def prepared_by_a_function(x):
    class A(metaclass=PreparesAsFunction):
        pass

    return A.prepared, x + 1


@case()
def simple(x):
    class A:
        n = 2

        def __init__(self, v):
            self.v = v

        def scaled(self, k=3):
            return self.v * self.n * k

        @property
        def p(self):
            return self.v + 1

        @staticmethod
        def s(a):
            return a + 10

        @classmethod
        def c(cls, v):
            return cls(v)

    a = A(x)
    return a.scaled(), a.p, A.s(1), A.c(x).v, A.__name__, type(a) is A, isinstance(a, A), A.n, A.__qualname__, A.__module__


@case()
def closures(x):
    k = x * 2

    class A:
        def get(self):
            return k + 1

        z = k

    return A().get(), A.z, A().z + 1


@case()
def with_super(x):
    class A(Base):
        def __init__(self, v):
            super().__init__(v)
            self.w = 1

        def hi(self):
            return super().hi() + "!" + __class__.__name__

    class B(A):
        def hi(self):
            return "B" + super().hi()

    b = B(x)
    return b.hi(), b.v + b.w, [c.__name__ for c in B.__mro__], issubclass(B, Base)


@case()
def returned_instance(x):
    y = x + 1

    class A:
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v + y

        def me(self):
            return __class__

    a = A(x)
    return a


@case()
def returned_class(x):
    y = x + 1

    class A(Base):
        """doc"""

        attr = [1, 2]

        def get(self):
            return self.v + y

        def me(self):
            return __class__

    return A, y


@case()
def exceptions(x):
    class E(ValueError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    class F(E):
        pass

    try:
        raise F(3)
    except E as e:
        return str(e), e.code, type(e).__name__, x + 1, isinstance(e, ValueError)


@case()
def exception_leaves(x):
    class E(ValueError):
        pass

    y = x + 1
    raise E("bad")


@case()
def three_args(x):
    A = type("A", (Base,), {"n": 5, "f": lambda self: self.v + self.n})
    B = type("B", (), dict(q=1))
    return A(x).f(), A.n, B().q, A.__name__, B.__bases__


@case()
def setnames(x):
    class A:
        d = Named()
        e = Named()

    return A().d, A.e, x + 1


@case()
def initsub(x):
    class A(Hooked, tag="t"):
        n = 1

    class B(Hooked):
        pass

    class C(A, tag=x):
        pass

    return A.tag, B.tag, A().tag, C.tag + 1


@case()
def metas(x):
    class A(metaclass=Meta, k=1):
        def __init__(self, v):
            self.v = v

    class B(A):
        pass

    return A.added, A.prepared, A.kw, A(x).meta, A(x).v + 1, type(B) is Meta, B(x).v


@case()
def abcs(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...
        @property
        @abc.abstractmethod
        def p(self): ...

    class B(A):
        def f(self):
            return x + 1

        p = 5

    try:
        A()
    except TypeError as e:
        s = str(e)
    return B().f(), s, isinstance(B(), A), B().p


@case()
def dcs(x):
    @dataclasses.dataclass
    class P:
        a: int
        b: list = dataclasses.field(default_factory=list)
        c: float = 1.5

        def total(self):
            return self.a + self.c

    @dataclasses.dataclass(frozen=True, order=True)
    class Q(P):
        d: int = 4

    p = P(1, [x])
    return p.total(), repr(P(1)), P(1) == P(1), p.b[0] + 1, [f.name for f in dataclasses.fields(P)], dataclasses.asdict(P(2)), dataclasses.replace(p, a=5).a


@case()
def dc_frozen(x):
    @dataclasses.dataclass(frozen=True, order=True)
    class Q:
        a: int
        d: int = 4

    q = Q(1)
    try:
        q.a = 4
    except dataclasses.FrozenInstanceError as e:
        s = str(e)
    return q < Q(2), s, x + q.d, hash(q) == hash(Q(1))


@case()
def dc_slots(x):
    @dataclasses.dataclass(slots=True, kw_only=True)
    class Q:
        a: int
        d: Any = 4

    return Q(a=1).d, Q(a=x).a + 1, Q.__slots__


@case()
def dc_returned(x):
    @dataclasses.dataclass
    class Out:
        t: torch.Tensor
        n: int = 3

    return Out(x + 1)


@case()
def namedtuples(x):
    P = collections.namedtuple("P", "x y", defaults=[5])
    p = P(x)

    class Q(NamedTuple):
        a: int
        b: str = "z"

        def s(self):
            return f"{self.a}{self.b}"

    return p.x + 1, p.y, p._replace(y=6).y, P._fields, Q(1).s(), Q(1)._asdict(), Q._fields, Q(3).a, repr(Q(1))


@case()
def namedtuple_returned(x):
    P = collections.namedtuple("P", "x y")
    return P(x + 1, 2)


@case()
def slots_(x):
    class S:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    s = S(x)
    try:
        s.c = 1
    except AttributeError as e:
        m = str(e)
    return s.a + 1, m, hasattr(s, "b"), S.__slots__, s


@case()
def operators_(x):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return V(self.v + (o.v if isinstance(o, V) else o))

        __radd__ = __add__

        def __eq__(self, o):
            return isinstance(o, V)

        def __getitem__(self, i):
            return self.v[i]

        def __len__(self):
            return 3

        def __call__(self, z):
            return self.v * z

        def __enter__(self):
            return self

        def __exit__(self, *a):
            return True

        def __iter__(self):
            yield from (1, 2)

        def __repr__(self):
            return "V!"

        def __getattr__(self, n):
            return n

        def __contains__(self, i):
            return i == 1

        def __bool__(self):
            return False

    a = V(x)
    with a:
        raise ValueError
    return (1 + a + a).v, a == V(1), a[0], len(a), a(2), list(a), repr(a), a.foo, 1 in a, bool(a), V.__hash__


@case()
def counting(x):
    class C:
        n = 0

        def __init__(self):
            type(self).n += 1
            C.m = 5

    C()
    C()
    C.extra = x
    del C.m
    return C.n, C.extra + 1, hasattr(C, "m"), C().extra


@case()
def generics(x):
    class G(Generic[T]):
        def __init__(self, v):
            self.v = v

    class H(list):
        def tail(self):
            return self[1:]

    class D(dict):
        def __missing__(self, k):
            return k * 2

    class I(int):
        pass

    return G(x).v + 1, G[int](3).v, H([1, 2]).tail(), D()["a"], I(3) + 1, H([1, x])


@case()
def decorators(x):
    def deco(c):
        c.extra = 1
        return c

    def repl(c):
        return (c, "wrapped")

    @deco
    class A:
        pass

    @repl
    class B:
        q = 2

    @functools.total_ordering
    class O:
        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            return s.v == o.v

        def __lt__(s, o):
            return s.v < o.v

    return A.extra, B[1], B[0].q, x + 1, O(1) <= O(2), O(3) > O(2)


@case()
def bodies(x):
    class A:
        a = 1
        b = [a + i for i in range(3)]
        for i in range(3):
            if i == 1:
                c = i

        def f(self):
            return 1

        g = f

        class Inner:
            z = 5

        del i
        x: int = 3
        y: "str"
        if True:

            def cond(self):
                return "c"

        w = lambda self: self.a
        try:
            1 / 0
        except ZeroDivisionError:
            err = "zde"

    return (
        A.b,
        A.c,
        A().g(),
        A.Inner.z,
        A.Inner.__qualname__,
        x + 1,
        hasattr(A, "i"),
        A.__annotations__,
        A().cond(),
        A().w(),
        A.err,
        sorted(k for k in vars(A) if not k.startswith("_")),
    )


@case()
def cached(x):
    class A:
        n = 0

        @functools.cached_property
        def p(self):
            self.n += 1
            return x + self.n

    a = A()
    a.p
    return a.p, a.n


@case()
def registered(x):
    kinds = {}

    def register(c):
        kinds[c.__name__] = c
        return c

    @register
    class A:
        def f(self):
            return x + 1

    @register
    class B(A):
        def f(self):
            return super().f() * 2

    return [kinds[k]().f() for k in sorted(kinds)], {A: 1}[A], A in {A, B}, A == A, A != B


@case()
def errors(x):
    out = []

    class M1(type):
        pass

    class M2(type):
        pass

    class A(metaclass=M1):
        pass

    class B(metaclass=M2):
        pass

    def f():
        class C(A, B):
            pass

    def g():
        class C(Base, k=1):
            pass

    def h():
        class C(bool):
            pass

    def i():
        class C(Base, Base):
            pass

    def j():
        class C:
            nosuch

    for q in (f, g, h, i, j, lambda: str, lambda: type("a", 1)):
        try:
            q()
        except (TypeError, NameError) as e:
            out.append((type(e).__name__, str(e)))
    return out, x + 1


@case()
def new_method(x):
    class S:
        inst = None

        def __new__(cls, *a):
            if cls.inst is None:
                cls.inst = super().__new__(cls)
            return cls.inst

        def __init__(self, v):
            self.v = v

        def __init_subclass__(cls):
            cls.sub = True

        def __class_getitem__(cls, k):
            return k

    class R(S):
        pass

    return S(1) is S(x), S(x).v, R.sub, S[3]


@case()
def make_dataclass(x):
    P = dataclasses.make_dataclass("P", ["a", ("b", int, 5)])
    return P(1).b, x + 1, P(x).a


@case()
def make_dataclasses_by_map(x):
    P, Q = map(dataclasses.make_dataclass, ["P", "Q"], [["a"], ["b"]])
    return P.__module__, Q.__module__, P(x).a + 1


@case()
def protocols(x):
    class HasF(typing.Protocol):
        def f(self): ...

    class A(HasF):
        def f(self):
            return x + 1

    return A().f()


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


def test_a_class_that_leaves_the_graph_is_whole() -> None:
    def makes(x):
        y = x + 1

        class A(Base):
            "doc"

            def __init__(self, v):
                super().__init__(v)
                self.w = y

            def get(self):
                return self.v + y

            def me(self):
                return __class__

            @property
            def p(self):
                return self.w * 2

            @staticmethod
            def s():
                return y

            @classmethod
            def c(cls):
                return cls

        @dataclasses.dataclass
        class D(A):
            t: int = 3

            def __post_init__(self):
                self.w = 5

        return A, A(3), y, D(4), {A: 1}

    compiled = pyframe.compile(makes, backend="eager", fullgraph=True)
    classes = []
    for _ in range(2):
        A, a, y, d, keyed = compiled(torch.ones(2))
        assert type(a) is A and a.me() is A and A.c() is A and list(keyed) == [A]
        assert a.get().tolist() == [5.0, 5.0] and a.p.tolist() == [4.0, 4.0] and A.s() is y
        assert A(7).get().tolist() == [9.0, 9.0] and A.__doc__ == "doc" and A.__bases__ == (Base,)
        assert type(d).__bases__ == (A,) and (d.t, d.w) == (4, 5) and repr(d).endswith("D(t=4)")
        classes.append(A)
    assert classes[0] is not classes[1]


def test_no_class_made_while_tracing_is_left() -> None:
    class Parent:
        pass

    def makes(x):
        class Child(Parent):
            def get(self):
                return x + 1

        return Child().get()

    pyframe.compile(makes, backend="eager", fullgraph=True)(torch.ones(2))
    gc.collect()
    assert Parent.__subclasses__() == []


def test_a_class_goes_on_behind_a_break() -> None:
    def breaks(x):
        y = x + 1

        class A:
            def get(self):
                return y

        pyframe.graph_break()
        return A().get() + 1, A.__name__

    result, name = pyframe.compile(breaks, backend="eager")(torch.ones(2))
    assert result.tolist() == [3.0, 3.0] and name == "A"


def documented(self):
    """Of the new getter."""


def test_copies_of_existing_properties_have_the_text_of_eager():
    for text in (None, "of the property"):
        given = property(lambda self: 1)
        given.__doc__ = text

        def fn(given):
            return given.getter(documented).__doc__, given.setter(documented).__doc__

        assert pyframe.compile(fn, backend="eager")(given) == fn(given)


def test_changes_through_attributes_that_a_new_class_inherits() -> None:
    class Base:
        names: list[str] = []
        sizes: dict[str, int] = {}

        def __init_subclass__(cls) -> None:
            cls.names.append(cls.__name__)

    def makes(x):
        class A(Base):
            pass

        class B(A):
            pass

        B().sizes["b"] = len(B.names)
        return x + 1, B.names, B.names is Base.names

    compiled = pyframe.compile(makes, backend="eager", fullgraph=True)
    _, names, same = compiled(torch.ones(2))
    assert names is Base.names == ["A", "B"] and same and Base.sizes == {"b": 2}
    compiled(torch.ones(2))
    assert Base.names == ["A", "B", "A", "B"] and Base.sizes == {"b": 4}


def test_what_a_new_class_inherits_is_guarded() -> None:
    class Base:
        sizes: list[int] = []

        def scale(self):
            return 2

    class Between(Base):
        pass

    def makes(x):
        class A(Between):
            pass

        return x * A().scale() + len(A.sizes)

    compiled = pyframe.compile(makes, backend="eager", fullgraph=True)
    x = torch.ones(2)
    changes = (
        lambda: None,
        lambda: Base.sizes.append(1),
        lambda: setattr(Base, "sizes", [1, 2, 3]),
        lambda: setattr(Base, "scale", lambda self: 5),
        lambda: setattr(Between, "scale", lambda self: 7),
        lambda: setattr(Between, "sizes", []),
    )
    for change in changes:
        change()
        assert torch.equal(compiled(x), makes(x))
