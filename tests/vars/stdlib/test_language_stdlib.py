"""The standard library inside traced code: one graph, eager's results."""
# ruff: noqa: UP033, UP045

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import inspect
import itertools
import math
import operator
import string
import types
import typing
from typing import Any

import pytest
import torch
from language_support import Table, agree

case = Table()


class Box:
    def __init__(self, v, w=0):
        self.v, self.w = v, w

    def scaled(self, by, plus=0):
        return self.v * by + plus

    halved = functools.partialmethod(scaled, 0.5)
    plussed = functools.partialmethod(scaled, plus=7)

    @functools.cached_property
    def expensive(self):
        self.w += 1
        return self.v + self.w

    @functools.singledispatchmethod
    def show(self, arg):
        return "any"

    @show.register
    def _(self, arg: int):
        return "int"


def plain(a, b=2, *args, c=3, **kw):
    return a, b, args, c, kw


@case()
def partials(x):
    p = functools.partial(plain, 1, c=x)
    q = functools.partial(p, 5, z=1)
    return p(), q(6), q.func is plain, q.args, sorted(q.keywords), Box(x).halved(), Box(x).plussed(2), functools.partial(torch.add, x)(1), functools.partial(max, key=len)(["a", "bb"])


@case()
def reductions(x):
    out = []
    try:
        functools.reduce(operator.add, [])
    except TypeError as error:
        out.append(str(error))
    return functools.reduce(operator.add, [x, x, 1]), functools.reduce(lambda a, b: a * b, [1, 2, 3], x), functools.reduce(max, [], 5), out


@functools.wraps(plain)
def wrapped(*args, **kw):
    return plain(*args, **kw)


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.cache
def cached_config(name):
    return {"a": 1, "b": 2}[name]


@functools.singledispatch
def dispatch(arg):
    return "default"


@dispatch.register
def _(arg: int):
    return f"int {arg}"


@dispatch.register(list)
def _(arg):
    return [dispatch(a) for a in arg]


@case()
def functools_rest(x):
    @functools.wraps(plain)
    def inner(*args, **kw):
        return plain(*args, **kw)

    b = Box(x)
    by_cmp = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, c: c - a))
    return wrapped(x), wrapped.__name__, wrapped.__wrapped__ is plain, inner(1)[0], inner.__name__, x * fib(6), cached_config("b"), b.expensive, b.expensive, b.w, by_cmp


@case()
def itertools_infinite(x):
    c = itertools.count(3, 2)
    cyc = itertools.cycle("ab")
    r = itertools.repeat(x)
    return next(c), next(c), [next(cyc) for _ in range(5)], next(r) + 1, list(zip(itertools.count(), "ab")), list(itertools.repeat(1, 2)), list(map(pow, [2, 3], itertools.repeat(2)))


@case()
def itertools_finite(x):
    rows = [("a", 1), ("a", 2), ("b", 3)]
    return (
        list(itertools.chain([1], (2,), "c")), list(itertools.chain.from_iterable([[1], [x]])), list(itertools.product([1, 2], "ab")), list(itertools.product([0, 1], repeat=2)), list(itertools.permutations([1, 2, 3], 2)), list(itertools.combinations("abc", 2)),
        list(itertools.combinations_with_replacement([1, 2], 2)), list(itertools.accumulate([1, 2, 3])), list(itertools.accumulate([1, 2, 3], operator.mul)), list(itertools.accumulate([1, 2], initial=x)), [(k, list(g)) for k, g in itertools.groupby(rows, key=lambda r: r[0])], list(itertools.groupby([])),
        list(itertools.islice(range(10), 2, 8, 3)), list(itertools.islice("abc", 2)), list(itertools.pairwise([1, 2, 3])), list(itertools.zip_longest([1, 2], "a", fillvalue="-")), list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])), list(itertools.dropwhile(lambda v: v < 3, [1, 3, 1])), list(itertools.filterfalse(lambda v: v % 2, range(4))),
        list(itertools.starmap(lambda a, b: a * b, [(x, 2), (3, 4)])), list(itertools.compress("abcd", [1, 0, 1, 0])), [list(t) for t in itertools.tee([1, 2])], len(list(itertools.permutations(range(4)))),
    )


