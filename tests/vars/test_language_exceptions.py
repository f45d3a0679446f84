"""Exceptions and context managers in traced code: what is caught inside, and what leaves the function.

PYTEST_DONT_REWRITE: the assert statements of the samples are themselves under test.
"""
# ruff: noqa: F821, F841, F842, UP028, UP031, UP032, UP037

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from language_support import Point, Table, X, agree

case = Table()
raising = Table()
LOG: list[Any] = []


# ---- exceptions ----
@case()
def try_else_finally(x):
    log = []
    for fail in (False, True):
        try:
            log.append("try")
            if fail:
                raise ValueError("v")
        except (KeyError, ValueError) as error:
            log.append(f"except {error}")
        else:
            log.append("else")
            x = x + 1
        finally:
            log.append("finally")
            x = x * 2
    return x, log


@case()
def raise_from(x):
    try:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        return x, str(error), type(error.__cause__).__name__, error.__cause__.args, error.__suppress_context__


@case()
def raise_from_none(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as error:
        return x, error.__cause__, error.__suppress_context__, type(error.__context__).__name__


@case()
def implicit_context(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b")
    except ValueError as error:
        return x + 1, type(error.__context__).__name__, error.__cause__


@case()
def reraise(x):
    log = []
    try:
        try:
            raise IndexError("i")
        except IndexError:
            log.append("inner")
            raise
    except LookupError as error:
        log.append(repr(error))
    return x, log


@case()
def return_in_finally(x):
    def f():
        try:
            return x
        finally:
            LOG.clear()

    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 2:
                    return x * i
        return None

    return f(), g()


class AppError(Exception):
    def __init__(self, code, message="app"):
        super().__init__(f"{message}: {code}")
        self.code = code


class SubError(AppError):
    def __str__(self):
        return f"<{self.code}>"


@case()
def user_exceptions(x):
    out = []
    for make in (lambda: AppError(3), lambda: SubError(4, "sub"), lambda: AppError(code=5)):
        try:
            raise make()
        except AppError as error:
            out.append((error.code, str(error), error.args, isinstance(error, SubError)))
    return x * out[0][0], out


@case()
def exception_methods(x):
    e = ValueError("a", 1)
    e.add_note("note")
    e.extra = x
    return e.args, str(e), repr(e), e.extra, e.__notes__, isinstance(e, Exception), type(e) is ValueError, str(KeyError("k")), repr(KeyError())


@case()
def asserts(x):
    assert x.shape[0] == 2, "shape"
    try:
        assert not x.shape, f"shape {tuple(x.shape)}"
    except AssertionError as error:
        return x, str(error)


@case()
def errors_of_the_interpreter(x):
    out = []
    n = None

    def few(a, b):
        return a

    attempts = [
        lambda: [1][5],
        lambda: {}["k"],
        lambda: (1).missing,
        lambda: n.attribute,
        lambda: 1 + "a",
        lambda: "a" < 1,
        lambda: 1 / 0,
        lambda: int("x"),
        lambda: undefined_name,  # noqa: F821
        lambda: few(1),
        lambda: few(1, 2, 3),
        lambda: few(1, c=2),
        lambda: few(1, 2, b=3),
        lambda: few(),
        lambda: [1, 2].index(9),
        lambda: next(iter(())),
        lambda: None(),
        lambda: None[0],
        lambda: len(5),
        lambda: iter(5),
        lambda: {[]: 1},
        lambda: {1}.remove(2),
        lambda: [].pop(),
        lambda: max([]),
        lambda: "abc".index("z"),
        lambda: -"a",
        lambda: ~1.5,
        lambda: 5 in 5,
        lambda: [*5],
        lambda: (lambda *, k: k)(),
        lambda: (lambda a, /: a)(a=1),
        lambda: object().x,
        lambda: [1, 2] + (3,),
        lambda: chr(-1),
        lambda: "%d" % "x",
        lambda: Point(1),
        lambda: few(**{"a": 1}, **{"a": 2}),
        lambda: dict([1]),
        lambda: dict([(1, 2, 3)]),
        lambda: [3, "a"].sort(),
        lambda: "a".join([1]),
        lambda: slice(1, 2).missing,
        lambda: range(1, 2, 0),
        lambda: (1, 2)["a"],
        lambda: [1]["a"],
        lambda: bytes([300]),
    ]
    for attempt in attempts:
        try:
            attempt()
            out.append("no error")
        except Exception as error:
            out.append(f"{type(error).__name__}: {error}")
    return x + 1, out


@case()
def unpacking_errors(x):
    out = []
    try:
        a, b = [1, 2, 3]
    except ValueError as error:
        out.append(str(error))
    try:
        a, b = (1,)
    except ValueError as error:
        out.append(str(error))
    try:
        a, *b, c = (1,)
    except ValueError as error:
        out.append(str(error))
    try:
        a, b = 5
    except TypeError as error:
        out.append(str(error))
    return x, out


@case()
def except_variable_is_deleted(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        kept = error
    try:
        return error
    except UnboundLocalError:
        return x, str(kept)


@case()
def nested_handlers(x):
    log = []

    def f(n):
        try:
            if n == 0:
                raise KeyError(n)
            return f(n - 1)
        except KeyError:
            log.append(n)
            if n < 2:
                raise
            return x * n
        finally:
            log.append(-n)

    return f(3), log


# ---- with ----
class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append("exit" if kind is None else f"exit {kind.__name__} {value}")
        return self.swallow


@contextlib.contextmanager
def managed(log, name):
    log.append(f"in {name}")
    try:
        yield name
    except ValueError as error:
        log.append(f"caught {error}")
    finally:
        log.append(f"out {name}")


@case()
def user_context(x):
    log = []
    with Manager(log) as m, Manager(log):
        x = x + len(log)
    with Manager(log, swallow=True):
        raise ValueError("swallowed")
    try:
        with Manager(log):
            raise ValueError("seen")
    except ValueError:
        log.append("caught")
    return x, log, m.swallow


@case()
def contextmanager_decorator(x):
    log = []
    with managed(log, "a") as name:
        x = x * len(name)
    with managed(log, "b"):
        raise ValueError("inside")
    try:
        with managed(log, "c"):
            raise KeyError("through")
    except KeyError as error:
        log.append(repr(error))
    return x, log


@case()
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(managed(log, "a"))
        stack.callback(log.append, "callback")
        stack.enter_context(Manager(log))
        x = x + len(a)
    return x, log


@case()
def exit_stack_swallows(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log, swallow=True))
        stack.push(lambda *exc: log.append(exc[0].__name__ if exc[0] else None))
        raise ValueError("gone")
    return x, log


@case()
def return_inside_with(x):
    log = []

    def f():
        with Manager(log):
            for i in range(3):
                with managed(log, str(i)):
                    if i == 1:
                        return x * i
        return None

    return f(), log


# ---- what leaves the function ----
@raising()
def raises_directly(x):
    y = x + 1
    raise ValueError(f"bad {tuple(y.shape)}")


@raising()
def raises_in_call(x):
    def deep(v):
        return {"a": v + 1}["b"]

    return deep(x)


@raising()
def raises_user_error(x):
    raise SubError(12)


@raising()
def raises_in_context(x):
    log = []
    with Manager(log):
        with managed(log, "m"):
            raise KeyError(str(x.dtype))


@raising()
def raises_in_generator(x):
    def body():
        yield x
        raise IndexError("in generator")

    return [v + 1 for v in body()]


@raising()
def raises_from(x):
    try:
        int("q")
    except ValueError as error:
        raise RuntimeError("wrapped") from error


@raising()
def raises_torch_error(x):
    return x @ x


@raising()
def raises_assertion(x):
    y = x * 2
    assert y.shape[0] == 3, f"got {y.shape[0]}"
    return y


@raising(X, [1])
def raises_after_effect(x, out):
    out.append(x + 1)
    out[0] = 5
    raise RuntimeError(len(out))


@raising()
def raises_type_error(x):
    def f(a, b):
        return a

    return f(x)


@raising()
def raises_attribute_error(x):
    return x.no_such_attribute


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)


@pytest.mark.parametrize("row", raising, ids=Table.name)
@pytest.mark.parametrize("fullgraph", [False, True], ids=["breaks", "fullgraph"])
def test_errors_leave_as_in_eager(row: Any, fullgraph: bool) -> None:
    agree(*row, fullgraph=fullgraph)
