"""`super()`: every kind of attribute, through an object and through a class, found as CPython finds them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import pyframe

X = torch.tensor([0.5, 2.0])


class Names:
    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return "descriptor", obj is None, owner.__name__


class Calls:
    def __call__(self, *args: Any) -> int:
        return len(args)


class Base:
    __slots__ = ("__dict__", "slot")
    described, called, number, builtin = Names(), Calls(), 3, len
    partial_method = functools.partialmethod(lambda self, x: (type(self).__name__, x), 4)

    @property
    def computed(self) -> str:
        return type(self).__name__

    @functools.cached_property
    def cached(self) -> list[str]:
        return ["cached"]

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    def of_none() -> int:
        return 5

    def method(self: Any) -> str:
        return getattr(self, "__name__", type(self).__name__)


class Derived(Base):
    described = called = number = builtin = partial_method = computed = cached = of_class = of_none = method = None  # type: ignore[assignment]


READS = (
    ("described", ""), ("called", "(1, 2)"), ("number", ""), ("builtin", "([1])"), ("computed", ""), ("cached", ""),
    ("of_class", "()"), ("of_none", "()"), ("__class__", ""), ("__thisclass__", ""), ("__self_class__", ""),
    ("__self__", ""), ("__doc__", ""), ("__dict__", ""), ("slot", ""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "call"), [*READS, ("partial_method", "()"), ("method", "()"), ("missing", "")])
@pytest.mark.parametrize("through", ["an object", "a class"])
def test_attributes(name: str, call: str, through: str) -> None:
    argument = "self" if through == "an object" else "cls"
    if through == "a class" and name in ("method", "partial_method"):  # a plain function
        call = "(cls)"
    source = f"""
class Last(Derived):
    {"" if through == "an object" else "@classmethod"}
    def read({argument}, x):
        try:
            found = super(Derived, {argument}).{name}{call}
        except AttributeError as error:
            found = str(error)
        return found, x + 1

    def run(self, x):
        return self.read(x)
"""
    scope: dict[str, Any] = {"Derived": Derived}
    exec(source, scope)
    obj = scope["Last"]()
    obj.slot = 7
    want = obj.run(X)
    obj.__dict__.clear()
    got = pyframe.compile(obj.run, backend="eager")(X)
    assert repr(got) == repr(want)


class Middle(Base):
    pass


class Lowest(Middle):
    def method(self) -> str:
        return super().method() + "!"


def test_a_method_added_to_a_class_in_between() -> None:
    obj = Lowest()
    compiled = pyframe.compile(lambda x: (obj.method(), x + 1), backend="eager")
    assert compiled(X)[0] == "Lowest!"
    Middle.method = lambda self: "middle"  # type: ignore[method-assign]
    assert compiled(X)[0] == "middle!"
    del Middle.method
    assert compiled(X)[0] == "Lowest!"
