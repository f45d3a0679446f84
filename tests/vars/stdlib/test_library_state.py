"""Parts of the standard library that keep state of their own, and modes of torch entered by name: as in eager."""
# ruff: noqa: B018, E501

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import functools
import inspect
import math
import struct
import sys
import threading
import weakref
import zlib
from decimal import Decimal
from typing import Any

import pytest
import torch
from language_support import Table, agree, same

import pyframe
from pyframe.metrics import counters

case = Table()
X = torch.arange(6.0).reshape(2, 3)
LEAF = X.clone().requires_grad_()


class Log:
    def __init__(self, log, suppress=False):
        self.log, self.suppress = log, suppress

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind and kind.__name__)
        return self.suppress


class Named:
    """Something to refer to."""

    def __init__(self, v=1):
        self.v = v


@case(LEAF)
def modes_on_an_exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(Log(log))
        stack.callback(log.append, "called")
        y = x * 2
    with contextlib.ExitStack() as stack:
        for mode in (torch.autocast("cpu", enabled=False), torch.profiler.record_function("a"), Log(log, True)):
            stack.enter_context(mode)
        z = x @ x.t()
        raise ValueError("left")
    return y.requires_grad, z.dtype, (x * 3).requires_grad, log


@case(LEAF)
def modes_entered_by_name(x):
    mode = torch.no_grad()
    mode.__enter__()
    y = x * 2
    mode.__exit__(None, None, None)
    return y.requires_grad, (x * 2).requires_grad


@case(LEAF)
def modes_as_decorators(x):
    @torch.no_grad()
    def f(t):
        return t * 2

    @torch.no_grad
    def g(t):
        return t * 3

    @torch.enable_grad()
    def h(t):
        return t * 4

    with torch.no_grad():
        z = h(x)
    return f(x).requires_grad, g(x).requires_grad, z.requires_grad, f.__name__, (x * 2).requires_grad


LOCAL = threading.local()
LOCAL.v = 3


class Depth(threading.local):
    def __init__(self):
        self.depth = 1


DEPTH = Depth()


@case()
def thread_locals(x):
    LOCAL.n = 1
    LOCAL.n += 1
    DEPTH.depth += 1
    seen = DEPTH.depth, LOCAL.n, hasattr(LOCAL, "zz"), getattr(LOCAL, "q", None)
    DEPTH.depth -= 1
    del LOCAL.n
    return x * LOCAL.v, seen, sorted(vars(LOCAL)), hasattr(LOCAL, "n")


@case(X, Decimal("2.50"))
def decimals(x, d):
    e = Decimal("1.5") + d
    errors = []
    for wrong in (lambda: Decimal("abc"), lambda: d / 0, lambda: d + 1.5):
        try:
            wrong()
        except (ArithmeticError, TypeError) as error:
            errors.append(type(error).__name__)
    return x * float(e), str(d), 1 + d, -d, abs(d), d**2, divmod(d, 2), round(d, 1), d == 2.5, 2 < d, f"{d:.3f}", d.sqrt(), int(d), max(d, Decimal(3)), {d: 1}[d], d.quantize(Decimal("1")), errors


@case()
def packed_bytes(x):
    return x + struct.unpack("<I", struct.pack("<I", 7))[0], struct.calcsize("<If"), zlib.crc32(b"a")


@case()
def signatures_of_made_functions(x):
    def f(a, b: int = 2, *c, d, **e) -> float:
        return a

    s = inspect.signature(f)
    bound = s.bind(x, d=1)
    bound.apply_defaults()
    return bound.arguments["a"] + 1, str(s), list(s.parameters), s.parameters["b"].default, inspect.getfullargspec(f).args


@case()
def fields_made_by_hand(x):
    @dataclasses.dataclass
    class P:
        a: Any
        b: list = dataclasses.field(default_factory=list, repr=False)
        c: int = dataclasses.field(default=3, compare=False)

    return P(x).a + 1, [f.name for f in dataclasses.fields(P)], [f.type for f in dataclasses.fields(P(x))], repr(P(1))