@case()
def itertools_lazy(x):
    seen = []

    def note(v):
        seen.append(v)
        return v

    source = (note(v) for v in itertools.count())
    first = list(itertools.islice(source, 3))
    p = itertools.pairwise(note(v) for v in [10, 11, 12])
    q = next(p)
    a, b = itertools.tee(note(v) for v in [20, 21])
    z = next(a), next(b), next(a)
    acc = itertools.accumulate(note(v) for v in [30, 31])
    w = next(acc)
    zl = itertools.zip_longest((note(v) for v in [40, 41]), [1])
    return x + len(seen), first, q, z, w, next(zl), seen


@case()
def operators(x):
    b = Box(x, 3)
    d = {"a": 1, "b": 2}
    items = [1, 2, 3]
    alias = items
    items = operator.iadd(items, [4])
    operator.setitem(d, "c", 5)
    operator.delitem(d, "a")
    return (
        operator.add(x, 1), operator.mul(2, 3), operator.itemgetter(1)([x, 2]), operator.itemgetter(0, 2)("abc"), operator.attrgetter("w")(b), operator.attrgetter("v", "w")(b), operator.attrgetter("v.shape")(b), operator.methodcaller("scaled", 2, plus=1)(b), operator.lt(1, 2), operator.eq("a", "a"), operator.ne(1, 2),
        operator.not_(0), operator.truth([]), operator.is_(None, None), operator.is_not(x, None), operator.contains([1], 1), operator.getitem(items, 0), operator.neg(3), operator.pos(3), operator.invert(0), operator.inv(1), operator.abs(-1), operator.index(5), operator.concat([1], [2]), operator.countOf([1, 1, 2], 1), operator.indexOf([1, 2], 2),
        operator.floordiv(7, 2), operator.mod(7, 4), operator.pow(2, 3), operator.lshift(1, 3), operator.and_(6, 3), operator.or_(6, 3), operator.xor(6, 3), operator.truediv(1, 2), operator.matmul(x, x.T), operator.sub(x, x), items is alias, d, operator.length_hint([1, 2]), operator.le(1, 1), operator.ge(2, 1), operator.gt(1, 0), operator.ior({1}, {2}), operator.call(len, [1]) if hasattr(operator, "call") else 1,
    )


@case()
def ordered_dicts(x):
    o = collections.OrderedDict([("a", x), ("b", 1)])
    o["c"] = 2
    o.move_to_end("a")
    o.move_to_end("c", last=False)
    first = o.popitem(last=False)
    p = o.copy()
    return o, first, list(o), p == o, o == {"a": 1} if False else len(o), list(reversed(o)), collections.OrderedDict(a=1) == collections.OrderedDict(a=1), collections.OrderedDict([("a", 1), ("b", 2)]) == collections.OrderedDict([("b", 2), ("a", 1)]), collections.OrderedDict(a=1) | {"b": 2}, repr(collections.OrderedDict(a=1))


