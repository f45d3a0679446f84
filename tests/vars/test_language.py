"""Statements and expressions of Python mixed with tensor operations: traced into one graph, with eager's results.

PYTEST_DONT_REWRITE: the assert statements of the samples are themselves under test.
"""
# ruff: noqa: F821, F841, F842, UP028, UP031, UP032, UP037

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from language_support import Table, X, agree

case = Table()
raising = Table()
SCALE = 3
LOG: list[Any] = []


# ---- generators ----
def count_up(n: int) -> Any:
    for i in range(n):
        yield i


@case()
def generator_loop(x):
    total = x
    for i in count_up(4):
        total = total + i * x
    return total


@case()
def generator_lazy(x):
    seen = []

    def rows():
        for row in x:
            seen.append("row")
            yield row

    first = next(rows())
    return first + len(seen), seen


@case()
def yield_from_return(x):
    def inner():
        got = yield x
        yield x + got
        return x * 2

    def outer():
        result = yield from inner()
        yield result + 1

    it = outer()
    a = next(it)
    b = it.send(3)
    c = next(it)
    return a, b, c, list(it)


@case()
def generator_throw(x):
    log = []

    def body():
        try:
            yield x
        except ValueError as error:
            log.append(str(error))
            yield x + 1
        finally:
            log.append("closed")

    it = body()
    next(it)
    y = it.throw(ValueError("thrown"))
    it.close()
    return y, log


@case()
def generator_close_runs_finally(x):
    log = []

    def body():
        try:
            yield x
            log.append("not reached")
        finally:
            log.append("finally")

    it = body()
    y = next(it)
    it.close()
    return y * 2, log, next(it, "done")


@case()
def generator_return_value(x):
    def body():
        yield x
        return 7

    it = body()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return x * stop.value
    return None


@case()
def generator_expressions(x):
    squares = (x * i for i in range(3) if i != 1)
    return sum(squares), list(i + j for i in range(2) for j in range(i + 1)), tuple(a for a in (x, x + 1))


@case()
def generator_yield_from_list(x):
    def body():
        yield from [x, x + 1]
        yield from "ab"
        yield from (i for i in range(2))

    return list(body())


@case()
def generator_unpacked(x):
    def body():
        yield x
        yield x + 1
        yield x + 2

    a, *b = body()
    return a, b, [*body(), *body()], max(v for v in (1, 5, 2))


@case()
def recursive_generator(x):
    def walk(tree):
        if isinstance(tree, list):
            for item in tree:
                yield from walk(item)
        else:
            yield tree

    return [leaf * 2 for leaf in walk([x, [x + 1, [x + 2]], 3])]


@case()
def generator_exception(x):
    def body():
        yield x
        raise KeyError("inside")

    total = x
    try:
        for v in body():
            total = total + v
    except KeyError as error:
        return total, error.args
    return None


@case()
def generator_stop_becomes_runtime_error(x):
    def body():
        yield x
        raise StopIteration("x")

    try:
        list(body())
    except RuntimeError as error:
        return x + 1, str(error)
    return None


# ---- match ----
class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


def describe(value):
    match value:
        case None:
            return "none"
        case True | False:
            return "bool"
        case int(n) if n > 10:
            return f"big {n}"
        case int() | float():
            return "number"
        case str() as s:
            return s.upper()
        case []:
            return "empty"
        case [one]:
            return ("one", one)
        case [first, *rest, last]:
            return (first, len(rest), last)
        case {"kind": "box", "size": (w, h), **more}:
            return (w * h, sorted(more))
        case {"kind": kind}:
            return kind
        case Point(0, b=y):
            return ("axis", y)
        case Point(a=str(), b=y):
            return y
        case _:
            return "other"


@case()
def match_values(x):
    values = [None, True, 5, 50, 2.5, "abc", [], [x], [1, 2, x, 4], (1, 2), {"kind": "box", "size": (2, 3), "z": 1}]
    more = [{"kind": "k"}, {}, Point(0, x), Point("a", 1), Point(2, 2), b"bytes", {1, 2}]
    return [describe(v) for v in values + more]


@case()
def match_constants(x):
    out = []
    for v in ("a", "b", 1, 1.0, SCALE, None):
        match v:
            case "a" | "b":
                out.append(x)
            case 1:
                out.append(x + 1)
            case None:
                out.append(None)
            case other:
                out.append(x * other)
    return out


# ---- expressions ----
@case()
def walrus(x):
    if (n := x.shape[0]) > 1:
        x = x * n
    values = [y := 1, y + 1]
    while (n := n - 1) >= 0:
        x = x + n
    return x, values, [last := i for i in range(3)], last