@case()
def contents_of_cells(x):
    n = 0

    def inc():
        nonlocal n
        n += 1

    inc()
    return x + 1, inc.__closure__[0].cell_contents


@case()
def states_of_generators(x):
    def g():
        yield x
        yield x + 1

    made = g()
    before = made.gi_running, made.gi_suspended, made.__name__
    first = next(made)
    return first, before, inspect.getgeneratorstate(made), list(made)[0], inspect.getgeneratorstate(made)


@case()
def caches_of_inner_functions(x):
    calls = []

    @functools.lru_cache(maxsize=2)
    def f(a, b=1, *, c=0):
        calls.append((a, b, c))
        return x * a + b + c

    @functools.lru_cache(maxsize=None, typed=True)
    def typed(a):
        return a

    class A:
        made = 0

        @functools.cache
        def double(self, k):
            A.made += 1
            return k * 2

    @functools.cache
    def of_tensor(t):
        calls.append("tensor")
        return t * 2

    @functools.lru_cache(maxsize=0)
    def never(values):
        return len(values)

    found = [f(1), f(1.0), f(True), f(1), f(1, 1), f(2), f(3), f(1), f(1, c=2), f(1, c=2), of_tensor(x), of_tensor(x)]
    info = f.cache_info()
    f.cache_clear()
    typed(1), typed(1.0), typed(True), typed(1)
    try:
        typed([])
    except TypeError as error:
        refused = str(error)
    never([]), never([2])
    infos = info, f.cache_info(), typed.cache_info(), never.cache_info()
    a = A()
    return found, calls, infos, f.__name__, refused, x * a.double(2) + a.double(2), A.made


KEPT = Named(4)
BY_KEY = weakref.WeakKeyDictionary({KEPT: 3})
BY_VALUE = weakref.WeakValueDictionary({"a": KEPT})


@case()
def weak_references(x):
    local = Named(x)
    r, s = weakref.ref(local), weakref.ref(KEPT)
    try:
        weakref.ref(3)
    except TypeError as error:
        refused = str(error)
    by_key = BY_KEY[KEPT], KEPT in BY_KEY, len(BY_KEY), BY_KEY.get(BY_KEY)
    return r().v + s().v, r() is local, s == weakref.ref(KEPT), r == s, refused, by_key, BY_VALUE["a"].v, "b" in BY_VALUE


@case()
def registered_inside(x):
    @functools.singledispatch
    def show(arg):
        return "any"

    @show.register(int)
    def _(arg):
        return "int"

    return x + 1, show(1), show("a"), show.dispatch(int)(3)


LOCK, RLOCK, HELD = threading.Lock(), threading.RLock(), {"a": 2}


@case()
def looks_under_locks(x):
    with LOCK, RLOCK:
        with RLOCK:
            found = HELD["a"]
    try:
        with LOCK:
            raise KeyError("left")
    except KeyError:
        pass
    return x * found


@pytest.mark.parametrize("each", case, ids=case.name)
def test_one_graph(each):
    agree(*each)


def run(fn, *calls):
    """Each call is what eager does, in the order of the calls."""
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    for args in calls:
        assert same(fn(*args), compiled(*args))


def test_a_mode_entered_by_name_outlives_a_break():
    def f(x):
        mode = torch.no_grad()
        mode.__enter__()
        y = x * 2
        pyframe.graph_break()
        z = x * 3
        mode.__exit__(None, None, None)
        return y.requires_grad, z.requires_grad, (x * 2).requires_grad

    def g(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            y = x * 2
            pyframe.graph_break()
            z = x * 3
        return y.requires_grad, z.requires_grad, (x * 2).requires_grad

    def left_open(x):
        torch.no_grad().__enter__()
        return x * 2

    run(f, (LEAF,), (LEAF,))
    run(g, (LEAF,), (LEAF,))
    for fn in (left_open, pyframe.compile(left_open, backend="eager")):
        try:
            assert not fn(LEAF).requires_grad and not torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)


