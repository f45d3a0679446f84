"""Builtins and the methods of built-in types, mixed with tensor operations: one graph, eager's results."""
# ruff: noqa: E711, E721, F601, F632, UP003, UP018, UP030, UP031, UP032

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from language_support import Table, X, agree
from util import check

case = Table()


class Bag:
    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, at):
        return self.items[at]

    def __repr__(self):
        return f"Bag({len(self.items)})"

    def __reversed__(self):
        return reversed(self.items)

    def __length_hint__(self):
        return 3


class OldStyle:
    """Iterated through `__getitem__`."""

    def __getitem__(self, at):
        if at >= 3:
            raise IndexError(at)
        return at * 10


class Number:
    def __init__(self, n):
        self.n = n

    def __int__(self):
        return self.n

    def __float__(self):
        return float(self.n)

    def __complex__(self):
        return complex(self.n)

    def __index__(self):
        return self.n

    def __bool__(self):
        return self.n != 0

    def __abs__(self):
        return Number(abs(self.n))

    def __round__(self, digits=None):
        return (self.n, digits)

    def __divmod__(self, other):
        return (self.n, other)

    def __pow__(self, other, mod=None):
        return (self.n, other, mod)

    def __hash__(self):
        return hash(self.n)

    def __eq__(self, other):
        return isinstance(other, Number) and self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    def __str__(self):
        return f"number {self.n}"

    def __format__(self, spec):
        return f"<{self.n}:{spec}>"

    def __trunc__(self):
        return self.n


@case()
def lists_extended_by_what_looks_at_them(x):
    def falls():
        yield len(c)
        raise ValueError

    a, b, c = [], [7], []
    a.extend(len(a) for _ in range(3))
    b += map(lambda i: i + sum(b), range(3))
    try:
        c.extend(falls())
    except ValueError:
        c.append(-1)
    return x + len(a), a, b, c


@case()
def lengths(x):
    return len(x), len("abc"), len({"a": 1}), len({1, 2}), len(range(0, 10, 3)), len(Bag(1, 2)), len(x.shape), len(b"ab"), len({}.items()), x + 1


@case()
def iterating(x):
    it = iter([1, 2])
    calls = iter([5, 6, 7].pop, 5)
    return x + next(it), next(it), next(it, "end"), list(calls), list(iter(Bag(1, 2))), list(OldStyle()), 20 in OldStyle(), list(iter({"a": 1})), next(iter("xy"))


@case()
def zips(x):
    out = [list(zip([1, 2, 3], "ab")), list(zip()), list(zip([1, 2], [3, 4], strict=True)), dict(zip("ab", x))]
    for parts in (([1], [1, 2]), ([1, 2], [1]), ([], [1]), ([1], [1], [])):
        try:
            out.append(list(zip(*parts, strict=True)))
        except ValueError as error:
            out.append(str(error))
    return out, [a * b for a, b in zip(x, [1, 2])]


@case()
def maps_and_filters(x):
    return (
        list(map(lambda a, b: a * b, [x, x + 1], [1, 2, 3])), list(map(str, [1, 2])), list(filter(None, [0, 1, "", "a"])),
        list(filter(lambda v: v % 2, range(5))), [*enumerate("ab", 1)], list(enumerate([x], start=5)), list(map(int, "12")),
    )


@case()
def ranges(x):
    r = range(10, 0, -3)
    return x + sum(r), list(r), r[1], r[1:], r[::-1], len(r), 7 in r, 8 in r, r.index(4), r.count(1), r == range(10, 0, -3), r.start, r.stop, r.step, list(reversed(r)), range(3) == range(0, 3, 1), bool(range(0)), repr(r), min(r), hash(range(2)) == hash(range(0, 2))


@case()
def reversals(x):
    d = {"a": 1, "b": 2}
    return list(reversed([1, 2])), list(reversed(Bag(x, 1))), list(reversed(d)), list(reversed(d.items())), list(reversed("ab")), list(reversed((1, 2)))


