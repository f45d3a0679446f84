"""Programs about builtin types and functions, collections, itertools and operator."""
# ruff: noqa: B023, B904, E501, UP031  (late binding and %-formatting are what some programs are about)

from __future__ import annotations

import collections
import itertools
import math
import operator
import string
from typing import Any

import torch

from .programs import program, x

COUNT = 0


@program
def walrus_and_stars() -> Any:
    def f(a: Any, *args: Any, k: int = 1, **kw: Any) -> Any:
        if (n := a.shape[0]) > 2:
            a = a * n
        first, *mid, last = [a, 1, 2, 3]
        (p, (q, *r)), s = (1, (2, 3, 4)), 5
        t = [y := 1, y**2, y + 1]
        d = {**{"a": 1}, "b": 2, **kw}
        return first, mid, last, p, q, r, s, t, [*range(3), *"ab"], {*[1, 2], 3}, d, args, k, (*args, n)

    return f, [(x(), 1, 2)]


@program
def nested_comprehensions() -> Any:
    def f(a: Any) -> Any:
        k = 3
        fns = [lambda v, i=i: v * i + k for i in range(3)]
        late = [lambda v: v * i for i in range(3)]
        k = 4
        grid = [[(i, j) for j in range(i)] for i in range(3) if i]
        flat = {f"{i}{j}": a[i] * j for i in range(2) for j in range(2) if i or j}
        gen = sum(fn(a) for fn in fns)
        return gen, [fn(a) for fn in late], grid, flat, {len(r) for r in grid}, any(v > 1 for v in (1, 2))

    return f, [(x(),)]


@program
def generators_with_send_and_throw() -> Any:
    log: list[Any] = []

    def gen(a: Any) -> Any:
        total = 0
        try:
            while True:
                try:
                    got = yield a * total
                    if got is None:
                        return "done"
                    total += got
                except KeyError as e:
                    log.append(repr(e))
                    yield "caught"
        finally:
            log.append("closed")

    def outer(a: Any) -> Any:
        result = yield from gen(a)
        yield result

    def f(a: Any) -> Any:
        g = outer(a)
        out = [next(g), g.send(2), g.throw(KeyError("k")), g.send(3), g.send(None)]
        g.close()
        h = gen(a)
        next(h)
        h.close()
        try:
            next(h)
        except StopIteration as e:
            out.append(e.value)
        i = gen(a)
        next(i)
        try:
            i.throw(ValueError("v"))
        except ValueError as e:
            out.append(str(e))
        return out

    return f, [(x(),)], lambda: log


@program
def operator_functions() -> Any:
    def f(a: Any) -> Any:
        get, attr, call = (
            operator.itemgetter(1, 0),
            operator.attrgetter("shape", "dtype.is_floating_point"),
            operator.methodcaller("add", 2),
        )
        d = {"k": [1, 2]}
        operator.setitem(d, "z", 3)
        operator.delitem(d, "k")
        lst = operator.iadd([1], [2])
        return (
            operator.add(a, 1), get([a, 2]), attr(a), call(a), operator.contains([1], 1), operator.index(3), d, lst,
            operator.concat([1], [2]), operator.countOf([1, 1, 2], 1), operator.indexOf([5, 6], 6), operator.truth([]),
            operator.matmul(a, a), operator.is_(a, a), operator.not_(0), operator.length_hint([1, 2]), operator.xor(5, 1),
        )  # fmt: skip

    return f, [(x(),)]


@program
def deques() -> Any:
    d: Any = collections.deque([1], maxlen=2)

    def f(a: Any) -> Any:
        q: Any = collections.deque(maxlen=3)
        for i in range(5):
            q.append(i)
        q.appendleft(9)
        q.rotate(1)
        d.append(a.shape[0])
        q.extend([7, 8])
        p = q.copy()
        p.remove(7)
        try:
            q.index(100)
        except ValueError:
            p.clear()
        try:
            p.pop()
        except IndexError as e:
            text = str(e)
        return (
            a + q[0],
            list(q),
            q.maxlen,
            q.count(7),
            list(reversed(q)),
            text,
            q == collections.deque(q),
            repr(q),
            8 in q,
        )

    return f, [(x(),), (x(),)], lambda: list(d)


@program
def chain_maps() -> Any:
    def f(a: Any) -> Any:
        m: Any = collections.ChainMap({"a": a}, {"a": 1, "b": 2})
        m["c"] = 3
        child = m.new_child({"b": 5})
        del m["c"]
        return (
            m["a"] * child["b"],
            sorted(m),
            len(child),
            m.maps[1],
            child.parents["b"],
            m.get("zz"),
            "b" in m,
            dict(child)["b"],
        )

    return f, [(x(),)]


@program
def ordered_dicts() -> Any:
    def f(a: Any) -> Any:
        d: Any = collections.OrderedDict(p=1, q=2, r=a)
        d.move_to_end("p")
        d.move_to_end("r", last=False)
        item = d.popitem(last=False)
        e = collections.OrderedDict(reversed(d.items()))
        return item, list(d), e == d, dict(e) == dict(d), list(reversed(d)), repr(e), d | {"z": 1}

    return f, [(x(),)]