def test_each_thread_has_its_own_attributes():
    def f(x):
        return x * getattr(LOCAL, "v", 0)

    pyframe.reset()
    compiled = pyframe.compile(f, backend="eager")
    found = [compiled(X)]
    thread = threading.Thread(target=lambda: found.append(compiled(X)))
    thread.start()
    thread.join()
    assert torch.equal(found[0], X * 3) and torch.equal(found[1], X * 0)


def test_decimals_are_of_their_context():
    def f(x, d):
        return x + 1, d / 3, str(d)

    before = decimal.getcontext().prec
    pyframe.reset()
    compiled = pyframe.compile(f, backend="eager")
    try:
        for prec, d in ((28, "1"), (5, "1"), (5, "1.0"), (28, "1")):
            decimal.getcontext().prec = prec
            assert compiled(X, Decimal(d))[1:] == f(X, Decimal(d))[1:]
    finally:
        decimal.getcontext().prec = before


def test_an_implementation_that_is_registered_in_between():
    def f(x):
        @functools.singledispatch
        def show(arg):
            return "any"

        show.register(int, lambda arg: "int")
        return x + 1, show(1), show("a"), show.dispatch(int)(2)

    run(f, (X,), (X * 2,))


def test_proxies_are_asked_for_real():
    named = Named(4)

    def f(x):
        return x * weakref.proxy(named).v

    run(f, (X,), (X * 2,))
    assert counters["graphs"]


def test_weak_references_to_what_may_be_gone():
    def deleted(x):
        named = Named(1)
        r = weakref.ref(named)
        del named
        return x + 1, r()

    def never_held(x):
        return x + 1, weakref.ref(Named(1))()

    def key_that_goes(x):
        held, named = weakref.WeakKeyDictionary(), Named(1)
        held[named] = x
        before = len(held)
        del named
        return x + 1, before, len(held)

    for fn in (deleted, never_held, key_that_goes):
        run(fn, (X,), (X * 2,))


def test_a_cache_that_leaves_the_graph():
    def f(x):
        @functools.cache
        def double(a):
            return a * 2

        y = x * double(2)
        return y, type(double), double.cache_info()

    run(f, (X,), (X * 2,))


def changes_under_a_lock(x):
    with LOCK:
        HELD["n"] = HELD.get("n", 0) + 1
    return x * HELD["n"]


def computes_under_a_lock(x):
    with LOCK:
        return x + 1


