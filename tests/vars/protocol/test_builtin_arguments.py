"""Calls of functions written in C with arguments that they do not take, and what models of containers must not do."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from util import result_or_error

import pyframe
from pyframe import testing

X = torch.arange(3.0)
CALLS: dict[str, Callable[[], Any]] = {
    "len": lambda: len([], 1),
    "bool": lambda: bool(x=1),
    "isinstance": lambda: isinstance(1),
    "append": lambda: [].append(),
    "unbound append": lambda: list.append([]),
    "clear": lambda: [1].clear(2),
    "sort": lambda: [1].sort(None),
    "list": lambda: list(sequence=()),
    "get": lambda: {}.get(),
    "keys": lambda: {}.keys(1),
    "pop": lambda: {}.pop(),
    "set add": lambda: set().add(),
    "deque append": lambda: collections.deque().append(),
    "getattr": lambda: getattr(1),
    "getitem": lambda: [].__getitem__(),
    "list subclass": lambda: type("Sub", (list,), {})(sequence=()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arguments_that_a_function_does_not_take(call: Callable[[], Any]) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            call()
        except TypeError as error:
            return x + 1, str(error)
        return x

    want = fn(X)
    got = pyframe.compile(fn, backend="eager")(X)
    assert isinstance(want, tuple)
    assert got[1] == want[1]
    assert torch.equal(got[0], want[0])


class BadNumber:
    def __int__(self) -> Any:
        return None

    __float__ = __complex__ = __index__ = __bool__ = __repr__ = __str__ = __int__


OF_BAD_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "complex": complex, "bin": bin, "bool": bool, "repr": repr, "str": str,
    "index": lambda bad: [][bad], "range": range, "not safe": lambda bad: int.__new__(bool, 0),
}  # fmt: skip


@pytest.mark.parametrize("use", OF_BAD_NUMBERS.values(), ids=OF_BAD_NUMBERS)
def test_special_methods_that_give_another_type(use: Callable[[Any], Any]) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            return use(BadNumber())
        except TypeError as error:
            return str(error)

    assert pyframe.compile(fn, backend="eager")(X) == fn(X)


class Shortens:
    def __init__(self, victim: list[Any]) -> None:
        self.victim = victim

    def __eq__(self, other: object) -> Any:
        self.victim.clear()
        return NotImplemented


class Backwards:
    def __init__(self, asked: list[int]) -> None:
        self.asked = asked

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> int:
        self.asked.append(at)
        return at


class NoExit:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.log.append("entered")


class NoIterator:
    def __iter__(self) -> int:
        return 3


class BackwardsDict(dict):
    def keys(self) -> Any:
        return reversed(list(dict.keys(self)))

    __iter__ = keys


def step_of_zero(x: Any) -> Any:
    return [1, 2][:: x.dim() - 1]


def too_many_items(x: Any) -> Any:
    return len([x] * 100_000)


def equality_that_shortens(x: Any) -> Any:
    left, right = [0], [1]
    left[0] = Shortens(right)
    return left == right, right


def index_that_shortens(x: Any) -> Any:
    items: list[Any] = [1, 2, 3]
    items[0] = Shortens(items)
    return items.index(7)


def reversed_sees_changes(x: Any) -> Any:
    items = [1, 2, 3]
    backwards = reversed(items)
    first = next(backwards)
    items[0] = x + 1
    rest = backwards
    items[1] = 7
    return first, next(rest), rest, items


def reversed_is_lazy(x: Any) -> Any:
    asked: list[int] = []
    return next(reversed(Backwards(asked))), asked


def with_without_exit(x: Any) -> Any:
    log: list[str] = []
    try:
        with NoExit(log):
            log.append("body")
    except TypeError as error:
        log.append(str(error))
    return log


def iter_of_no_iterator(x: Any) -> Any:
    return iter(NoIterator())


def classmethod_in_c_of_an_instance(x: Any) -> Any:
    return BackwardsDict(a=1).fromkeys("ab")


def dict_of_a_dict_with_its_own_order(x: Any) -> Any:
    return list(dict(BackwardsDict(a=1, b=2)))


def attributes_of_functions(x: Any) -> Any:
    def inner() -> None:
        """doc"""

    inner.tag = x
    inner.__dict__["other"] = 2

    @functools.wraps(inner)
    def outer() -> None: ...

    return sorted(outer.__dict__), outer.tag, outer.other, outer.__name__, outer.__doc__, outer.__wrapped__ is inner


def equal_to_the_built_in_type(x: Any) -> Any:
    counted = collections.Counter("aab")
    plain = {"a": 2, "b": 1}
    return counted == plain, plain == counted, {"a": 1} == counted, plain != counted, counted != {}


def instances_with_a_finalizer(x: Any) -> Any:
    log: list[str] = []

    class Logs:
        def __del__(self) -> None:
            log.append("finalized")

    def use() -> None:
        Logs()

    for _ in range(3):
        use()
    return log


class Bound:
    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.wrapped.__get__(instance, owner)


class Decorated:
    @classmethod
    @Bound
    def outer(cls) -> str:
        return cls.__name__


def classmethod_of_a_descriptor(x: Any) -> Any:
    try:
        return Decorated.outer(), Decorated().outer()
    except TypeError as error:  # from 3.13 on
        return str(error)


class OrderedMeta(type):
    def mro(cls) -> Any:
        return super().mro() + [cls.__dict__["extra"]]


def class_with_its_own_mro(x: Any) -> Any:
    class Extra:
        answer = 42

    class Made(metaclass=OrderedMeta):
        extra = Extra

    return Made().answer


class Base:
    def scaled(self, x: Any, by: int) -> Any:
        return x * by


class Derived(Base):
    def scaled(self, x: Any, by: int) -> Any:
        return super().scaled(x + 1, by=by) + super().__reduce_ex__(2)[0].__name__.count("n")


def method_of_super_that_breaks(x: Any) -> Any:
    return Derived().scaled(x, 3)


def locals_after_a_break(x: Any) -> Any:
    unused = x.tolist()
    unread = 5  # noqa: F841
    return sorted(locals()), eval("unread") + len(unused)


def locals_in_a_call(x: Any) -> Any:
    return locals_after_a_break(x + 1)


def flat(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [flat(each) for each in value]
    return flat(list(value)) if hasattr(value, "__next__") else value


@pytest.mark.parametrize(
    "fn",
    [
        step_of_zero, too_many_items, equality_that_shortens, index_that_shortens, reversed_sees_changes,
        reversed_is_lazy, with_without_exit, iter_of_no_iterator, classmethod_in_c_of_an_instance,
        dict_of_a_dict_with_its_own_order, method_of_super_that_breaks,
        attributes_of_functions, equal_to_the_built_in_type, instances_with_a_finalizer,
        class_with_its_own_mro, classmethod_of_a_descriptor,
        locals_after_a_break, locals_in_a_call,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_as_eager(fn: Callable[..., Any]) -> None:
    assert flat(result_or_error(pyframe.compile(fn, backend="eager"), X)) == flat(result_or_error(fn, X))


def test_a_trace_has_a_most_number_of_steps() -> None:
    def fn(n: int) -> int:
        total = 0
        for at in range(n):
            total += at
        return total

    with testing.trace_everything() as compiler:
        assert fn(20_000) == sum(range(20_000))
    assert fn.__code__ in [ref() for ref in compiler.codes_with_entries.values()]


def test_nested_deeper_than_the_recursion_limit() -> None:
    def fn() -> Any:
        nested: list[Any] = []
        for _ in range(2000):
            nested = [nested]
        return nested

    with testing.trace_everything():
        nested = fn()
    depth = 0
    while nested:
        nested, depth = nested[0], depth + 1
    assert depth == 2000