@case()
def default_dicts(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(1)
    n = collections.defaultdict(int, z=5)
    n["q"] += 1
    n["z"] += 1
    lam = collections.defaultdict(lambda: "made")
    nested = collections.defaultdict(lambda: collections.defaultdict(int))
    nested["a"]["b"] += 3
    out = []
    try:
        collections.defaultdict()["k"]
    except KeyError as error:
        out.append(error.args)
    return d, n, lam["k"], lam.get("none"), dict(n), "zz" in n, nested["a"]["b"], out, d.default_factory, n.copy(), list(d.items())


@case()
def deques(x):
    q = collections.deque([1, 2, 3], maxlen=4)
    q.append(x)
    q.appendleft(0)
    q.extend([7, 8])
    q.extendleft([9])
    q.rotate(1)
    left = q.popleft()
    right = q.pop()
    r = collections.deque(range(5))
    r.rotate(-2)
    r.remove(0)
    r.insert(1, "i")
    del r[0]
    r[0] = "set"
    r.reverse()
    out = []
    for attempt in (lambda: collections.deque().popleft(), lambda: collections.deque().pop(), lambda: r.remove(99), lambda: r[99], lambda: q.insert(0, 1) or q.insert(0, 1) or q.insert(0, 1)):
        try:
            attempt()
        except (IndexError, ValueError) as error:
            out.append(str(error))
    return list(q), left, right, r, len(r), r.index("set"), r.count(3), out, q.maxlen, 3 in r, list(reversed(r)), r.copy(), r == r.copy(), collections.deque([1]) + collections.deque([2]), repr(collections.deque([1], 3)), collections.deque("ab") * 2


@case()
def counters(x):
    c = collections.Counter("abracadabra")
    c.update("aa")
    c["z"] += 2
    d = collections.Counter(a=1, b=3)
    return x * c["a"], c["missing"], c.most_common(2), sorted((c + d).items()), sorted((c - d).items()), sorted(d.elements()), sorted((c & d).items()), sorted((c | d).items()), dict(d), sum(d.values()), d.total(), d == collections.Counter(b=3, a=1), sorted(+d)


@case()
def chain_maps_and_user_types(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": x})
    m["c"] = 3
    child = m.new_child({"d": 4})
    u = collections.UserDict(a=1)
    u["b"] = x
    ul = collections.UserList([1, 2])
    ul.append(3)
    return m["a"], m["b"], sorted(m), m.maps[0], child["d"], child["a"], u["b"], len(u), "a" in u, dict(u), ul.data, ul[1], list(ul), m.get("zz", 5)


@case()
def copies(x):
    b = Box([1, x], {"k": 2})
    s = copy.copy(b)
    d = copy.deepcopy(Box([1, [2]], {"k": (1, 2)}))
    items = [1, [2, 3]]
    c, e = copy.copy(items), copy.deepcopy(items)
    items[1].append(4)
    shared = [[]] * 2
    twin = copy.deepcopy(shared)
    return s.v is b.v, s is b, s.w, d.v, d.w, c, e, copy.copy({"a": 1}), copy.deepcopy((1, [2])), twin[0] is twin[1], copy.copy((1,)), copy.copy("s"), copy.deepcopy({1: [x.shape[0]]}), copy.copy({1, 2}), s.v[1] + 1


@case()
def maths(x):
    return x * math.pi, math.sqrt(16), math.floor(2.7), math.ceil(2.1), math.log(8, 2), math.log2(8), math.exp(0), math.sin(0.0), math.gcd(12, 18), math.prod([2, 3]), math.isclose(0.1 + 0.2, 0.3), math.inf, math.isnan(math.nan), math.trunc(2.7), math.fsum([0.1] * 10), math.comb(5, 2), math.factorial(5), math.hypot(3, 4), math.copysign(1, -2), math.isfinite(1.0), math.pow(2, 3), math.fabs(-1), math.modf(2.5), math.frexp(8), math.dist([0, 0], [3, 4]), math.lcm(4, 6), math.isqrt(17), math.degrees(math.pi)


@case()
def math_errors(x):
    out = []
    for attempt in (lambda: math.sqrt(-1), lambda: math.log(0), lambda: math.factorial(-1), lambda: math.floor("a")):
        try:
            attempt()
        except (ValueError, TypeError) as error:
            out.append(f"{type(error).__name__} {error}")
    return x + 1, out


@case()
def simple_namespaces(x):
    n = types.SimpleNamespace(a=x, b=1)
    n.c = n.a * 2
    del n.b
    return n, n.c, hasattr(n, "b"), vars(n)["a"] + 1, sorted(n.__dict__), n == types.SimpleNamespace(a=n.a, c=n.c) if False else 1


@case()
def method_types(x):
    b = Box(x)
    m = types.MethodType(lambda self, k: self.v * k, b)
    bound = b.scaled
    return m(3), bound(2), bound.__self__ is b, bound.__func__ is Box.scaled, bound.__name__, Box.scaled(b, 4), bound == b.scaled


@case()
def signatures(x):
    sig = inspect.signature(plain)
    return x + len(sig.parameters), list(sig.parameters), sig.parameters["b"].default, sig.parameters["args"].kind is inspect.Parameter.VAR_POSITIONAL, "c" in sig.parameters, inspect.isfunction(plain), inspect.isclass(Box), inspect.ismethod(Box(1).scaled), list(inspect.signature(Box(1).scaled).parameters)


@case()
def typings(x):
    y = typing.cast(torch.Tensor, x)
    u: typing.Optional[int] = 3
    return y + u, typing.TYPE_CHECKING, isinstance(y, typing.Hashable), typing.get_origin(list[int]) is list


@case()
def heaps_and_bisection(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    items = [1, 3, 5]
    bisect.insort(items, 4)
    return x * heapq.heappop(h), sorted(h), bisect.bisect_left(items, 3), items, heapq.nlargest(2, [1, 5, 3]), heapq.nsmallest(1, [3, 2])


@case()
def strings_module(x):
    return x + 1, string.ascii_lowercase[:3], string.capwords("a b")


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)