@case()
def sorting(x):
    rows = [("b", 2), ("a", 2), ("c", 1)]
    items = [3, 1, 2]
    items.sort(reverse=True)
    return x * items[0], sorted(rows), sorted(rows, key=lambda r: r[1]), sorted(rows, key=lambda r: r[1], reverse=True), sorted("bca"), sorted({"b": 1, "a": 2}), items, [n.n for n in sorted([Number(2), Number(1)])], sorted([2, 1], key=None), sorted([[2], [1, 5]]), sorted({3, 1})


@case()
def extremes(x):
    rows = ["aaa", "b", "cc"]
    out = []
    for attempt in (lambda: min([]), lambda: max((), key=len), lambda: max(1, "a")):
        try:
            attempt()
        except (ValueError, TypeError) as error:
            out.append(str(error))
    return x * max(1, 2), min(rows, key=len), max(rows, key=len), max([], default=None), min([3, 1]), max(1, 2, 3), min("b", "a", key=ord), max({"a": 1, "b": 0}), min(Number(2), Number(1)).n, out


@case()
def sums(x):
    out = []
    try:
        sum(["a"], "b")
    except TypeError as error:
        out.append(str(error))
    return sum([x, x]), sum([1, 2], 10), sum([[1], [2]], []), sum(range(4), start=1), sum([0.1] * 3), sum([1e16, 1.0, -1e16]), sum([1, 1e16, True, 0.25, -1e16, x[0]]), sum([2**63, 0.1, 0.2, 0.3]), sum([0.1j] * 3), sum((True, True)), out


@case()
def any_all(x):
    seen = []

    def note(v):
        seen.append(v)
        return v

    return any(note(v) for v in (0, 1, 2)), all(note(v) for v in (1, 0, 2)), any([]), all([]), seen, x + 1, any(Bag(0)), all([Number(1), Number(0)])


class Base:
    kind = "base"


class Derived(Base):
    pass


class Meta(type):
    def __instancecheck__(cls, instance):
        return instance == 5

    def __subclasscheck__(cls, sub):
        return sub is int


class Odd(metaclass=Meta):
    pass


@case()
def instance_checks(x):
    d = Derived()
    return (
        isinstance(d, Base), isinstance(x, torch.Tensor), isinstance(x, (int, str)), isinstance(3, int | None), isinstance(None, type(None)),
        isinstance([], list), isinstance(True, int), issubclass(Derived, Base), issubclass(bool, (int, str)), isinstance(Base, type),
        isinstance(5, Odd), isinstance(6, Odd), issubclass(int, Odd), isinstance(lambda: 1, type(len)), isinstance(d, (str, (int, Base))), x + 1,
    )


@case()
def attributes(x):
    d = Derived()
    setattr(d, "value", x)
    d.other = 1
    had = hasattr(d, "other"), hasattr(d, "missing"), hasattr(x, "shape"), hasattr([], "append"), hasattr(d, "kind")
    delattr(d, "other")
    out = []
    try:
        getattr(d, "other")
    except AttributeError as error:
        out.append(str(error))
    return getattr(d, "value") + 1, getattr(d, "none", 5), getattr(d, "kind"), had, out, getattr(x, "nope", None), getattr("a", "upper")(), vars(d), d.__dict__ == {"value": 1}, d.__class__.__name__


@case()
def types(x):
    return type(x) is torch.Tensor, type(1), type("a"), type([]) == list, type(None), type(Derived()).__name__, type(Base), type(type), type(1) in (int, float), type(x).__name__, type(lambda: 1).__name__, type(len).__name__, type(Derived()) is Derived, type((1,))((3, 4)), x + 1


