"""Operations whose constant result would be large break the graph: the capture stays fast, results are eager's."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from language_support import X, same
from util import outcome

import pyframe
from pyframe.vars.protocol.const import ConstVar

LIMIT, MANY = 1000, 3000
LISTS: dict[str, Any] = {
    "list": list(range(MANY)), "tuple": tuple(range(MANY)), "dict": dict.fromkeys(range(MANY)), "set": set(range(MANY)),
    "deque": deque(range(MANY)), "strings": [str(i) for i in range(100)] * (MANY // 100), "text": "ab" * MANY,
}  # fmt: skip
SMALL = [
    "pow(3, 10**9, 7)", "max(range(900))", "any(i < 0 for i in range(5000))", "9 % 5 * 'ab'",
    "'year 2026, %d of 123456' % 7", "'{} of 12345678, {:5}'.format(9000, 7)", "next(iter('ab' * 400))",
]
MADE = [
    "len('x' * 9000)", "(10 ** 4000).bit_length()", "(1 << 9000) >> (9000 - 2)", "len(list(range(5000)))",
    "len([0] * 5000)", "len((1, 2) * 5000)", "len('%6000d' % 3)", "len('%*d' % (6000, 3))",
    "len('{:6000}'.format(3))", "len('{:{}}'.format(3, 6000))", "len(f'{3:6000}')", "len('x'.zfill(6000))",
    "len('a\\tb'.expandtabs(5000))", "len(('a' * 100).replace('a', 'b' * 100))", "len(','.join(['a' * 100] * 100))",
    "len(bytes(5000))", "math.factorial(7000) % 1000003", "math.comb(20000, 4000) % 97", "len(struct.pack('6000x'))",
    "len(('a' * 100).translate({97: 'b' * 100}))", "len((1).to_bytes(5000, 'big'))", "[1] * 5000 == [1] * 5000",
    "sum([0] * 5000)", "len(deque([0] * 800 + [1] * 800))", "len(sorted(range(5000)))", "len({*range(4000)})",
    "len(dict.fromkeys(range(4000)))", "len('x'.center(5000))", "(3).__pow__(5000) % 7", "[*[1] * 800, *[2] * 800][-1]", "len(str(list(range(4000))))",
    *SMALL,
]  # fmt: skip
READS = [
    "len(v)", "bool(v)", "isinstance(v, list)", "type(v).__name__", "v == v", "v is v", "next(iter(v))", "3 in v",
    "'3' in v", "v[5]", "v[-1]", "list(v)[:3]", "len(v) > 3 and list(v)[7]", "list(zip(v, 'ab'))", "v[2:5]", "v[5000:]",
    "v != [1]", "[1] == v", "sum(1 for _ in zip(v, range(3)))", "v.count(7)", "v.index(7)", "v.get(7, 1)", "len([*v])", "hash(v)",
    "v[9000]", "v * 2 == v + v", "v.copy() == v", "sorted(v) == list(v)", "repr(v) == str(v)", "v <= v", "max(v)", "v | {1}",
]  # fmt: skip


@pytest.fixture(autouse=True)
def a_low_limit() -> Iterator[None]:
    with pyframe.config.patch(size_limit=LIMIT):
        yield


def test_large_constants_are_made_for_real():
    for text in MADE:
        names = {"math": math, "struct": struct, "deque": deque}
        fn = eval(f"lambda x: (x + 1, {text})", names)
        pyframe.reset()
        assert same(outcome(pyframe.compile(fn, backend="eager"), (X,)), outcome(fn, (X,))), text
        assert ("size-limit" in pyframe.counters["graph_breaks"]) == (text not in SMALL), text


def test_a_huge_one_takes_no_time():
    with pyframe.config.patch(size_limit=16_384):
        for text in ("'x' * 10**9", "10 ** 10**9", "list(range(10**9))", "[0] * 10**9", "f'{1:999999999}'", "bytes(10**9)"):
            fn = eval(f"lambda x: (x + 1, {text})")
            with pytest.raises(pyframe.Unsupported, match="size-limit"):
                pyframe.compile(fn, backend="eager", fullgraph=True)(X)


HUGE = 10**6000  # CPython refuses to print it


def test_an_int_that_cannot_be_printed():
    def repeats(x):
        try:
            return "a" * HUGE
        except OverflowError:
            return x + 1

    assert same(outcome(pyframe.compile(repeats, backend="eager"), (X,)), outcome(repeats, (X,)))
    assert ConstVar(HUGE).describe() == "an int of 19932 bits"


@pytest.mark.parametrize("kind", LISTS)
def test_large_containers_of_the_user(kind):
    for text in READS if kind == "list" else READS[::3]:
        fn = eval(f"lambda x, v: (x + 1, {text})")
        pyframe.reset()
        args = (X, LISTS[kind])
        assert same(outcome(pyframe.compile(fn, backend="eager"), args)[:3], outcome(fn, args)[:3]), text


def test_a_long_list_is_read_where_the_program_reads_it():
    def f(x, v):
        first, *rest = v[:3]
        for i, item in enumerate(v):
            if i == 3:
                break
            x = x + item
        return x * len(v) + v[-1], first, rest, v

    held = list(range(MANY))
    fast = pyframe.compile(f, backend="eager", fullgraph=True)
    assert same(fast(X, held), f(X, held))
    held[50], held[-1] = 7, 8  # the first is not read, the second is guarded
    assert same(fast(X, held), f(X, held))
    assert pyframe.counters["recompiles"] == 1


def test_changes_of_a_long_list():
    def f(x, v):
        v.append(4)
        v[0] = x + 1
        x = x * len(v)
        v += [1]
        del v[1]
        match v:
            case [first, *_]:
                x = x + first
        return x, v[-1]

    given = [0] * MANY, [0] * MANY
    assert same(pyframe.compile(f, backend="eager")(X, given[0]), f(X, given[1]))
    assert same(*given)


def test_objects_without_a_model_compare_and_add_by_their_own_rules():
    held = bytearray(b"ab")

    def f(x, v):
        y = x + 1
        return y, v == b"ab", v != b"ab", v < b"b", b"ab" == v, v + b"c", b"c" + v, v == None  # noqa: E711, SIM300

    assert same(pyframe.compile(f, backend="eager")(X, held), f(X, held))