@program
def counters() -> Any:
    def f(a: Any) -> Any:
        c = collections.Counter("abca")
        c.update(["b", "z"])
        c.subtract({"z": 3})
        d = collections.Counter(a=1, z=5)
        return (
            a * c["a"], c + d, c - d, c & d, c | d, +c, -c, c["none"], c.most_common(2), sorted(c.elements()), c.total(),
            c == d, c <= d,
        )  # fmt: skip

    return f, [(x(),)]


@program
def default_dicts() -> Any:
    def f(a: Any) -> Any:
        d: Any = collections.defaultdict(list)
        d["p"].append(a)
        d["q"] += [1]
        n: Any = collections.defaultdict(lambda: collections.defaultdict(int))
        n["x"]["y"] += 2
        e = collections.defaultdict.fromkeys("ab", 1)
        return (
            d["p"][0] + len(d),
            d.get("zz"),
            n["x"]["y"],
            e,
            e.default_factory,
            "zz" in d,
            d,
            d.default_factory is list,
        )

    return f, [(x(),)]


@program
def itertools_functions() -> Any:
    def f(a: Any) -> Any:
        it = itertools
        c = it.count(2, 3)
        p, q = it.tee([1, 2, 3])
        groups = [(k, list(g)) for k, g in it.groupby([1, 1, 2, 1], key=lambda v: v % 2)]
        return (
            a * next(c) + next(c), list(it.islice(it.cycle("ab"), 5)), list(it.chain([1], (2,))), list(p), next(q),
            list(it.chain.from_iterable(["ab", "c"])), list(it.compress("abc", [1, 0, 1])), groups,
            list(it.accumulate([1, 2, 3], operator.mul, initial=2)), list(it.combinations("abc", 2)),
            list(it.permutations([1, 2], 2)), list(it.product([1, 2], "ab", repeat=1)), list(it.pairwise([1, 2, 3])),
            list(it.starmap(pow, [(2, 3)])), list(it.takewhile(lambda v: v < 2, [1, 2, 1])), list(it.repeat(1, 2)),
            list(it.dropwhile(lambda v: v < 2, [1, 2, 1])), list(it.filterfalse(None, [0, 1])),
            list(it.zip_longest([1], [1, 2], fillvalue=0)), list(it.combinations_with_replacement("ab", 2)),
            list(it.islice(it.count(1.5, 0.5), 1, 6, 2)), list(it.accumulate([a, a]))[1],
        )  # fmt: skip

    return f, [(x(),)]


@program
def formatted_sizes_and_dtypes() -> Any:
    def f(a: Any) -> Any:
        n = 3.14159
        return (
            a, f"{a.shape}", f"{a.dtype} {a.device!s} {a.size(0):>4}|", "%s-%d-%5.2f" % (a.dtype, a.shape[0], n),
            "{0:,} {x!r:^9} {1[0]}".format(12345, [1], x="s"), f"{n:.2e} {255:#x} {7:08b} {True:d} {n!r:>10}", f"{a.shape[0]=}",
            f"{'a':*<4}{-5:+}{1e10:g}{0.5:%}", string.Template("$a b").substitute(a=1), "abc".center(7, "-"), str(a.shape),
            f"{a.ndim}d", "{:{w}.{p}f}".format(n, w=8, p=3), repr(a.dtype), str(torch.Size([1])), "é".encode(), "%r" % (a.shape,),
        )  # fmt: skip

    return f, [(x(2, 3),)]


@program
def number_methods() -> Any:
    def f(a: Any) -> Any:
        n, v = a.shape[0] * 100, 2.5
        return (
            a * n.bit_length(), n.bit_count(), v.is_integer(), v.as_integer_ratio(), (6).to_bytes(2, "big"), v.hex(),
            int.from_bytes(b"\x01\x02", "little"), float.fromhex("0x1.8p1"), n.as_integer_ratio(), (3 + 4j).conjugate(),
            abs(3 + 4j), round(2.675, 2), round(25, -1), round(v), divmod(-7, 3), -7 // 2, -7 % 3, 7.5 // 2, pow(3, -1, 7),
            int("ff", 16), float("1e3"), int(-2.7), bool(0.0), 1 < 2 < 3, (1).__add__(2), (5).real, 2**-1, hash(2.0) == hash(2),
            float("nan") != float("nan"), math.copysign(1, -0.0), 10**20, bin(5), oct(8), hex(255), int(True), True + True,
        )  # fmt: skip

    return f, [(x(),)]