@case()
def f_strings(x):
    n, f, s = 42, 3.14159, "text"
    width = 10
    parts = f"{n:>8d}|{n:#x}|{n:,}|{f:.2f}|{f:{width}.3e}|{s!r:>8}|{s:*^10}|{n=}|{f=:.1f}|{{}}|{x.shape}|{x.dtype}|{None}|{True:d}"
    return x + len(parts), parts, f"{[1, 2]} {(1,)} {{'a': 1}} { {'a': 1} }", "%s-%d-%5.2f" % (s, n, f), "{} {a!r:>5}".format(n, a=s)


@case()
def stars(x):
    def f(*args, k=1, **kw):
        return len(args), k, sorted(kw)

    def pos(a, b, /, c, *, d=4):
        return a + b + c + d

    first, (second, *third), *_ = [x, [1, 2, 3], 4, 5]
    return f(*[1, 2], *(3,), **{"k": 2}, **{"z": 1}), pos(x, 1, c=2), [*range(2), *"ab"], {*[1], *(2,)}, {**{"a": 1}, "b": x}, first, second, third


@case()
def deletes(x):
    y = x + 1
    del y
    d, items = {"a": 1, "b": 2}, [1, 2, 3, 4]
    del d["a"], items[0], items[-2:]
    try:
        return y
    except UnboundLocalError as error:
        return x, d, items, str(error)


@case()
def nonlocals(x):
    n, history = 1, []

    def bump():
        nonlocal n
        n += 1
        history.append(n)

        def deeper():
            nonlocal n
            n *= 10
            return x * n

        return deeper()

    return bump(), bump(), n, history


@case()
def lambdas(x):
    fs = [lambda v, k=k: v * k for k in range(3)]
    late = [lambda: k for k in range(3)]
    return [f(x) for f in fs], [f() for f in late], (lambda *a, **k: (a, k))(1, b=2), sorted([3, 1, 2], key=lambda v: -v)


def doubling(fn):
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


def scaled(by):
    def decorate(fn):
        return lambda *args: fn(*args) * by

    return decorate


@doubling
@scaled(5)
def decorated(x):
    return x + 1


@case()
def decorators(x):
    @doubling
    @scaled(3)
    def inner(v):
        return v - 1

    return decorated(x), inner(x)


@case()
def chained_comparisons(x):
    a, b = 3, 5
    return 1 < a < b <= 5 != 6, a < 1 < 2, (a and b) or x, a or b, not a, x if a else b, None is None, a in (1, 3), a not in [1]


@case()
def slices(x):
    items = list(range(10))
    items[2:5] = "xyz"
    items[::5] = [0, 0]
    return items[::-1], items[-3:], x[:, 1:], x[..., None], x[0, ::2], "hello"[1:-1:2], (1, 2, 3)[:2]


@case()
def augmented(x):
    y = x.clone()
    y += 1
    y *= 2
    n = 7
    n //= 2
    n **= 3
    n <<= 1
    s = "a"
    s += "b"
    items = alias = [1]
    items += (2,)
    items *= 2
    t = u = (1,)
    t += (2,)
    d = {"n": 1}
    d["n"] += 5
    d |= {"m": 2}
    st = {1}
    st |= {2}
    st -= {1}
    return y, n, s, items, alias is items, t, u, d, st


@case()
def global_reads(x):
    return x * SCALE, [SCALE for _ in range(2)], (lambda: SCALE + 1)()


@case()
def loops(x):
    out = []
    for i in range(6):
        if i == 1:
            continue
        if i == 4:
            break
        out.append(x * i)
    else:
        out.append("no break")
    n = 0
    while n < 3:
        n += 1
    else:
        out.append(n)
    for _ in ():
        pass
    else:
        out.append("else")
    return out


@case()
def comprehensions(x):
    grid = [[i * j for j in range(3)] for i in range(2)]
    table = {k: v for k, v in zip("abc", grid)}
    n = 10
    return grid, table, {i % 2 for i in range(5)}, [n + x for n in range(2)], n, [a for a, *b in [(1, 2), (3, 4)]]


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


# ---- classes made inside ----
@case()
def annotations_inside(x):
    y: int = 3
    z: torch.Tensor

    def f(a: int, b: "str" = "x") -> float:
        return a

    return x * y, sorted(f.__annotations__), f(2)


@case()
def conditional_imports(x):
    import math
    from collections import OrderedDict as OD
    from os import path

    return x * math.floor(2.5), OD(a=1), path.join("a", "b")


@case()
def function_attributes(x):
    def f(a, b=2, *, c=3):
        """doc"""
        return a + b + c

    f.calls = 0
    f.calls += 1
    f.__defaults__ = (5,)
    return f(x), f.calls, f.__name__, f.__doc__, f.__qualname__, f.__defaults__, f.__kwdefaults__, f.__code__.co_argcount


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
