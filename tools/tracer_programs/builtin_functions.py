"""Programs about builtin functions and statements."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch

from .programs import program, x


@program
def math_functions() -> Any:
    def f(a: Any) -> Any:
        n = a.shape[0]
        return a * math.sqrt(n) + math.floor(n / 3) + math.comb(n, 2) + math.gcd(n, 6) + math.prod([n, 2])

    return f, [(x(4),), (x(5),), (x(6),)]


@program
def sum_of_tensors() -> Any:
    def f(a: Any) -> Any:
        return sum([a, a + 1], start=a) + sum(i for i in range(3)) + sum(a.unbind())

    return f, [(x(),)]


@program
def any_and_all_of_numbers() -> Any:
    def f(a: Any) -> Any:
        return a + 1 if any(s > 3 for s in a.shape) and all(s for s in a.shape) else a

    return f, [(x(),)]


@program
def any_of_tensors() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        return b * 2 if any(v > 0 for v in a) else b

    return f, [(torch.tensor([-1.0, 2.0]),)]


@program
def sorted_by_key() -> Any:
    def f(a: Any) -> Any:
        items = sorted([(3, "c"), (1, "a"), (2, "b")], key=operator.itemgetter(0), reverse=True)
        for n, name in items:
            a = a * n + len(name)
        return a

    return f, [(x(),)]


@program
def round_and_divmod() -> Any:
    def f(a: Any, n: int) -> Any:
        q, r = divmod(n, 3)
        return a * round(n / 7, 2) + q - r + abs(-n) + pow(n, 2, 5)

    return f, [(x(), 10), (x(), 11), (x(), 12)]


@program
def count_of_itertools() -> Any:
    def f(a: Any) -> Any:
        for i in itertools.count(1, 2):
            if i > 7:
                break
            a = a + i
        return a

    return f, [(x(),)]


@program
def count_held_by_an_object() -> Any:
    counter = itertools.count()

    def f(a: Any) -> Any:
        return a + next(counter)

    return f, [(x(),), (x(),), (x(),), (x(),)], lambda: repr(counter)


@program
def library_of_itertools() -> Any:
    def f(a: Any) -> Any:
        for i, j in itertools.product(range(2), repeat=2):
            a = a + i * j
        for p, q in itertools.pairwise([1, 2, 3]):
            a = a + p - q
        for k, group in itertools.groupby([1, 1, 2], key=lambda v: v):
            a = a + k * len(list(group))
        for c in itertools.chain.from_iterable([[1], [2]]):
            a = a * c
        for s in itertools.islice(itertools.cycle([1, 2]), 3):
            a = a - s
        return a + sum(itertools.accumulate([1, 2, 3])) + len(list(itertools.zip_longest([1], [1, 2])))

    return f, [(x(),)]


@program
def tee_and_compress() -> Any:
    def f(a: Any) -> Any:
        one, two = itertools.tee([1, 2, 3])
        for i in itertools.compress(one, [1, 0, 1]):
            a = a + i
        for i in itertools.starmap(operator.mul, zip(two, [4, 5, 6])):
            a = a + i
        return a + sum(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])) + sum(itertools.filterfalse(None, [0, 1]))

    return f, [(x(),)]


@program
def reduce_and_partial() -> Any:
    def f(a: Any) -> Any:
        add = functools.partial(torch.add, alpha=2)
        return functools.reduce(add, [a, a + 1, a + 2]) + functools.partial(max, 3)(2)

    return f, [(x(),)]


@program
def map_with_several_iterables() -> Any:
    def f(a: Any, b: Any) -> Any:
        return torch.stack(list(map(torch.mul, a.unbind(), b.unbind()))) + sum(map(lambda p, q: p * q, [1, 2], [3, 4]))

    return f, [(x(), x())]


@program
def zip_strict() -> Any:
    def f(a: Any, n: int) -> Any:
        try:
            for i, j in zip([1, 2], range(n), strict=True):
                a = a + i * j
        except ValueError as error:
            return a, str(error)
        return a

    return f, [(x(), 2), (x(), 3)]


@program
def enumerate_from() -> Any:
    def f(a: Any) -> Any:
        out: list[Any] = []
        for i, row in enumerate(a, start=2):
            out.append(row * i)
        return torch.stack(out)

    return f, [(x(3, 2),)]


@program
def filter_and_reversed() -> Any:
    def f(a: Any) -> Any:
        for v in reversed(list(filter(lambda n: n % 2, range(6)))):
            a = a * v
        return a + [*reversed((1, 2))][0]

    return f, [(x(),)]


@program
def iter_with_sentinel() -> Any:
    def f(a: Any) -> Any:
        items = [1, 2, 0, 4]
        for v in iter(lambda: items.pop(0), 0):
            a = a + v
        return a, items

    return f, [(x(),)]


@program
def user_iterator() -> Any:
    class Countdown:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def f(a: Any) -> Any:
        for i in Countdown(3):
            a = a + i
        return a

    return f, [(x(),)]


@program
def string_functions() -> Any:
    def f(a: Any, name: str) -> Any:
        if name.lower().startswith("re") and "lu" in name:
            a = a.relu()
        text = f"{name!r:>10} {a.shape[0]:03d} {{}} {'-'.join(['a', 'b'])}"
        return a, text.split(), "%s of %d" % (name, 3), name.partition("l"), name.encode(), f"{1.234:.2f}"  # noqa: UP031

    return f, [(x(), "ReLu"), (x(), "gelu")]


@program
def format_of_tensor_shapes() -> Any:
    def f(a: Any) -> Any:
        return a + 1, f"{tuple(a.shape)} {a.dtype} {a.device} {a.ndim}"

    return f, [(x(2, 3),)]


@program
def star_arguments() -> Any:
    def g(a: Any, *args: Any, scale: float = 1.0, **rest: Any) -> Any:
        return a * scale + sum(args) + rest["shift"]

    def f(a: Any) -> Any:
        return g(a, *[1, 2], *(3,), **{"scale": 2.0}, shift=4)

    return f, [(x(),)]


@program
def walrus_and_comprehensions() -> Any:
    def f(a: Any) -> Any:
        if (n := a.shape[0]) > 2:
            a = a + n
        table = {k: v for k, v in zip("ab", range(2))}
        nested = [[i * j for j in range(3)] for i in range(2)]
        return a + sum(table.values()) + nested[1][2] + len({i % 2 for i in range(5)})

    return f, [(x(),)]


@program
def match_statement() -> Any:
    def f(a: Any, command: Any) -> Any:
        match command:
            case {"op": "add", "value": v}:
                return a + v
            case ["mul", v, *_]:
                return a * v
            case str() as name if name == "neg":
                return -a
            case _:
                return a

    return f, [(x(), {"op": "add", "value": 2}), (x(), ["mul", 3, 4]), (x(), "neg"), (x(), 5)]


@program
def globals_read_and_written() -> Any:
    def f(a: Any) -> Any:
        global _COUNT
        _COUNT += 1
        return a * _COUNT

    globals()["_COUNT"] = 0
    return f, [(x(),), (x(),), (x(),)], lambda: _COUNT


_COUNT = 0


@program
def nonlocal_counter() -> Any:
    calls = 0

    def f(a: Any) -> Any:
        nonlocal calls
        calls += 1
        return a + calls

    return f, [(x(),), (x(),), (x(),), (x(),)], lambda: calls


@program
def isinstance_of_unions() -> Any:
    def f(a: Any) -> Any:
        if isinstance(a, torch.Tensor | int) and isinstance(a.shape, tuple) and not isinstance(a, (list, str)):
            return a + 1
        return a

    return f, [(x(),)]


@program
def getattr_with_default() -> Any:
    def f(a: Any) -> Any:
        kind = getattr(a, "no_such_attribute", None)
        return a.relu() if kind is None and hasattr(a, "sin") else a

    return f, [(x(),)]


@program
def callable_and_type() -> Any:
    def f(a: Any) -> Any:
        return type(a)([1.0]) + len(type(a).__name__) if callable(f) and type(a) is torch.Tensor else a

    return f, [(x(),)]


@program
def dir_and_vars() -> Any:
    class Box:
        def __init__(self) -> None:
            self.left, self.right = 1, 2

    box = Box()

    def f(a: Any) -> Any:
        for name, value in vars(box).items():
            a = a + value * len(name)
        return a + sum(v for k, v in box.__dict__.items() if k.startswith("l"))

    return f, [(x(),)]


@program
def print_of_constants() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        print("value", 3)
        return b * 2

    return f, [(x(),)]


@program
def assert_on_tensors() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        assert (b > 0).all(), "must be positive"
        assert b.shape[0] == 4
        return b.log()

    return f, [(torch.ones(4),), (-torch.ones(4) * 3,)]


@program
def complex_numbers() -> Any:
    def f(a: Any) -> Any:
        z = complex(1, 2) * 2j
        return a * z.real + z.imag + abs(3 + 4j)

    return f, [(x(),)]


@program
def bytes_and_ints() -> Any:
    def f(a: Any) -> Any:
        n = int.from_bytes(b"\x01\x02", "big")
        return a + n + (5).bit_length() + int("12") + float("1.5") + len(bytes(3)) + ord("a") + bool([])

    return f, [(x(),)]
