"""Programs about modules of the standard library, sets, errors and identities."""
# ruff: noqa: B023, B904, E501, UP031  (late binding and %-formatting are what some programs are about)

from __future__ import annotations

import bisect
import cmath
import heapq
import io
import json
import math
import pickle
import random
import re
import textwrap
import time
from typing import Any

import torch

from .programs import program, x


@program
def pickled_and_json() -> Any:
    def f(a: Any) -> Any:
        data = {"a": [1, 2.5, None, True], "b": "s"}
        text = json.dumps(data, sort_keys=True, indent=1)
        back = json.loads(text)
        return a + back["a"][0], text, back == data, pickle.loads(pickle.dumps(data)) == data

    return f, [(x(),)]


@program
def regular_expressions() -> Any:
    pattern = re.compile(r"(?P<name>\w+)\.(\d+)")

    def f(a: Any) -> Any:
        m = pattern.match("layer.12.weight")
        k = int(m.group(2))
        return (
            a * k, m["name"], m.groups(), m.span(2), pattern.search("zz") is None, re.sub(r"\d", lambda m: str(int(m[0]) + 1), "a1b2"),
            re.findall("[a-z]", "a1b"), re.split(r"[,;]", "a,b;c"), [m.start() for m in re.finditer("a", "aba")],
            re.fullmatch("a+", "aaa") is not None, m.groupdict(), re.escape("a.b"),
        )  # fmt: skip

    return f, [(x(),)]


@program
def math_in_many_ways() -> Any:
    def f(a: Any) -> Any:
        n = a.shape[0]
        texts = []
        for fn in (
            lambda: math.sqrt(-1),
            lambda: math.log(0),
            lambda: 1 / 0,
            lambda: math.exp(1e5),
            lambda: 0**-1,
            lambda: int("z"),
        ):
            try:
                fn()
            except (ValueError, ArithmeticError) as e:
                texts.append((type(e).__name__, str(e)))
        return (
            a * math.sqrt(n), math.ceil(n / 3), math.gcd(12, n), math.isclose(0.1 + 0.2, 0.3), math.prod([1, 2, n]), math.floor(-1.5),
            math.fsum([0.1] * 10), math.comb(5, n), math.isqrt(n * 5), math.hypot(3, 4), math.log2(n), math.lcm(n, 6), math.trunc(2.7),
            cmath.sqrt(-1), cmath.phase(1j), cmath.exp(1j), math.frexp(n), math.modf(2.5), math.inf, math.dist([0], [1]), texts,
        )  # fmt: skip

    return f, [(x(),)]


@program
def random_numbers() -> Any:
    def f(a: Any) -> Any:
        random.seed(3)
        k = random.randint(1, 5)
        r = random.Random(5)
        return (
            a * k + random.random(),
            r.choice([1, 2, 3]),
            r.sample(range(9), 3),
            random.uniform(0, 1),
            r.getrandbits(4),
        )

    return f, [(x(),), (x(),)], lambda: random.getstate()[1][:3]


@program
def times() -> Any:
    def f(a: Any) -> Any:
        start = time.perf_counter()
        a = a * 2
        took = time.perf_counter() - start
        return a, took >= 0, time.time() > 1e9, isinstance(time.monotonic(), float)

    return f, [(x(),)]


@program
def heaps_and_bisection() -> Any:
    def f(a: Any) -> Any:
        h = [5, 1, 4]
        heapq.heapify(h)
        heapq.heappush(h, 0)
        first = heapq.heappop(h)
        s = [1, 3, 5]
        bisect.insort(s, 4)
        return (
            a * first + bisect.bisect_left(s, 3),
            h,
            s,
            heapq.nlargest(2, [1, 3, 2]),
            heapq.heapreplace(h, 9),
            bisect.bisect(s, 9),
            list(heapq.merge([1, 4], [2])),
        )

    return f, [(x(),)]


@program
def text_buffers() -> Any:
    def f(a: Any) -> Any:
        out = io.StringIO()
        out.write(f"rows {a.shape[0]}")
        print("more", 1, sep="-", end="!", file=out)
        return a + 1, out.getvalue(), textwrap.dedent("  a\n  b")

    return f, [(x(),)]


