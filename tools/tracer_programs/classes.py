"""Programs about classes, attributes and descriptors."""

from __future__ import annotations

import abc
import dataclasses
import functools
import weakref
from typing import Any, Generic, TypeVar

from .programs import program, x

T = TypeVar("T")


@program
def dataclass_in_and_out() -> Any:
    @dataclasses.dataclass
    class State:
        value: Any
        steps: int = 0
        log: list[str] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.log.append("made")

    def f(state: Any) -> Any:
        state.steps += 1
        state.value = state.value + 1
        other = dataclasses.replace(state, steps=7)
        return State(state.value * 2), other, dataclasses.asdict(other)["steps"], state == other

    return f, [(State(x()),)]


@program
def frozen_dataclass() -> Any:
    @dataclasses.dataclass(frozen=True, order=True)
    class Size:
        rows: int
        columns: int

    def f(a: Any, size: Any) -> Any:
        try:
            size.rows = 5
        except dataclasses.FrozenInstanceError:
            a = a + 1
        return a * size.columns if size < Size(2, 4) else a, {size: 1}[Size(2, 3)], dataclasses.fields(size)[0].name

    return f, [(x(), Size(2, 3))]


@program
def dataclass_made_in_a_function() -> Any:
    def f(a: Any) -> Any:
        @dataclasses.dataclass
        class Pair:
            left: Any
            right: Any = 2

        p = Pair(a)
        return p.left * p.right

    return f, [(x(),)]


@program
def class_made_in_a_function() -> Any:
    def f(a: Any) -> Any:
        class Scaler:
            factor = 3

            def __call__(self, v: Any) -> Any:
                return v * self.factor

        return Scaler()(a)

    return f, [(x(),)]


@program
def metaclass_and_registry() -> Any:
    class Registry(type):
        known: dict[str, type] = {}

        def __new__(mcs, name: str, bases: Any, namespace: Any) -> Any:
            cls = super().__new__(mcs, name, bases, namespace)
            mcs.known[name] = cls
            return cls

        def __len__(cls) -> int:
            return 4

    class Op(metaclass=Registry):
        def run(self, a: Any) -> Any:
            return a + 1

    def f(a: Any) -> Any:
        return Registry.known["Op"]().run(a) * len(Op)

    return f, [(x(),)]


@program
def properties_and_slots() -> Any:
    class Box:
        __slots__ = ("_value", "count")

        def __init__(self, value: Any) -> None:
            self._value, self.count = value, 0

        @property
        def value(self) -> Any:
            self.count += 1
            return self._value

        @value.setter
        def value(self, new: Any) -> None:
            self._value = new * 2

        @value.deleter
        def value(self) -> None:
            self._value = None

    def f(a: Any, box: Any) -> Any:
        box.value = a + 1
        b = box.value
        del box.value
        return b, box.count

    return f, [(x(), Box(1))]


@program
def cached_property() -> Any:
    class Model:
        def __init__(self) -> None:
            self.runs = 0

        @functools.cached_property
        def scale(self) -> int:
            self.runs += 1
            return 3

    model = Model()

    def f(a: Any) -> Any:
        return a * model.scale + model.scale

    return f, [(x(),), (x(),)], lambda: model.runs


@program
def descriptors() -> Any:
    class Positive:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, obj: Any, owner: type) -> Any:
            return self if obj is None else getattr(obj, self.name)

        def __set__(self, obj: Any, value: Any) -> None:
            if value < 0:
                raise ValueError("negative")
            setattr(obj, self.name, value)

    class Item:
        size = Positive()

    item = Item()

    def f(a: Any) -> Any:
        item.size = 3
        try:
            item.size = -1
        except ValueError:
            a = a + 1
        return a * item.size

    return f, [(x(),)], lambda: vars(item)


@program
def getattr_hooks() -> Any:
    class Config:
        def __init__(self) -> None:
            self.store = {"scale": 2}

        def __getattr__(self, name: str) -> Any:
            try:
                return self.__dict__["store"][name]
            except KeyError:
                raise AttributeError(name) from None

    config = Config()

    def f(a: Any) -> Any:
        return a * config.scale + getattr(config, "shift", 3) + hasattr(config, "none")

    return f, [(x(),)]


@program
def operators_overloaded() -> Any:
    class Vector:
        def __init__(self, v: Any) -> None:
            self.v = v

        def __add__(self, other: Any) -> Any:
            return Vector(self.v + (other.v if isinstance(other, Vector) else other))

        __radd__ = __add__

        def __matmul__(self, other: Any) -> Any:
            return (self.v * other.v).sum()

        def __getitem__(self, i: Any) -> Any:
            return self.v[i]

        def __len__(self) -> int:
            return self.v.shape[0]

        def __bool__(self) -> bool:
            return True

        def __contains__(self, item: Any) -> bool:
            return item == 3

    def f(a: Any) -> Any:
        one, two = Vector(a), 1 + Vector(a) + 2
        return one @ two + one[0] * len(two) + (3 in one) + (1 if one else 0)

    return f, [(x(),)]


@program
def super_and_multiple_inheritance() -> Any:
    class A:
        def run(self, v: Any) -> Any:
            return v + 1

    class B(A):
        def run(self, v: Any) -> Any:
            return super().run(v) * 2

    class C(A):
        def run(self, v: Any) -> Any:
            return super().run(v) - 3

    class D(B, C):
        def run(self, v: Any) -> Any:
            return super().run(v) + len(type(self).mro())

    def f(a: Any) -> Any:
        return D().run(a)

    return f, [(x(),)]


@program
def class_methods_and_static_methods() -> Any:
    class Tool:
        calls = 0

        @classmethod
        def count(cls, v: Any) -> Any:
            cls.calls += 1
            return v + cls.calls

        @staticmethod
        def plain(v: Any) -> Any:
            return v * 2

        def __init_subclass__(cls, **kwargs: Any) -> None:
            cls.made = kwargs

    def f(a: Any) -> Any:
        return Tool.plain(Tool.count(a)) + Tool().count(a)

    return f, [(x(),), (x(),)], lambda: Tool.calls


@program
def abstract_classes() -> Any:
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self, v: Any) -> Any: ...

    class Square(Shape):
        def area(self, v: Any) -> Any:
            return v * v

    Shape.register(int)

    def f(a: Any) -> Any:
        try:
            Shape()  # type: ignore[abstract]
        except TypeError:
            a = a + 1
        return Square().area(a) + isinstance(3, Shape)

    return f, [(x(),)]


@program
def generic_classes() -> Any:
    class Holder(Generic[T]):
        def __init__(self, item: T) -> None:
            self.item = item

    def f(a: Any) -> Any:
        return Holder[int](a).item + Holder(2).item + (list[int]().__len__())

    return f, [(x(),)]


@program
def attributes_deleted_and_set() -> Any:
    class Box:
        size = 7

    box = Box()

    def f(a: Any) -> Any:
        box.size = 2
        b = a * box.size
        del box.size
        box.other = b.sum()
        object.__setattr__(box, "third", 3)
        return b * box.size

    return f, [(x(),)], lambda: vars(box)


@program
def weak_references() -> Any:
    class Node:
        pass

    node = Node()
    ref = weakref.ref(node)

    def f(a: Any) -> Any:
        return a + 1 if ref() is node else a

    return f, [(x(),)]
