"""Exception groups and `except*` clauses in the graph."""

from __future__ import annotations

import pytest
import torch

import pyframe
from pyframe.metrics import counters


def structure(error):
    if isinstance(error, BaseExceptionGroup):
        inside = [structure(each) for each in error.exceptions]
        return type(error).__name__, error.message, inside, getattr(error, "__notes__", None)
    return type(error).__name__, error.args


class Named(ExceptionGroup):
    def __new__(cls, message, errors, name="none"):
        made = super().__new__(cls, message, errors)
        made.name = name
        return made

    def derive(self, errors):
        return Named(self.message, errors, self.name)


def handled_by_two_clauses(x):
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as group:
        x = x + len(group.exceptions)
    except* TypeError:
        x = x * 5
    return x


def naked(x):
    try:
        raise ValueError("alone")
    except* (KeyError, ValueError) as group:
        return_value = x + len(group.exceptions), str(group), type(group)
    return return_value


def nothing_raised(x):
    try:
        y = x + 1
    except* ValueError:
        y = x * 2
    else:
        y = y * 3
    finally:
        y = y + 1
    return y


def rest_is_handled_outside(x):
    try:
        try:
            raise ExceptionGroup("outer", [ValueError(1), ExceptionGroup("inner", [KeyError(2), ValueError(3)])])
        except* ValueError:
            x = x + 1
    except ExceptionGroup as group:
        return x, structure(group)


def raised_again(x):
    try:
        try:
            raise ExceptionGroup("group", [ValueError(1), KeyError(2), TypeError(3)])
        except* ValueError:
            raise
        except* KeyError:
            x = x + 1
    except ExceptionGroup as group:
        return x, structure(group)


def others_raised(x):
    try:
        try:
            raise ExceptionGroup("group", [ValueError(1), KeyError(2), TypeError(3)])
        except* ValueError:
            raise RuntimeError("new") from None
        except* KeyError as group:
            raise group
    except ExceptionGroup as group:
        return x, structure(group)


def in_a_loop(x):
    for number in range(3):
        try:
            if number == 1:
                raise ExceptionGroup("group", [ValueError(number)])
            x = x + 1
        except* ValueError:
            x = x * 3
    return x


def split(x):
    group = ExceptionGroup("group", [ValueError(1), ExceptionGroup("inner", [KeyError(2), ValueError(3)])])
    group.add_note("a note")
    match, rest = group.split(ValueError)
    keys = group.subgroup(lambda error: isinstance(error, KeyError))
    parts = [structure(each) for each in (match, rest, keys)]
    return x, parts, group.subgroup(OSError), group.split((ValueError, KeyError))[1], group.message


def of_a_subclass(x):
    try:
        raise Named("group", [ValueError(1), KeyError(2)], "given")
    except* ValueError as group:
        y = x + len(group.name)
    except* KeyError as group:
        y = y, group.name, type(group)
    return y


class Keywords(Exception):
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls, *args)


def keywords(x):
    texts = []
    for made in (lambda: Named("group", [ValueError(1)], name="given"), lambda: Keywords(1, a=2)):
        try:
            made()
        except TypeError as error:
            texts.append(str(error))
    return x, texts


def kinds(x):
    made = (BaseExceptionGroup("a", [ValueError()]), BaseExceptionGroup("a", [KeyboardInterrupt()]))
    return x, [type(each) for each in made], str(ExceptionGroup("text", (OSError(), OSError())))


def refused(x):
    texts = []
    for arguments in (("a", []), ("a", [1]), ("a", [KeyboardInterrupt()])):
        try:
            ExceptionGroup(*arguments)
        except (TypeError, ValueError) as error:
            texts.append(str(error))
    return x, texts


def catches_groups(x):
    try:
        try:
            raise ValueError
        except* ExceptionGroup:
            pass
    except TypeError as error:
        return x, str(error)


ONE_GRAPH = (
    handled_by_two_clauses, naked, nothing_raised, rest_is_handled_outside, raised_again, others_raised, in_a_loop,
    split, of_a_subclass, kinds, refused, catches_groups,
)  # fmt: skip


def leaves(x):
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except* ValueError:
        x += 1


def raises_in_a_clause(x):
    try:
        raise ExceptionGroup("group", [ValueError(1)])
    except* ValueError:
        raise TypeError("new")


def breaks_in_a_clause(x):
    try:
        x = x.sin()
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        pyframe.graph_break()
        x = x + len(group.exceptions)
    except* KeyError:
        x = x * 2
    return x


def kept(x):
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        first = group
    except* KeyError:
        x = x * 2
    return x, structure(first), first.__traceback__ is not None


def outcome(fn):
    x = torch.ones(2)
    try:
        found = repr(fn(x))
    except BaseException as error:
        context = error.__context__ and structure(error.__context__)
        found = structure(error), context, error.__traceback__ is not None
    return found, x.tolist()


@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)
    assert not counters["graph_breaks"]


@pytest.mark.parametrize("fn", (leaves, raises_in_a_clause, breaks_in_a_clause, kept, keywords))
def test_right(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)
