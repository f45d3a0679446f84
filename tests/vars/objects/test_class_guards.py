"""Reads of class attributes are guarded: a changed class, or an instance that hides the attribute, is recompiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe

X = torch.arange(3.0)


def fresh() -> type:
    """A class of its own for each test."""

    class Base:
        inherited = 10

        def method(self) -> Any:
            return 1

    class Thing(Base):
        constant = 1

        @property
        def prop(self) -> Any:
            return 1

        @classmethod
        def of_class(cls) -> Any:
            return 1

        @staticmethod
        def static() -> Any:
            return 1

        def __len__(self) -> int:
            return 1

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return 1

    return Thing


READS: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda x, t: x * t.constant,
    "inherited": lambda x, t: x * t.inherited,
    "method": lambda x, t: x * t.method(),
    "prop": lambda x, t: x * t.prop,
    "of_class": lambda x, t: x * t.of_class(),
    "static": lambda x, t: x * t.static(),
    "length": lambda x, t: x * len(t),
    "fallback": lambda x, t: x * t.missing,
    "absent": lambda x, t: x * (2 if hasattr(type(t), "late") else 3),
    "through_class": lambda x, t: x * type(t).constant,
    "through_super": lambda x, t: x * super(type(t), t).method(),
    "truth": lambda x, t: x * (2 if t else 3),
}
CHANGES: dict[str, Callable[[Any], None]] = {
    "constant": lambda t: setattr(type(t), "constant", 5),
    "inherited": lambda t: setattr(type(t), "inherited", 5),
    "inherited_in_base": lambda t: setattr(type(t).__mro__[1], "inherited", 6),
    "method": lambda t: setattr(type(t), "method", lambda self: 5),
    "method_in_base": lambda t: setattr(type(t).__mro__[1], "method", lambda self: 6),
    "prop": lambda t: setattr(type(t), "prop", property(lambda self: 5)),
    "prop_to_constant": lambda t: setattr(type(t), "prop", 7),
    "of_class": lambda t: setattr(type(t), "of_class", classmethod(lambda cls: 5)),
    "static": lambda t: setattr(type(t), "static", staticmethod(lambda: 5)),
    "length": lambda t: setattr(type(t), "__len__", lambda self: 5),
    "empty": lambda t: setattr(type(t), "__len__", lambda self: 0),
    "bool": lambda t: setattr(type(t), "__bool__", lambda self: False),
    "fallback": lambda t: setattr(type(t), "missing", 5),
    "fallback_itself": lambda t: setattr(type(t), "__getattr__", lambda self, name: 5),
    "absent": lambda t: setattr(type(t), "late", 5),
    "shadow_constant": lambda t: vars(t).update(constant=8),
    "shadow_method": lambda t: vars(t).update(method=lambda: 8),
    "shadow_static": lambda t: vars(t).update(static=lambda: 8),
    "shadow_fallback": lambda t: vars(t).update(missing=8),
    "shadow_property_in_vain": lambda t: vars(t).update(prop=8),
    "deleted": lambda t: delattr(type(t), "constant"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_changes_of_a_class_are_seen(read: str, change: str) -> None:
    fn = READS[read]
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    thing = fresh()()
    assert torch.equal(compiled(X, thing), fn(X, thing))
    CHANGES[change](thing)
    try:
        expected = fn(X, thing)
    except AttributeError as error:
        with pytest.raises(AttributeError, match=str(error)):
            compiled(X, thing)
    else:
        assert torch.equal(compiled(X, thing), expected)


def test_instance_attribute_that_goes_uncovers_the_class() -> None:
    fn = READS["constant"]
    compiled = pyframe.compile(fn, backend="eager")
    thing = fresh()()
    thing.constant = 9
    assert torch.equal(compiled(X, thing), X * 9)
    del thing.constant
    assert torch.equal(compiled(X, thing), X * 1)


def test_classes_are_distinguished() -> None:
    fn = READS["method"]
    compiled = pyframe.compile(fn, backend="eager")
    first, second = fresh(), fresh()
    second.method = lambda self: 4
    for cls in (first, second, first):
        assert torch.equal(compiled(X, cls()), fn(X, cls()))


def test_subclasses_are_guarded():
    class Base:
        number = 1

    class First(Base):
        number = 2

    def fn(x):
        return x + sum(each.number for each in Base.__subclasses__())

    x = torch.ones(2)
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), fn(x))

    class Second(Base):
        number = 5

    torch.testing.assert_close(compiled(x), fn(x))
    assert [First, Second] == Base.__subclasses__()