@case()
def texts(x):
    b = Bag(1)
    return (
        str(1), str("a"), str(None), str(1.5), str([1, "a", None]), str((1,)), str({"a": [1]}), str({1}), str(b), repr("a'b"), repr(b), repr([b]), str(Number(3)), repr(Base), str(type(1)),
        format(3.14159, ".2f"), format("a", ">3"), format(Number(2), "x"), f"{Number(2):>3} {b} {Number(1)!s}", ascii("é"), str(b"a"), repr(range(3)), repr(slice(1, None)), str(frozenset()), str(ValueError("m")), repr(ValueError("m", 1)),
        "%s %r" % (b, "q"), "{0} {0!r} {1:>4}".format("a", 2), str(x.shape), str(x.dtype), str(True), x + 1, repr({"a": (1, 2.0)}), str(...), repr(print), str(set()), str(()), repr({}.keys()), repr(dict(a=1).items()), str(b"x", "utf8"),
    )


@case()
def conversions(x):
    return (
        int("12"), int("ff", 16), int(3.9), int(True), int(), float("1.5"), float(2), float("nan"), float("-inf"), complex(1, 2), complex("1+2j"), bool([]), bool("a"), bool(), int(Number(4)), float(Number(4)), complex(Number(1)), bool(Number(0)), int("0b101", 0), int(b"7"),
        x * int(2.0), str(1) + str(2.0), list("ab"), tuple([1, 2]), set("a"), dict(a=1), dict([("k", x)]), dict({"a": 1}, b=2), frozenset([1]), bytes([1, 2]), list({"a": 1}.items()), dict(zip("ab", [1, 2])), float(), list(), tuple(), list(x.shape), tuple(range(3)), bytes(3), bytes("a", "utf8"),
    )


@case()
def numbers(x):
    return (
        round(2.567, 1), round(2.5), round(7), round(Number(3)), round(Number(3), 2), divmod(7, 3), divmod(-7, 2.0), divmod(Number(1), 2), pow(2, 3), pow(2, 10, 7), pow(Number(2), 3), pow(2, -1), abs(-3), abs(-2.5), abs(Number(-2)).n, abs(x - 3), ord("a"), chr(97), bin(5), hex(255), oct(8),
        hash("a") == hash("a"), hash(1), hash((1, 2)) == hash((1, 2)), hash(Number(7)), (7).bit_length(), (2.5).is_integer(), (1.5).as_integer_ratio(), (255).to_bytes(2, "big"), int.from_bytes(b"\x01\x00", "big"), float.fromhex("0x1p3"), (3).real, (1 + 2j).conjugate(), (5).__add__(6), pow(x, 2), (1.5).hex(),
        7 // 2, -7 // 2, 7 % -3, 2**10, 1 << 4, 255 >> 2, 6 & 3, 6 | 3, 6 ^ 3, ~5, -(-3), +3, 1 / 4, 3 // 2.0, True + True, 10**20, 3 == 3.0, bin(Number(5)), [1, 2, 3][Number(2)], range(Number(2)),
    )


@case()
def callables(x):
    return callable(len), callable(Base), callable(lambda: 1), callable(3), callable(x), callable(Number(1)), callable(x.sum), callable("a".upper), x + 1


@case()
def slices_as_objects(x):
    s = slice(1, None, 2)
    return x[:, s], s.start, s.stop, s.step, s.indices(5), [1, 2, 3, 4][s], s == slice(1, None, 2), x[slice(0, 1)], "abcd"[slice(2)]


@case()
def identities(x):
    a, b = [x], [x]
    d = Derived()
    same = d
    return a is a, a is b, a == b or True, same is d, Derived() is d, id(d) == id(same), id(a) == id(b), x is a[0], None is None, x is not None, type(d) is Derived, [] is [], a[0] is b[0], d != Derived(), d == same