@program
def sets_in_many_ways() -> Any:
    fns = frozenset([torch.sin, torch.cos])

    def f(a: Any) -> Any:
        s = {1, 2, 3}
        t = s & {2, 3, 4}
        s -= {1}
        s ^= {9}
        one = {7}
        try:
            s.remove(100)
        except KeyError as e:
            text = str(e)
        big = set(range(40))
        big.intersection_update({1, 8, 33})
        big.add(16)
        return (
            a, t, s, one.pop(), text, s | t, frozenset(s) == s, s >= t, torch.sin in fns, torch.tan in fns, sorted(big),
            {frozenset([1]): 2}[frozenset([1])], len(set("hello")), s.issubset(range(99)), set(), {(1, 2)} - {(1, 2)},
        )  # fmt: skip

    return f, [(x(),)]


@program
def set_order_after_removals() -> Any:
    def f(a: Any) -> Any:
        s = set(range(100))
        for i in range(2, 100):
            s.discard(i)
        s.discard(0)
        s.add(8)
        t = {8, 0, 16}
        t.remove(8)
        t.add(8)
        return a, list(s), list(t), list({16, 8, 0}), list(set([0, 16, 8]) | {24})

    return f, [(x(),)]


@program
def set_pop_until_empty() -> Any:
    def f(a: Any) -> Any:
        s = {3, 1, 2}
        total = 0
        while s:
            total = total * 10 + s.pop()
        return a * total, total

    return f, [(x(),)]


@program
def exceptions_in_depth() -> Any:
    class Own(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")
            self.code = code

    def risky(k: int) -> int:
        try:
            if k == 0:
                raise Own(5)
            if k == 1:
                return {}["missing"]
            return k
        except KeyError as e:
            raise ValueError("from key") from e
        finally:
            log.append(k)

    log: list[int] = []

    def f(a: Any) -> Any:
        out = []
        for k in range(3):
            try:
                out.append(risky(k))
            except Own as e:
                out.append((e.code, str(e), e.args))
            except (ValueError, TypeError) as e:
                out.append((str(e), type(e.__cause__).__name__, e.__suppress_context__))
                e.add_note("noted")
                out.append(e.__notes__)
            else:
                out.append("else")
        try:
            try:
                raise Own(1)
            except Own:
                raise RuntimeError("second")
        except RuntimeError as e:
            out.append(repr(e.__context__))
        try:
            assert a.shape[0] == 3, "wrong size"
        except AssertionError as e:
            out.append(str(e))
        return a, out

    return f, [(x(),)], lambda: log


@program
def lambda_default_and_star_calls() -> Any:
    def g(p: Any, /, q: Any, *r: Any, s: Any = 1, **t: Any) -> Any:
        return p, q, r, s, t

    def f(a: Any) -> Any:
        texts = []
        for call in (lambda: g(1), lambda: g(p=1, q=2), lambda: g(1, 2, q=3), lambda: (lambda v: v)(), lambda: g(*3)):
            try:
                call()
            except TypeError as e:
                texts.append(str(e))
        return g(a, 2, *[3], s=4, **{"u": 5}), g(*(a, 1)), texts

    return f, [(x(),)]


@program
def ids_and_identity() -> Any:
    kept = [1]

    def f(a: Any) -> Any:
        b = [1]
        c = b
        return a + 1, id(b) == id(c), id(b) == id(kept), kept is b, id(kept) == id(kept), id(a) == id(a + 1)

    return f, [(x(),)]


@program
def lists_in_many_ways() -> Any:
    kept = [3, 1, 2]

    def f(a: Any) -> Any:
        v = kept[:]
        kept.insert(0, a.shape[0])
        kept.reverse()
        v.extend(i for i in range(2))
        v[-1:] = []
        v *= 2
        texts = []
        for fn in (
            lambda: v[99],
            lambda: v.index(77),
            lambda: v.remove(77),
            lambda: [] + (),
            lambda: v["a"],
            lambda: [].pop(),
        ):
            try:
                fn()
            except (IndexError, ValueError, TypeError) as e:
                texts.append((type(e).__name__, str(e)))
        w = [[0] * 2] * 2
        w[0][0] = 1
        return (
            a,
            v,
            texts,
            w,
            [1, 2] < [1, 3],
            [1, [2]] == [1, [2]],
            v.count(3),
            v.index(1, 2),
            v[::-1],
            (1, 2) + (3,),
            [a] == [a],
            kept.pop(1),
        )

    return f, [(x(),), (x(),)], lambda: kept
