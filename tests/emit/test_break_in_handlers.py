"""Graph breaks inside `except`, `finally` and `with`, with an exception under way: what is being handled is what
eager handles, at every point, and nothing of it is left behind."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
import warnings
import weakref
from typing import Any

import pytest
import torch
from util import check, outcome, same

import pyframe
from pyframe.testing import CompileCounter

X = torch.arange(1.0, 7.0).reshape(2, 3)


@pyframe.disable
def now() -> str:
    """What the thread handles."""
    return repr(sys.exc_info()[1])


def chain(error: BaseException | None) -> list[str]:
    out = []
    while error is not None:
        out.append(repr(error))
        error = error.__cause__ or error.__context__
    return out


def shows(x: Any) -> Any:
    try:
        raise ValueError("first")
    except ValueError as error:
        print(now())
        x = x + 1
        print(now(), error)
        x = x * 2
    print(now())
    return x + 3


def nested(x: Any) -> Any:
    try:
        raise ValueError("outer")
    except ValueError:
        x = x + 1
        print(now())
        try:
            x = x * 2
            raise KeyError("inner")
        except KeyError as error:
            x = x + 3
            print(now(), chain(error))
            x = x * 4
        print(now())
        x = x - 5
    print(now())
    return x * 6


def nested_real(x: Any) -> Any:
    try:
        [][1]
    except IndexError:
        print(now())
        try:
            {}["no"]
        except KeyError as error:
            x = x + 3
            print(now(), chain(error))
        print(now())
        x = x - 5
    return x * 6


def raises_again(x: Any) -> Any:
    try:
        try:
            raise ValueError("first")
        except ValueError:
            x = x + 1
            print(now())
            raise
    except ValueError as error:
        x = x * 2
        print(now(), chain(error))
    print(now())
    return x


def raises_other(x: Any) -> Any:
    try:
        try:
            raise ValueError("first")
        except ValueError:
            print(now())
            x = x + 1
            raise KeyError("second")
    except KeyError as error:
        print(now(), chain(error))
        x = x * 2
    print(now())
    return x + 1


def leaves(x: Any) -> Any:
    try:
        raise ValueError("first")
    except ValueError as error:
        x = x + 1
        print(now())
        raise TypeError("second") from error


def leaves_bare(x: Any) -> Any:
    try:
        raise ValueError("first")
    except ValueError:
        print(now())
        x = x + 1
        raise


def returns(x: Any) -> Any:
    try:
        raise ValueError("first")
    except ValueError:
        x = x + 1
        print(now())
        return x * 2


def returns_in_finally(x: Any) -> Any:
    try:
        raise ValueError("lost")
    finally:
        print(now())
        return x * 2


def in_loop(x: Any) -> Any:
    for i in range(6):
        try:
            x = x + i
            if i % 2:
                raise ValueError(i)
            if i == 4:
                [][i]
        except ValueError as error:
            print(now(), error)
            if i == 3:
                continue
            x = x * 2
        except IndexError:
            print(now())
            break
        print(now())
    return x + 1


def loop_inside(x: Any) -> Any:
    try:
        raise ValueError("round it")
    except ValueError:
        for i in range(4):
            x = x + i
            print(now(), i)
            x = x * 2
        while x.sum() < 100000:
            x = x * 3
        print(now())
    print(now())
    return x + 1


def loop_inside_leaves(x: Any) -> Any:
    try:
        raise ValueError("round it")
    except ValueError:
        for i in range(4):
            x = x + i
            print(now(), i)
            if i == 2:
                return x * 2
    return x


def finally_runs(x: Any) -> Any:
    try:
        try:
            x = x + 1
            raise ValueError("first")
        finally:
            print(now())
            x = x * 2
            print(now())
    except ValueError:
        x = x + 5
    print(now())
    return x


class Manager:
    def __init__(self, swallows: bool) -> None:
        self.swallows = swallows

    def __enter__(self) -> Manager:
        print("enter", now())
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> bool:
        print("exit", kind and kind.__name__, error, tb is not None, now())
        return self.swallows


def manager_swallows(x: Any) -> Any:
    with Manager(True):
        x = x + 1
        print(now())
        raise ValueError("swallowed")
    print(now())
    return x * 2


def manager_lets_pass(x: Any) -> Any:
    try:
        with Manager(False):
            x = x + 1
            print(now())
            raise ValueError("passes")
    except ValueError as error:
        x = x * 2
        print(now(), chain(error))
    return x * 2


def manager_in_handler(x: Any) -> Any:
    try:
        raise ValueError("outer")
    except ValueError:
        with Manager(True):
            x = x + 1
            print(now())
            raise KeyError("inner")
        print(now())
        x = x * 2
    print(now())
    return x * 3


def suppressed(x: Any) -> Any:
    with contextlib.suppress(ValueError):
        x = x + 1
        print(now())
        raise ValueError("suppressed")
    x = x * 2
    print(now())
    return x


def fails(x: Any) -> Any:
    print("in callee", now())
    raise ValueError("of the callee")


def callee_raises(x: Any) -> Any:
    try:
        x = fails(x + 1)
    except ValueError as error:
        x = x * 2
        print(now(), traceback.extract_tb(error.__traceback__)[-1].line)
        x = x - 1
    print(now())
    return x


def calls_while_handling(x: Any) -> Any:
    try:
        raise ValueError("round it")
    except ValueError:
        x = shows(x) + 1
        print(now())
        x = x * 2
    return x


def unbound_behind(x: Any) -> Any:
    try:
        print("try")
        y = x + 1
        [][0]
        z = y
    except IndexError as error:
        print(now(), error)
        w = x * 2
    try:
        return z
    except NameError as error:
        print(chain(error)[0])
    try:
        return error
    except NameError as other:
        print(chain(other)[0])
    return w + y


def cells(x: Any) -> Any:
    total = x
    def add(y: Any) -> None:
        nonlocal total
        total = total + y
    try:
        add(x)
        raise ValueError("first")
    except ValueError as error:  # noqa: F841
        kept = lambda: (total * 2, str(error))  # noqa: F821
        add(x * 2)
        print(now())
        add(x * 3)
        result = kept()
    print(now())
    return result, total


def torch_raises(x: Any) -> Any:
    try:
        return x @ x
    except RuntimeError as error:
        print(type(error).__name__, "shapes" in str(error))
        x = x * 2
    print(now())
    return x + 1


PROGRAMS = [
    shows, nested, nested_real, raises_again, raises_other, leaves, leaves_bare, returns, returns_in_finally, in_loop,
    loop_inside, loop_inside_leaves, finally_runs, manager_swallows, manager_lets_pass, manager_in_handler, suppressed,
    callee_raises, calls_while_handling, unbound_behind, cells, torch_raises,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS)
def test_as_eager(fn):
    check(fn, X)
    assert sys.exc_info()[1] is None


@pytest.mark.parametrize("fn", PROGRAMS)
def test_what_is_handled_round_the_call_is_kept(fn):
    compiled = pyframe.compile(fn, backend="eager")
    try:
        raise OSError("round all of it")
    except OSError:
        expected = outcome(fn, (X,))
        for _ in range(2):
            assert same(expected, outcome(compiled, (X,)))
            assert isinstance(sys.exc_info()[1], OSError)
    assert sys.exc_info()[1] is None


def test_the_words_of_exceptions_do_not_recompile():
    @pyframe.disable
    def number(i):
        raise ValueError(f"number {i}")

    def fn(x, i):
        try:
            number(i)
        except ValueError as error:
            print(len(str(error)))
            x = x + 1
            print(str(error))
        return x * 2

    counter = CompileCounter()
    compiled = pyframe.compile(fn, backend=counter)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in torch.arange(12.0):  # each time another object
            assert outcome(compiled, (X, i))[-2] == outcome(fn, (X, i))[-2]
    assert counter.frame_count <= 6


def test_the_traceback_leads_to_where_it_was_raised():
    def fn(x):
        try:
            x = fails(x)
        except ValueError as error:
            print(x.sum())
            raise TypeError("second") from error

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        with pytest.raises(TypeError) as raised:
            compiled(X)
        last = traceback.extract_tb(raised.value.__traceback__)[-1]
        assert last.line == 'raise TypeError("second") from error'
        cause = traceback.extract_tb(raised.value.__cause__.__traceback__)
        assert [cause[0].line, cause[-1].line] == ["x = fails(x)", 'raise ValueError("of the callee")']


def test_an_exception_and_its_frames_are_freed_when_it_is_dealt_with():
    class Kept:
        pass

    def fn(x, kept):
        try:
            kept.append(Kept())
            x = fails(x)
        except ValueError:
            print(x.sum())
            x = x + 1
        print(x.sum())
        return x * 2

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        compiled(X, [])
    gc.collect()
    gc.disable()
    try:
        kept: list[Any] = []
        x = torch.ones(2, 3)
        compiled(x, kept)
        objects = [weakref.ref(kept.pop()), weakref.ref(x)]
        del kept, x
        assert [ref() for ref in objects] == [None, None]
    finally:
        gc.enable()


def suspended(start):
    try:
        while True:
            start += (yield start) or 1
    finally:
        start = 0


def a_generator_made_in_a_handler(x):
    try:
        pyframe.graph_break()
        raise KeyError(1)
    except KeyError:
        made = suspended(3)
        first = next(made)
        return x + made.send(2), first


def a_generator_made_in_a_handler_of_a_callee(x):
    def fails():
        raise IndexError(2)

    try:
        fails()
    except IndexError as error:
        made = suspended(3)
        return x + next(made), made.send(2), error.args


@pytest.mark.parametrize("fn", [a_generator_made_in_a_handler, a_generator_made_in_a_handler_of_a_callee])
def test_a_break_planned_within_a_handler(fn):
    x = torch.ones(2)
    assert str(pyframe.compile(fn, backend="eager")(x)) == str(fn(x))
    assert sys.exc_info()[0] is None
