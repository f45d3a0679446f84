"""Programs that `tools/fuzz_frames.py` found to differ once, in their smallest form."""

from __future__ import annotations

import contextlib
import copy
import sys
import traceback
from typing import Any

import pytest
import torch
from fuzz_frames import described
from language_support import Table

import pyframe

case = Table()
X = torch.tensor([2.0, 0.5])


# ---- bools computed of tensors ----
@case(X)
def an_int_of_a_comparison(x):
    return int(x[0].item() > 1), int(x[1].item() > 1 and x[0].item() > 1)


@case(X)
def a_comparison_added(x):
    return (x[0].item() > 1) + 1, sum([x[0].item() > 1, 2]), (x[0].item() > 1) * 3


@case(X)
def the_identity_of_a_comparison(x):
    return (x[0].item() > 1) is True, (x[1].item() > 1) is not False, (x.shape[0] > 1) is True


@case(X)
def a_comparison_among_bools(x):
    return (x[0].item() > 1) in [True], (x[0].item() > 1) == True, [False, True].index(x[0].item() > 1)  # noqa: E712


# ---- what was being handled when an exception that exists already is raised ----
@case(ValueError("given"))
def raising_an_argument_in_a_handler(error):
    try:
        [].pop()
    except IndexError as caught:
        caught.add_note("s")
        raise error


@case(X)
def raising_a_group_in_a_handler(x):
    try:
        try:
            raise KeyError(1)
        finally:
            [].pop()
    except IndexError:
        raise ExceptionGroup("g", [ValueError(1)])


@case(ValueError("given"))
def reading_the_context_of_an_argument(error):
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise error
    except ValueError as caught:
        return type(caught.__context__).__name__, caught is error, repr(error.__context__)


@case(ValueError("given"))
def raising_what_the_handled_one_came_from(error):
    try:
        try:
            raise error
        except ValueError:
            raise KeyError(1)
    except KeyError:
        raise error


@case(ValueError("given"))
def the_line_of_an_argument_raised_in_a_handler(error):
    try:
        [].pop()
    except IndexError as caught:
        try:
            raise error
        finally:
            del caught


# ---- methods that are not there ----
LOG: list[object] = []


class Logged:
    def __enter__(self):
        LOG.append("enter")

    def __exit__(self, *exc):
        LOG.append((repr(exc[1]), repr(sys.exc_info()[1])))


@case(X)
def effects_before_a_method_that_is_not_there(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Logged())
        LOG.append(2)
        (1).append(2)


@case([])
def arguments_of_a_method_that_is_not_there(xs):
    return xs.push(LOG.append(3))


# ---- frames called while an exception is handled ----
def reads_the_handled_exception(x):
    return x + 1, repr(sys.exc_info()[1])


def raises_it_again(x):
    try:
        x = x + 1
        raise
    except RuntimeError:
        return x, "nothing"
    except KeyError:
        return x, "again"


def comes_from_it(x):
    try:
        raise ValueError
    except ValueError as error:
        return x + 1, repr(error.__context__)


class Level:
    def __init__(self, level):
        self.level = level

    def __index__(self):
        return self.level % 3


class Amount(Level):
    def __float__(self):
        return self.level % 3

    def __int__(self):
        return self.level % 3


@case(X, int, Level)
@case(X, float, Level)
@case(X, int, Amount)
@case(X, float, Amount)
@case(X, complex, Amount)
def an_index_of_a_number_in_a_tensor(x, kind, wrapped):
    found = []
    for number in (x[0].item() // 1, int(x[0].item()), x.shape[0]):
        try:
            found.append(kind(wrapped(number)))
        except TypeError as error:
            found.append(str(error))
    return found


def fails_with_a_note(note):
    try:
        raise KeyError(1)
    except KeyError as error:
        error.add_note(note)
        raise


@case("one")
@case(1)
def another_note(note):
    try:
        try:
            fails_with_a_note(note)
        finally:
            LOG.append(1)
    except Exception as error:
        error.add_note("two")
        raise ValueError("q")


@case(ValueError(1))
def notes_of_an_argument(error):
    error.add_note("one")
    error.add_note("two")
    notes = list(error.__notes__)
    error.__notes__ = "text"
    try:
        error.add_note("three")
    except TypeError as caught:
        notes.append(str(caught))
    return notes


def called_while_handling(fn, x):
    try:
        raise KeyError(1)
    except KeyError:
        return fn(x)


def behaviour(fn: Any, args: Any) -> Any:
    LOG.clear()
    try:
        return described([fn(*args), LOG])
    except Exception as error:
        lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
        return described([error, LOG]), lines[-1]


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_does_the_same(row: Any) -> None:
    fn, args = row
    captured = pyframe.compile(fn, backend="eager")
    assert behaviour(fn, copy.deepcopy(args)) == behaviour(captured, copy.deepcopy(args))


@pytest.mark.parametrize("order", [(False, True), (True, False)])
@pytest.mark.parametrize("fn", [reads_the_handled_exception, raises_it_again, comes_from_it])
def test_what_a_caller_is_handling(fn: Any, order: tuple[bool, bool]) -> None:
    captured = pyframe.compile(fn, backend="eager")
    for handling in order:
        outcomes = [called_while_handling(f, X) if handling else f(X) for f in (fn, captured)]
        assert described(outcomes[0]) == described(outcomes[1])
