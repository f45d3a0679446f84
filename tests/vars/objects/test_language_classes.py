"""User classes in traced code: construction, protocols, attributes, and objects that outlive the call."""
# ruff: noqa: UP008

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
import torch
from language_support import Table, X, agree
from transformers.utils import ModelOutput

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


@case(X, Holder(v=3))
def identity_kept(x, h):
    box = {"h": h}
    pair = (h, box["h"])
    return pair[0] is pair[1], pair, box, h


@case(X, Registered(X), Described())
def odd_arguments(x, r, d):
    d.field = x
    d.prop = 4
    return r.v + x, r.tag, d.field, d.prop, d.cached


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