@case()
def comparisons(x):
    return (
        [1, 2] < [1, 3], (1, 2) == (1, 2.0), [1] == (1,), {"a": 1} == {"a": 1.0}, {1, 2} >= {1}, {1} < {1, 2}, "a" < "b", 1 == "1", None == None, [1, 2] != [1], (1,) <= (1, 0), Number(1) == Number(1), Number(1) != Number(2), Number(1) > Number(0), Number(1) in [Number(1)], 1 < 2.5,
        {"a": [1]} != {"a": [2]}, b"a" == b"a", [None] == [None], {1: 2}.keys() == {1}, {1: 2}.items() == {(1, 2)}, float("nan") in [float("nan")], {}.keys() <= {1}, x + 1, frozenset([1]) == {1}, range(3) == [0, 1, 2],
    )


@case()
def list_methods(x):
    a = [3, 1, 2]
    a.append(x)
    a.extend((4, 5))
    a.insert(0, "first")
    popped = a.pop(), a.pop(0), a.pop(-1)
    a.remove(1)
    b = a.copy()
    b.reverse()
    c = [1, 2, 1]
    c.sort(key=lambda v: -v)
    a.clear()
    c2 = c * 2 + [9]
    c[0:0] = [7, 7]
    c.insert(100, "end")
    c.insert(-1, "near")
    d = 2 * [0]
    d.__setitem__(0, 5)
    return popped, b, c, c.index(1), c.index(7, 1), c.count(1), a, c2, [1, 2].__contains__(1), d, [1, 2].__len__(), [3].__getitem__(0), [[1]] + [[2]], [0] * 0, list.append(d, 6), d


@case()
def dict_methods(x):
    d = {"a": 1, "b": x}
    e = dict.fromkeys("ab", 0)
    d.setdefault("c", []).append(1)
    d.update({"z": 1}, y=2)
    d.update([("w", 3)])
    popped = d.pop("z"), d.pop("nope", None), d.popitem()
    merged = {"a": 1} | {"a": 2, "b": 3}
    f = d.copy()
    f.clear()
    out = []
    for attempt in (lambda: d["nope"], lambda: d.pop("nope"), lambda: {}.popitem(), lambda: d.__delitem__("nope")):
        try:
            attempt()
        except KeyError as error:
            out.append(error.args)
    g = {1: "a", 1.0: "b", True: "c", None: 0, (1, 2): x, "s": 1, frozenset([1]): 2, int: 3}
    keys = list(d.keys()), list(d.values()), list(d.items()), "a" in d.keys(), ("a", 1) in d.items(), 1 in d.values()
    return d, e, popped, merged, f, out, g, keys, d.get("a"), d.get("q"), d.get("q", 5), len(d.items()), {**d}, e.keys() | {"q"} == {"a", "b", "q"}, sorted(e.keys() & {"a"}), sorted(e.keys() - {"a"}), next(iter(d)), dict(d) == d, list(dict.fromkeys([3, 1, 3])), {}.fromkeys([1])