@program
def bytes_and_strings() -> Any:
    def f(a: Any) -> Any:
        b = bytearray(b"abc")
        b[0] = 65
        b.extend(b"z")
        s = "one,two,,three"
        return (
            a + len(b), bytes(b), b"ab" + b"c", b"abc"[1], list(b"ab"), b"a".hex(), bytes(3), bytes([1, 2]), memoryview(b"ab")[0],
            s.split(","), s.rpartition(","), s.title(), s.find("two"), s.replace(",", ";", 1), s.startswith(("a", "o")),
            "-".join(["a", "b"]), s[::-2], "ab" * 2, "a" in s, "A".lower().isupper(), "x1".isalnum(), "a\tb".expandtabs(4),
            s.removeprefix("one"), "abc".translate({97: "z"}), "ß".casefold(), s.count(","), "1".zfill(3), sorted("hello"),
            "a b".split(), "x\ny".splitlines(), "abc".index("c"), "b" > "a", max("abc"), ord("a"), chr(98), ascii("é"),
        )  # fmt: skip

    return f, [(x(),)]


@program
def slices_as_objects() -> Any:
    def f(a: Any) -> Any:
        s = slice(1, None, 2)
        t = slice(-3, -1)
        lst = list(range(8))
        lst[s] = [0] * 4
        del lst[t]
        lst[1:2] = [7, 7, 7]
        return (
            a[s],
            a[t],
            s.indices(5),
            s.start,
            s.step,
            s == slice(1, None, 2),
            lst,
            "hello"[t],
            (1, 2, 3)[s],
            range(10)[s],
        )

    return f, [(x(6),)]


@program
def sorted_and_zipped() -> Any:
    def f(a: Any) -> Any:
        rows = [("b", 2), ("a", 2), ("c", 1)]
        rows2 = rows.copy()
        rows2.sort(key=lambda r: (r[1], r[0]), reverse=True)
        texts = []
        try:
            list(zip([1], [1, 2], strict=True))
        except ValueError as e:
            texts.append(str(e))
        try:
            sorted([1, "a"])
        except TypeError as e:
            texts.append(str(e))
        try:
            max([])
        except ValueError as e:
            texts.append(str(e))
        return (
            a, sorted(rows, key=lambda r: r[1]), sorted(rows, key=lambda r: r[1], reverse=True), rows2, texts,
            list(enumerate("ab", start=5)), list(zip(*rows)), list(map(lambda p, q: p + q, [1, 2], [3])),
            list(filter(None, [0, 1, "", "a"])), min(3, 1, key=lambda v: -v), max([], default=4), sum([[1], [2]], []),
            all([]), any([]), list(reversed(range(3))), next(iter([]), "d"), list(iter(iter([1, 0, 2]).__next__, 0)),
        )  # fmt: skip

    return f, [(x(),)]


@program
def dict_views_and_merges() -> Any:
    d = {"a": 1, "b": 2}

    def f(a: Any) -> Any:
        e = {"b": 3, "c": a}
        m = d | e
        d.update(z=a.shape[0])
        keys = d.keys() & e.keys()
        k = m.keys()
        m["late"] = 1
        e |= [("q", 5)]
        first = m.pop("a")
        popped = m.popitem()
        return (
            m, keys, d.keys() - e, d.items() ^ {("a", 1)}, len(k), "late" in k, e, first, popped, m.setdefault("n", []),
            d.keys() | {"t"}, list(reversed(d)), dict(zip("ab", [1, 2])), dict.fromkeys("ab"), d == {"b": 2, "a": 1, "z": 4},
            {"a"} <= d.keys(), d.keys().isdisjoint(e), {**d, "a": 9}, list(d.items())[0], d.get("none", a),
        )  # fmt: skip

    return f, [(x(),), (x(),)], lambda: d


@program
def deletions_in_loops() -> Any:
    def f(a: Any) -> Any:
        d = {i: a * i for i in range(4)}
        for k in list(d):
            if k % 2:
                del d[k]
        lst = [1, 2, 3, 4, 5]
        for v in lst:
            if v == 2:
                lst.remove(v)
        text = ""
        try:
            for k in d:
                d[k + 10] = 0
        except RuntimeError as e:
            text = str(e)
        try:
            for s in (live := {1, 2}):
                live.add(s + 7)
        except RuntimeError as e:
            text += str(e)
        for i, _ in enumerate(lst):
            lst[i] *= 2
        else:
            text += "else"
        return d, lst, text

    return f, [(x(),)]


@program
def global_and_nonlocal_writes() -> Any:
    globals()["COUNT"] = 0
    state = {"n": 0}
    shared = 0

    def f(a: Any) -> Any:
        global COUNT
        COUNT += 1
        local = 1

        def inner(v: Any) -> Any:
            nonlocal local, shared
            local += 1
            shared += local
            return v * local

        a = inner(inner(a))
        state["n"] += local
        return a, local, shared

    return f, [(x(),), (x(),), (x(),)], lambda: (COUNT, shared, state)


@program
def recursion_and_defaults() -> Any:
    def fib(n: int, memo: Any = {}) -> Any:  # noqa: B006
        if n not in memo:
            memo[n] = n if n < 2 else fib(n - 1) + fib(n - 2)
        return memo[n]

    def depth(t: Any) -> int:
        return 1 + max((depth(v) for v in t), default=0) if isinstance(t, list) else 0

    def forever(n: int) -> int:
        return forever(n + 1)

    def f(a: Any) -> Any:
        return a * fib(10), depth([1, [2, [3]]])

    return f, [(x(),), (x(),)], lambda: fib.__defaults__[0]