@pytest.fixture
def other_thread():
    """Another thread that runs Python code."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


def test_a_lock_is_taken_for_real_where_the_program_works_under_it(other_thread):
    seen = []

    def breaks(x):
        with RLOCK, LOCK:
            pyframe.graph_break()
            seen.append(LOCK.locked())
        return x + 1

    for fn in (changes_under_a_lock, computes_under_a_lock, breaks):
        HELD.pop("n", None)
        expected = fn(X), fn(X * 2)
        HELD.pop("n", None)
        pyframe.reset()
        compiled = pyframe.compile(fn, backend="eager")
        assert same(expected, (compiled(X), compiled(X * 2))) and not LOCK.locked()
    assert seen == [True] * 4


@pytest.fixture
def alone(monkeypatch):
    """No other thread runs Python code, although the process of the tests may have some."""
    monkeypatch.setattr(sys, "_current_frames", lambda: {threading.get_ident(): None})


def test_a_lock_is_not_taken_while_no_other_thread_runs(alone):
    module = torch.nn.Linear(3, 3)

    def by_name(x):
        LOCK.acquire()
        try:
            HELD["n"] = HELD.get("n", 0) + int(LOCK.locked())
            return x * HELD["n"]
        finally:
            LOCK.release()

    def installs(x):
        with RLOCK, LOCK:
            if not hasattr(module, "ready"):
                module.register_forward_hook(lambda module, args, result: result * 2)
                module.ready = True
        return module(x)

    for fn in (changes_under_a_lock, computes_under_a_lock, by_name):
        HELD.pop("n", None)
        expected = fn(X), fn(X * 2)
        HELD.pop("n", None)
        compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
        assert same(expected, (compiled(X), compiled(X * 2))) and not LOCK.locked()
    plain = module(X)
    compiled = pyframe.compile(installs, backend="eager", fullgraph=True)
    assert all(torch.allclose(compiled(X), plain * 2) for _ in range(2)) and len(module._forward_hooks) == 1


def called_while_locked(compiled):
    """What ends first when another thread calls `compiled` while this one has the lock."""
    order = []

    def call():
        compiled(X)
        order.append("called")

    with LOCK:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(0.2)
        order.append("released")
    thread.join()
    return order


def test_a_lock_is_taken_once_another_thread_runs():
    compiled = pyframe.compile(computes_under_a_lock, backend="eager")
    compiled(X)
    assert called_while_locked(compiled) == ["released", "called"]


def test_a_lock_that_a_break_leaves_taken_is_taken(alone):
    def fn(x):
        LOCK.acquire()
        y = x + 1
        pyframe.graph_break()
        held = LOCK.locked()
        LOCK.release()
        return y, held

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        assert same(compiled(X), (X + 1, True)) and not LOCK.locked()


def test_a_lock_that_another_has_is_waited_for():
    def f(x):
        with LOCK:
            found = HELD["a"]
        return x * found

    pyframe.reset()
    compiled = pyframe.compile(f, backend="eager")
    compiled(X)
    assert called_while_locked(compiled) == ["released", "called"]


def test_a_cached_function_reads_what_the_program_changed():
    numbers = [1]

    @functools.lru_cache
    def count(n):
        return n + len(numbers)

    def fn(x, n):
        numbers.append(n)
        return x + count(n)

    compiled, x = pyframe.compile(fn, backend="eager"), torch.ones(2)
    for n in (1, 1, 2):
        numbers[:] = [1]
        count.cache_clear()
        torch.testing.assert_close(compiled(x, n), x + n + 2)


def test_a_cached_function_that_reads_nothing_is_captured_after_a_change():
    numbers = []

    @functools.lru_cache
    def table(n):
        return math.factorial(n)

    def fn(x):
        numbers.append(1)
        return x + table(4)

    torch.testing.assert_close(pyframe.compile(fn, backend="eager", fullgraph=True)(torch.ones(2)), torch.full((2,), 25.0))


class Referent:
    pass


def test_an_object_has_one_weak_reference_without_a_callback():
    held, other = Referent(), Referent()
    ref = weakref.ref(held)
    with_callback = weakref.ref(held, lambda _: None)
    keys = {"a": weakref.ref(other)}

    def f(x):
        new = weakref.ref(held)
        return (
            x + 1, new is ref, new is weakref.ref(held), weakref.ref(other) is ref, weakref.ref(other) is keys["a"],
            with_callback is new, with_callback is ref, weakref.ref(held, print) is new,
        )  # fmt: skip

    compiled = pyframe.compile(f, backend="eager")
    assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:] == (True, True, False, True, False, False, False)
    ref, keys["a"] = keys["a"], ref
    assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]


class Counted:
    def __init__(self):
        self.n = 0
        self.held = [self]


class ReadsGlobal:
    def number(self):
        return COUNTED.n


COUNTED, OTHER, READER = Counted(), Counted(), ReadsGlobal()


@pytest.mark.parametrize(
    "read, captured",
    [
        (lambda: len(OTHER.held), True), (lambda: COUNTED.n, False), (lambda: READER.number(), False),
        (lambda: OTHER.held[0].n, True), (lambda: [COUNTED][0].n, False),
    ],
)  # fmt: skip
def test_a_cached_function_after_a_change_of_an_object_that_it_cannot_reach(read, captured):
    """Methods count: they read globals of their own."""
    cached = functools.lru_cache(read)

    def fn(x, n):
        COUNTED.n = n
        return x + cached()

    pyframe.reset()
    compiled, x = pyframe.compile(fn, backend="eager"), torch.ones(2)
    for n in (3, 4):
        cached.cache_clear()
        got = compiled(x, n)
        cached.cache_clear()
        torch.testing.assert_close(got, fn(x, n))
    assert (not counters["graph_breaks"]) is captured