@case()
def set_methods(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(9)
    s.discard(1)
    s.remove(2)
    t = s | {10}
    t &= {3, 4, 10}
    t ^= {3}
    u = set()
    u.update([1, 2], (3,))
    u.difference_update([1])
    u.intersection_update({2, 3})
    u.symmetric_difference_update({3, 5})
    out = []
    try:
        s.remove(99)
    except KeyError as error:
        out.append(error.args)
    only = {7}
    got = only.pop()
    return x + len(s), s, t, u, s.union([1], [2]), s.intersection([3]), s - {3}, s.issubset({3, 4, 5}), s.issuperset({3}), s.isdisjoint({9}), s.copy(), out, sorted(s ^ {3}), frozenset([1]) | {2}, {1}.__contains__(1), got, only, {(1, 2), (1, 2)}, len({1, 1.0, True}), s <= {3, 4}, {1} == frozenset([1]), sorted({"b", "a"}), list({3: 1}.keys() | {3})


@case()
def tuple_methods(x):
    t = (1, x, 1, "a")
    return t.count("a"), t.index("a"), t[1], t[-1], t[1:3], t + (2,), t * 2, 3 * (0,), (1, 2) < (1, 3), 1 in (1, 2), (1, 2).__add__((3,)), len(t), hash((1, "a")) == hash((1, "a")), tuple(v for v in t if v is not x), (), (t,)[0] is t, tuple(t) is t


@case()
def string_methods(x):
    s = "Hello, World"
    return (
        s.lower(), s.upper(), s.split(", "), s.replace("l", "L", 1), s.find("o"), s.rfind("o"), s.startswith(("He", "x")), s.endswith("d"), s.strip("Hd"), s.partition(","), s.rpartition("o"), s.join(["a", "b"]), ",".join(str(i) for i in range(3)), s.center(20, "*"), s.zfill(15), s.count("l"), s.isalpha(),
        s.swapcase(), s.title(), s.encode(), s.encode("ascii").decode(), s.splitlines(), s.expandtabs(), s.translate(str.maketrans("l", "1")), s.casefold(), s.removeprefix("Hello"), s.removesuffix("World"), s.index("W"), s[0], s[::-1], "a" in s, s * 2, s + "!", sorted(s)[:2], s.isdigit(), "12".isnumeric(), "a,b".rsplit(",", 1),
        "{}-{:>3}-{x[0]}-{x!r}".format(1, 2, x=[3]), "%(a)s %(b)03d" % {"a": 1, "b": 2}, "{:{w}}".format("a", w=4), "{a.real}".format(a=1), "{0[k]}".format({"k": "v"}), list("ab"), "b" > "a", "x".ljust(3), len(s), s.format_map({}), str.upper("a"), " a ".strip(), "a b".split(), "ß".upper(), x + len(s), *"ab", "".join(reversed("abc")), "a" "b", "tab".__contains__("a"), str.join("-", ["a", "b"]), "A".isupper(), "id".isidentifier(),
    )


@case()
def bytes_methods(x):
    b = b"hello"
    return b.upper(), b.split(b"l"), b.decode(), b[0], b[1:3], b + b"!", b.hex(), bytes.fromhex("ff"), b.replace(b"l", b"L"), b.find(b"l"), b"-".join([b"a", b"b"]), list(b)[:2], 104 in b, b.startswith(b"he"), len(b), b * 2, b == b"hello", x + len(b)


@case()
def dir_and_vars(x):
    d = Derived()
    d.a = x
    return sorted(vars(d)), "kind" in dir(d), "a" in dir(d), "shape" in dir(x), vars(Base)["kind"], d.__dict__["a"] + 1


@case(X, [1, 2, 3], {"a": 1}, {1, 2})
def mutated_arguments(x, items, table, group):
    items += [x + 1]
    items[0], items[1] = items[1], items[0]
    items *= 2
    del items[2]
    items.sort(key=lambda v: v if isinstance(v, int) else 9)
    table["b"] = x
    table |= {"c": 3}
    table.pop("a")
    table.setdefault("d", []).append(x * 2)
    group.add(3)
    group -= {1}
    return items, items[-1] is x


@case(X, [[1], [2]])
def nested_arguments(x, rows):
    rows[0].append(x)
    rows.append(rows[0])
    rows[1] = rows[1] + [5]
    return rows[0] is rows[2], rows


@case(X, [1, 2])
def swapped_and_returned(x, items):
    other = items
    items = [*items, x]
    other.append(9)
    return other, items


@case(X, ({"k": [1]}, [5]))
def inside_tuple(x, pair):
    table, items = pair
    table["k"] += [x]
    items.extend(table["k"])
    return pair


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.defaultdict])
def test_fromkeys_of_each_kind_of_dict(cls):
    def fn(x):
        filled = cls.fromkeys(["a", "b"], 1)
        return x + filled["a"], filled, type(filled) is cls, getattr(filled, "default_factory", None)

    check(fn, torch.ones(2), breaks=0)
