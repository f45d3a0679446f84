"""User classes in traced code: construction, protocols, attributes, and objects that outlive the call."""
# ruff: noqa: UP008

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar, Generic, TypeVar

import pytest
import torch
from language_support import Table, X, agree

import pyframe

case = Table()
T = TypeVar("T")


class Vector:
    """Every operator, on tensors or numbers."""

    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return Vector(self.v + (o.v if isinstance(o, Vector) else o))

    def __radd__(self, o):
        return Vector(o + self.v)

    def __iadd__(self, o):
        self.v = self.v + o
        return self

    def __sub__(self, o):
        return NotImplemented

    def __rsub__(self, o):
        return Vector(o - self.v)

    def __mul__(self, o):
        if not isinstance(o, (int, float)):
            return NotImplemented
        return Vector(self.v * o)

    def __rmul__(self, o):
        return self * o

    def __matmul__(self, o):
        return (self.v * o.v).sum()

    def __neg__(self):
        return Vector(-self.v)

    def __invert__(self):
        return "inverted"

    def __pos__(self):
        return self

    def __getitem__(self, k):
        return (self.v, k)

    def __contains__(self, item):
        return item == 5

    def __call__(self, *args, **kw):
        return self.v, args, kw

    def __floordiv__(self, o):
        return ("floordiv", o)

    def __rfloordiv__(self, o):
        return ("rfloordiv", o)

    def __and__(self, o):
        return "and"

    def __rlshift__(self, o):
        return "rlshift"


class SubVector(Vector):
    def __radd__(self, o):
        return "sub radd"


@case()
def operators(x):
    a, b = Vector(x), Vector(x + 1)
    c = a
    c += 5
    out = []
    for attempt in (lambda: a - 1, lambda: a * "q", lambda: a - b, lambda: 1 & a, lambda: a | 1, lambda: a < b):
        try:
            out.append(attempt())
        except TypeError as error:
            out.append(str(error))
    return (a + b).v, (a + 1).v, (1 + a).v, c is a, a.v, (5 - a).v, (a * 2).v, (2 * a).v, a @ b, (-a).v, ~a, +a is a, a[1], a[1:2], a[...], 5 in a, 4 in a, a(1, k=2), a // 3, 3 // a, a & 1, 1 << a, a + SubVector(x), out


class Ordered:
    def __init__(self, n):
        self.n = n

    def __eq__(self, o):
        return self.n == o.n if isinstance(o, Ordered) else NotImplemented

    def __lt__(self, o):
        return self.n < o.n if isinstance(o, Ordered) else NotImplemented

    def __hash__(self):
        return hash(("ordered", self.n))


@functools.total_ordering
class Total(Ordered):
    pass


@case()
def ordering(x):
    a, b = Ordered(1), Ordered(2)
    table = {a: x, Ordered(1): x + 1, b: 0}
    return a == Ordered(1), a != b, a < b, b > a, a == 1, a != 1, len(table), table[Ordered(1)], sorted([b, a])[0] is a, a in [b, Ordered(1)], max(a, b) is b, Total(1) <= Total(2), Total(1) >= Total(2), {a, Ordered(1)} == {a}, a in {Ordered(1)}, [a] == [Ordered(1)]


class Access:
    fallback = 1

    def __init__(self):
        self.__dict__["store"] = {}
        self.real = "real"

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name.upper()
        raise AttributeError(f"no {name}")

    def __setattr__(self, name, value):
        if name == "watched":
            self.store[name] = value * 2
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.store["deleted"] = name
        super().__delattr__(name)


@case()
def attribute_hooks(x):
    a = Access()
    a.watched = x
    a.plain = 3
    del a.plain
    out = []
    try:
        a.missing
    except AttributeError as error:
        out.append(str(error))
    return a.store, a.dyn_b, a.real, a.fallback, getattr(a, "zz", "default"), hasattr(a, "dyn_"), hasattr(a, "q"), out, a


class Intercept:
    def __init__(self, v):
        self.v = v

    def __getattribute__(self, name):
        if name == "magic":
            return "magic"
        return object.__getattribute__(self, name)


@case()
def getattribute(x):
    a = Intercept(x)
    return a.v + 1, a.magic


class Typed:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name, "unset")

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 2)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Lazy:
    """A non-data descriptor that replaces itself."""

    def __init__(self, fn):
        self.fn = fn

    def __get__(self, obj, owner=None):
        value = self.fn(obj)
        obj.__dict__["lazy"] = value
        return value


class Described:
    field = Typed()

    @Lazy
    def lazy(self):
        return "computed"

    @property
    def prop(self):
        return self._prop

    @prop.setter
    def prop(self, value):
        self._prop = value + 1

    @prop.deleter
    def prop(self):
        self._prop = None

    @property
    def read_only(self):
        return 1

    @functools.cached_property
    def cached(self):
        self.count = getattr(self, "count", 0) + 1
        return self.count * 10


@case()
def descriptors(x):
    d = Described()
    before = d.field
    d.field = x
    after = d.field
    del d.field
    d.prop = 1
    p = d.prop
    del d.prop
    out = []
    try:
        d.read_only = 5
    except AttributeError as error:
        out.append(str(error))
    return before, after, d.field, p, d._prop, out, d.lazy, d.lazy, d.__dict__.get("lazy"), d.cached, d.cached, d.count, isinstance(Described.field, Typed), isinstance(Described.prop, property)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


