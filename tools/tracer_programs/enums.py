"""Programs about subclasses and enumerations."""

from __future__ import annotations

import enum
from typing import Any

import torch

from .programs import program, x


class Color(enum.Enum):
    """An enumeration of the module."""

    RED = 1
    BLUE = 2


class Base:
    """A class with subclasses."""

    scale = 1


class First(Base):
    """A subclass."""

    scale = 2


class Second(Base):
    """Another subclass."""

    scale = 3


@program
def subclasses() -> Any:
    def f(a: Any) -> Any:
        for cls in Base.__subclasses__():
            a = a * cls.scale
        return a + len(First.__subclasses__())

    return f, [(x(),)]


@program
def subclasses_after_another_class() -> Any:
    class Root:
        pass

    class One(Root):
        pass

    made: list[type] = [One]

    def f(a: Any) -> Any:
        return a + len(Root.__subclasses__())

    def add() -> int:
        made.append(type("Another", (Root,), {}))
        return len(Root.__subclasses__())

    return f, [(x(),), (x(),)], add


@program
def class_attributes() -> Any:
    def f(a: Any) -> Any:
        return a * First.scale + len(First.__mro__) + issubclass(First, Base) + (First.__bases__ == (Base,))

    return f, [(x(),)]


@program
def enum_members() -> Any:
    def f(a: Any, color: Any) -> Any:
        if color is Color.RED:
            a = a + color.value
        return a * len(Color), color.name, Color(2), Color["RED"], [c.value for c in Color], color in Color

    return f, [(x(), Color.RED), (x(), Color.BLUE)]


@program
def functional_enum() -> Any:
    def f(a: Any) -> Any:
        Kind = enum.Enum("Kind", ["LEFT", "RIGHT"])
        return a * Kind.RIGHT.value + len(Kind)

    return f, [(x(),)]


@program
def enum_class_in_a_function() -> Any:
    def f(a: Any) -> Any:
        class Kind(enum.Enum):
            LEFT = 2
            RIGHT = 3

            @property
            def twice(self) -> int:
                return self.value * 2

        return a * Kind.LEFT.twice + Kind(3).value

    return f, [(x(),)]


@program
def int_enum_in_a_function() -> Any:
    def f(a: Any) -> Any:
        class Level(enum.IntEnum):
            LOW = enum.auto()
            HIGH = enum.auto()

        return a * Level.HIGH + (Level.LOW < 2)

    return f, [(x(),)]


@program
def flags() -> Any:
    class Mode(enum.Flag):
        READ = 1
        WRITE = 2

    def f(a: Any, mode: Any) -> Any:
        if mode & Mode.READ:
            a = a + 1
        return a, (mode | Mode.WRITE) == Mode.READ | Mode.WRITE, Mode.READ in mode

    return f, [(x(), Mode.READ), (x(), Mode.WRITE)]


@program
def enum_as_dict_key() -> Any:
    table = {Color.RED: torch.sin, Color.BLUE: torch.cos}

    def f(a: Any, color: Any) -> Any:
        return table[color](a)

    return f, [(x(), Color.RED), (x(), Color.BLUE)]


@program
def string_enum() -> Any:
    class Name(str, enum.Enum):  # noqa: UP042
        RELU = "relu"

    def f(a: Any) -> Any:
        return getattr(torch, Name.RELU)(a) if Name.RELU == "relu" else a

    return f, [(x(),)]
