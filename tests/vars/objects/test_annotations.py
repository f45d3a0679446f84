"""Annotations of functions and classes that the captured program makes.

They are evaluated when the function or class is created, or, from CPython 3.14 on, when they are read. This file has no
`from __future__ import annotations`, which would turn all of them into strings."""

import collections
import dataclasses
import functools
import inspect
import typing
from typing import Any, NamedTuple, TypedDict

import pytest
import torch
from language_support import Table, X, agree

import pyframe

case = Table()
breaks = Table()
T = typing.TypeVar("T")


@case()
def of_a_function(x):
    def f(a: int, b: "str") -> torch.Tensor:
        return x + a

    return f(1, 2), f.__annotations__, f.__annotations__ is f.__annotations__


@case()
def of_a_function_without_any(x):
    def f(a):
        return x + a

    f.__annotations__["a"] = int
    return f(1), f.__annotations__


@case()
def of_a_variable_of_the_function(x):
    kind = int

    def f(a: kind):
        return x + a

    found = dict(f.__annotations__)
    kind = float
    return f(1), found, f.__annotations__


@case()
def set_by_the_program(x):
    def f(a: int):
        return x + a

    f.__annotations__ = {"b": 3}
    return f(1), f.__annotations__, getattr(f, "__annotate__", None)


@case()
def wrapped(x):
    def f(a: int) -> str:
        return x + a

    @functools.wraps(f)
    def g(b: float):
        return f(b)

    return g(1), g.__annotations__, g.__wrapped__.__annotations__


@case()
def signature(x):
    def f(a: int, *, b: str = "x") -> str:
        return x + a

    return f(1), str(inspect.signature(f)), str(inspect.getfullargspec(f))


@case()
def of_a_class(x):
    class A:
        a: int = 3
        b: "undefined"  # noqa: F821

        def f(self, y: int) -> int:
            return y

    return A.a, x + 1, A.__annotations__, A.f.__annotations__, A.__annotations__ is A.__annotations__


@case()
def of_a_class_changed(x):
    class A:
        a: int = 3

    A.__annotations__["c"] = str
    return x + 1, A.__annotations__


@case()
def dataclass(x):
    kind = int

    @dataclasses.dataclass
    class A:
        a: kind
        b: typing.Any = None
        c: list = dataclasses.field(default_factory=list)

    types = [field.type for field in dataclasses.fields(A)]
    return A(1, x + 1).b, types, A.__annotations__, A.__init__.__annotations__


@case()
def dataclass_with_slots(x):
    @dataclasses.dataclass(frozen=True, slots=True)
    class A:
        a: int
        b: torch.Tensor

    return A(1, x + 1).b, A.__annotations__


@case()
def dataclass_of_dataclass(x):
    @dataclasses.dataclass
    class A:
        a: int

    @dataclasses.dataclass
    class B(A):
        b: T = 5

    return B(1).b, x + 1, A.__annotations__, B.__annotations__, B.__init__.__annotations__


@case()
def make_dataclass(x):
    P = dataclasses.make_dataclass("P", ["a", ("b", int, 5)])
    return P(1).b, x + 1, P(x).a, P.__annotations__


@case()
def named_tuples(x):
    class Q(NamedTuple):
        a: int
        b: str = "z"

        def s(self):
            return f"{self.a}{self.b}"

    P = collections.namedtuple("P", "x y", defaults=[5])
    return Q(1).s(), x + 1, Q.__annotations__, P(x).x + 1, P(x)._replace(y=6).y


@case()
def typed_dict(x):
    class D(TypedDict):
        a: int

    return D(a=1), x + 1, D.__annotations__


@case()
def generic(x):
    class G(typing.Generic[T]):
        v: T

        def __init__(self, v: T) -> None:
            self.v = v

    return G[int](x + 1).v, G(3).v, G.__annotations__


@case()
def module(x):
    class M(torch.nn.Module):
        weight: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return self.weight * y

    return M()(x), M.__annotations__


@breaks()
def undefined_name(x):
    @dataclasses.dataclass
    class A:
        a: "undefined"  # noqa: F821
        b: int

    return A(x + 1, 1).a


@breaks()
def type_hints(x):
    def f(a: int) -> str: ...

    return typing.get_type_hints(f), x + 1


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


@pytest.mark.parametrize("row", breaks, ids=Table.name)
def test_with_breaks(row: Any) -> None:
    agree(*row, fullgraph=False)


def test_what_leaves_the_graph_has_its_annotations() -> None:
    def makes(x):
        kind = int

        def read(a: kind): ...

        def unread(a: kind): ...

        read.__annotations__["b"] = x

        class A:
            c: kind

        class B:
            c: kind

        B.__annotations__["d"] = 1
        kind = float
        return x + 1, read, unread, A, B

    compiled = pyframe.compile(makes, backend="eager", fullgraph=True)
    for _ in range(2):
        for got, expected in zip(compiled(X)[1:], makes(X)[1:], strict=True):
            assert got.__annotations__ == expected.__annotations__
            assert got.__annotations__ is got.__annotations__
            assert hasattr(got, "__annotate__") == hasattr(expected, "__annotate__")
            if hasattr(got, "__annotate__"):
                assert (got.__annotate__ is None) == (expected.__annotate__ is None)


def test_an_undefined_name_is_an_error_only_where_it_is_read() -> None:
    def makes(x):
        def f() -> undefined: ...  # noqa: F821

        return x + 1, f.__name__

    def reads(x):
        y = x + 1

        def f() -> undefined: ...  # noqa: F821

        return y, f.__annotations__

    agree(makes, (X,), fullgraph=False)
    agree(reads, (X,), fullgraph=False)