@case()
def slots(x):
    s, c = Slotted(x), SlottedChild(1)
    c.c = 5
    out = []
    for attempt in (lambda: s.b, lambda: setattr(s, "zzz", 1), lambda: delattr(s, "b"), lambda: s.__dict__):
        try:
            attempt()
        except AttributeError as error:
            out.append(str(error))
    s.b = 2
    del s.b
    return s.a + 1, c.a, c.c, hasattr(s, "b"), out, s


class Registry(type):
    made: ClassVar[list[str]] = []

    def __new__(mcs, name, bases, ns, **kw):
        cls = super().__new__(mcs, name, bases, ns)
        cls.tag = name.lower()
        return cls

    def __call__(cls, *args, **kw):
        obj = super().__call__(*args, **kw)
        obj.through_meta = True
        return obj

    def __getitem__(cls, key):
        return (cls.tag, key)

    def __len__(cls):
        return 42

    def __iter__(cls):
        return iter([1, 2])

    @property
    def meta_prop(cls):
        return cls.tag * 2

    def meta_method(cls, v):
        return (cls.tag, v)


class Registered(metaclass=Registry):
    def __init__(self, v):
        self.v = v


@case()
def metaclasses(x):
    r = Registered(x)
    return r.v + 1, r.through_meta, r.tag, Registered["k"], len(Registered), list(Registered), Registered.meta_prop, Registered.meta_method(1), type(Registered) is Registry


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self):
        """The area."""

    def describe(self):
        return f"{type(self).__name__}"


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side**2


@case()
def abstract_classes(x):
    out = []
    try:
        Shape()
    except TypeError as error:
        out.append(str(error))
    return Square(x).area(), Square(2).describe(), isinstance(Square(1), Shape), out


class A:
    def who(self):
        return ["A"]


class B(A):
    def who(self):
        return ["B", *super().who()]


class C(A):
    def who(self):
        return ["C", *super().who()]


class D(B, C):
    def who(self):
        return ["D", *super(D, self).who()]

    @classmethod
    def build(cls, v):
        obj = cls()
        obj.v = v
        return obj

    @staticmethod
    def plain(v):
        return v + 1


@case()
def inheritance(x):
    d = D.build(x)
    return d.who(), d.v + 1, D.plain(x), d.plain(1), D.__mro__ == (D, B, C, A, object), D.__bases__, issubclass(D, A), A.who(d), super(B, d).who(), d.__class__ is D, D.who.__name__


class Stack(Generic[T]):
    def __init__(self):
        self.items: list[T] = []

    def push(self, item: T) -> None:
        self.items.append(item)

    def __class_getitem__(cls, params):
        return super().__class_getitem__(params)


class Indexable:
    def __class_getitem__(cls, item):
        return f"{cls.__name__}[{item}]"

    def __init_subclass__(cls, **kw):
        cls.sub = True


class IndexableChild(Indexable):
    pass


@case()
def generics(x):
    s = Stack()
    s.push(x)
    return s.items[0] + 1, Indexable[3], IndexableChild.sub, list[int] == list[int]


class Cursor:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Table2:
    def __init__(self):
        self.d = {}

    def __setitem__(self, k, v):
        self.d[k] = v

    def __delitem__(self, k):
        del self.d[k]

    def __getitem__(self, k):
        return self.d[k]

    def keys(self):
        return self.d.keys()

    def __len__(self):
        return len(self.d)


@case()
def protocols(x):
    t = Table2()
    t["a"], t["b"], t["c"] = x, 1, 2
    del t["b"]
    t["c"] += 5

    def f(**kw):
        return sorted(kw)

    return list(Cursor(3)), [*Cursor(2)], dict(t), f(**t), bool(t), bool(Table2()), t["a"] + 1, max(Cursor(4)), 2 in Cursor(3), {**t}, sum(Cursor(3)), tuple(Cursor(1)), sorted(Cursor(3))


@case(Slotted(X))
def slotted_argument(s):
    s.a = s.a + 1
    s.b = s.a * 2
    return s.b


@case(X, Cursor(3))
def iterator_argument(x, c):
    for n in c:
        x = x + n
        if n == 1:
            break
    return x, c.n


@case(X, Registered(X), Described())
def odd_arguments(x, r, d):
    d.field = x
    d.prop = 4
    return r.v + x, r.tag, d.field, d.prop, d.cached


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


class Coded(Exception):
    def __init__(self, code, note="?"):
        super().__init__(code, note)
        self.code = code


def test_an_exception_made_outside_is_initialized_by_captured_code() -> None:
    """`__init__` captured on its own: the object exists, what it hands to Exception.__init__ must reach it."""

    def raises(x):
        yield 1
        raise Coded(3)

    def program(x):
        return x + sum(raises(x))

    compiled = pyframe.compile(program, backend="eager")
    for _ in range(2):
        with pytest.raises(Coded) as caught:
            compiled(torch.ones(2))
        assert caught.value.args == (3, "?") and caught.value.code == 3
