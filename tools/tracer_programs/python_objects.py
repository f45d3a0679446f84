"""Programs about dataclasses, named tuples, partial and generic functions, and pattern matching."""
# ruff: noqa: B904, E501, UP008  (some programs are about super(A, self))

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any

import torch

from .programs import program, x


@program
def dataclass_post_init() -> Any:
    @dataclasses.dataclass
    class Config:
        size: int
        scale: float = 2.0
        names: list[str] = dataclasses.field(default_factory=list)
        total: int = dataclasses.field(init=False, repr=False)

        def __post_init__(self) -> None:
            self.total = self.size * 3
            self.names.append(f"n{self.size}")

    def f(a: Any) -> Any:
        c = Config(a.shape[0])
        d = dataclasses.replace(c, size=7, names=["z"])
        return a * c.total + d.scale, c, dataclasses.asdict(d), repr(c), c == d, [p.name for p in dataclasses.fields(c)]

    return f, [(x(),)]


@program
def dataclass_frozen_ordered() -> Any:
    @dataclasses.dataclass(frozen=True, order=True, slots=True)
    class Point:
        a: int
        b: int = 0

    def f(a: Any) -> Any:
        p, q = Point(1, 2), Point(1, 3)
        try:
            p.a = 5  # type: ignore[misc]
        except dataclasses.FrozenInstanceError as e:
            text = str(e)
        return (
            a * p.b,
            [repr(v) for v in sorted([q, p, Point(0)])],
            p < q,
            {p: 1}[Point(1, 2)],
            text,
            hash(p) == hash(Point(1, 2)),
        )

    return f, [(x(),)]


@program
def dataclass_inherited() -> Any:
    @dataclasses.dataclass
    class Base:
        a: int = 1

        def scale(self) -> int:
            return self.a

    @dataclasses.dataclass(kw_only=True)
    class Child(Base):
        b: torch.Tensor
        init: dataclasses.InitVar[int] = 3

        def __post_init__(self, init: int) -> None:
            self.a += init

    def f(a: Any) -> Any:
        c = Child(b=a)
        return c.b * c.scale(), c.a, isinstance(c, Base), dataclasses.is_dataclass(c)

    return f, [(x(),)]


@program
def partial_and_partialmethod() -> Any:
    class Op:
        def power(self, a: Any, k: int, *, add: float = 0.0) -> Any:
            return a**k + add

        square = functools.partialmethod(power, k=2)
        shifted = functools.partialmethod(power, k=1, add=1.0)

    def f(a: Any) -> Any:
        p = functools.partial(torch.add, alpha=2)
        q = functools.partial(p, a)
        return Op().square(a) + Op().shifted(a, add=3.0), q(a), q.args[0] is a, q.keywords, q.func is torch.add

    return f, [(x(),)]


@program
def singledispatch_functions() -> Any:
    @functools.singledispatch
    def scale(v: Any) -> Any:
        return "object"

    @scale.register
    def _(v: int) -> Any:
        return v * 2

    @scale.register(list)
    def _of_lists(v: Any) -> Any:
        return [scale(i) for i in v]

    @scale.register
    def _of_tensors(v: torch.Tensor) -> Any:
        return v + 1

    def f(a: Any) -> Any:
        return scale(a), scale(3), scale([1, a, "s"]), scale(True), scale(None)

    return f, [(x(),)]


@program
def singledispatch_methods() -> Any:
    class Scale:
        @functools.singledispatchmethod
        def of(self, v: Any) -> Any:
            return "object"

        @of.register
        def _(self, v: int) -> Any:
            return v * 2

        @of.register
        def _(self, v: torch.Tensor) -> Any:
            return v * 3

    def f(a: Any) -> Any:
        s = Scale()
        return s.of(a), s.of(4), s.of("q")

    return f, [(x(),)]


@program
def reduce_and_wraps() -> Any:
    def twice(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            inner.calls += 1
            return fn(fn(*args, **kwargs), **kwargs)

        inner.calls = 0
        return inner

    @twice
    def add(a: Any, k: int = 1) -> Any:
        """Adds."""
        return a + k

    def f(a: Any) -> Any:
        r = functools.reduce(lambda p, q: p * q, [a, a, 2], 1)
        try:
            functools.reduce(lambda p, q: p, [])
        except TypeError as e:
            text = str(e)
        return add(a, k=3), add.__name__, add.__doc__, add.__wrapped__(a), r, add.calls, text

    return f, [(x(),), (x(),)], lambda: add.calls


@program
def typed_named_tuples() -> Any:
    class Pair(typing.NamedTuple):
        first: Any
        second: int = 2
        fn: Any = torch.sin

        def total(self) -> Any:
            return self.first * self.second

        @property
        def last(self) -> Any:
            return self[-1]

    def f(a: Any) -> Any:
        p = Pair(a)
        q = p._replace(second=5)
        first, second, fn = q
        return p.total(), q.fn(a), q.last is fn, q._asdict()["second"], p._fields, Pair._make([a, 1, None]), second

    return f, [(x(),)]


@program
def match_statements() -> Any:
    @dataclasses.dataclass
    class P:
        a: Any
        b: Any

    class Q:
        __match_args__ = ("k",)

        def __init__(self, k: Any) -> None:
            self.k = k

    def kind(v: Any) -> Any:
        match v:
            case P(a=0):
                return "zero"
            case P(torch.Tensor() as t, int(n)) if n > 1:
                return t * n
            case Q([p, *rest, q]):
                return p, rest, q
            case {"op": ("add" | "sub") as op, **others}:
                return op, others
            case [int() | float() as i, str(s)]:
                return i, s
            case torch.float32 | None:
                return "constants"
            case P() | Q():
                return "other"
            case (a, [b, _]):
                return a, b
            case _:
                return "none of them"

    def f(a: Any) -> Any:
        values = (
            P(0, 1),
            P(a, 3),
            P(a, 1),
            Q([1, 2, a, 4]),
            {"op": "add", "x": a},
            [1, "s"],
            None,
            [a, [1, 2]],
            3,
            Q(3),
        )
        return [kind(v) for v in values]

    return f, [(x(),)]
