"""Objects die where they die in eager: the captured frame keeps nothing alive that the program has released."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

import pyframe
from pyframe import testing

log: list[str] = []


class Noisy:
    def __init__(self, name: str = "object") -> None:
        self.name = name

    def __del__(self) -> None:
        log.append(f"{self.name} died")


def observe(what: str) -> None:
    pyframe.graph_break()
    log.append(what)


def local_deleted_in_a_handler() -> None:
    x = Noisy()
    try:
        try:
            raise AttributeError
        except AttributeError:
            del x
            observe("deleted")
            raise TypeError from None
    except TypeError:
        observe("handled")


def local_deleted_where_the_break_raises() -> None:
    x = Noisy()
    try:
        observe.x  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError:
        del x
        observe("deleted")


def local_rebound() -> None:
    x: Any = Noisy()
    observe("bound")
    x = None
    observe("rebound")
    assert x is None


def argument_rebound() -> None:
    _rebind_argument([Noisy()])


def _rebind_argument(x: Any) -> None:
    observe("called")
    if x:
        x = None
    observe("rebound")


class Holder:
    def take(self, first: Any, *, second: Any = None) -> None:
        observe("called")
        del first
        observe("first deleted")
        second = None  # noqa: F841
        observe("second rebound")


def arguments_of_a_method() -> None:
    Holder().take(Noisy("first"), second=Noisy("second"))


def arguments_given_in_a_handler() -> None:
    try:
        observe.missing  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError:
        Holder().take([Noisy("first")], second=[Noisy("second")])


def _takes_two(first: Any, second: Any, *rest: Any) -> None:
    del first, second
    observe(f"deleted, {len(rest)} left")


def arguments_left_over() -> None:
    _takes_two(Noisy("a"), Noisy("b"), Noisy("c"))
    observe("called")


def exception_that_was_handled() -> None:
    try:
        raise KeyError(Noisy())
    except KeyError as error:
        observe(str(len(error.args)))
    observe("handled")


def _kept_in_another_local(x: Any) -> None:
    y = x
    del x
    observe("deleted")
    y = None  # noqa: F841
    observe("rebound")


def kept_in_another_local() -> None:
    _kept_in_another_local([Noisy()])


def local_deleted_between_breaks() -> None:
    x = Noisy("x")
    y = Noisy("y")
    observe("made")
    del x
    observe("x deleted")
    del y
    observe("y deleted")


def kept_to_the_end() -> None:
    x = Noisy()  # noqa: F841
    observe("made")
    observe("still there")


def argument_deleted() -> None:
    _delete_argument([Noisy()])
    observe("called")


def _delete_argument(items: list[Noisy]) -> None:
    x = items.pop()
    observe("taken")
    del x
    observe("deleted")


def deleted_in_a_loop() -> None:
    for name in "abc":
        x = Noisy(name)
        observe(f"made {name}")
        if name != "b":
            del x
        observe(f"after {name}")
    observe("end")


def value_of_an_expression() -> None:
    x = [Noisy("first")]
    observe("made")
    x[0] = Noisy("second")
    observe("replaced")
    x.clear()
    observe("cleared")


def _closed(name: str) -> Any:
    try:
        yield name
    finally:
        log.append(f"{name} closed")


def generator_rebound() -> None:
    generator = _closed("generator")
    log.append(next(generator))
    generator = None
    observe("rebound")
    assert generator is None


def weak_reference() -> None:
    x = Noisy()
    ref = weakref.ref(x)
    observe(str(ref() is x))
    del x
    observe(str(ref()))


PROGRAMS = [
    local_deleted_in_a_handler,
    local_deleted_where_the_break_raises,
    local_rebound,
    argument_rebound,
    kept_in_another_local,
    arguments_of_a_method,
    arguments_given_in_a_handler,
    arguments_left_over,
    exception_that_was_handled,
    local_deleted_between_breaks,
    kept_to_the_end,
    argument_deleted,
    deleted_in_a_loop,
    value_of_an_expression,
    weak_reference,
    generator_rebound,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_order_of_deaths(program: Callable[[], None]) -> None:
    expected = _log_of(program)
    with testing.trace_everything():
        missed = _log_of(program)
        hit = _log_of(program)
    assert (missed, hit) == (expected, expected)


def _log_of(program: Callable[[], None]) -> list[str]:
    log.clear()
    program()
    log.append("returned")
    return log.copy()
