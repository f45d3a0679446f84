"""Programs about functions, their attributes, wrappers and caches."""

from __future__ import annotations

import functools
import logging
import types
from typing import Any

from .programs import program, x


@program
def bound_methods_compared() -> Any:
    class Op:
        def run(self, v: Any) -> Any:
            return v + 1

    op = Op()

    def f(a: Any) -> Any:
        m = op.run
        same = m == op.run and m.__self__ is op and m.__func__ is Op.run
        return types.MethodType(Op.run, op)(a) * 2 if same else a

    return f, [(x(),)]


@program
def function_attributes() -> Any:
    def helper(v: Any, k: int = 2, *, s: int = 3) -> Any:
        """Doc."""
        return v * k + s

    helper.tag = 5  # type: ignore[attr-defined]

    def f(a: Any) -> Any:
        n = helper.__defaults__[0] + helper.__kwdefaults__["s"] + helper.tag + len(helper.__doc__)  # type: ignore
        return helper(a) * n, helper.__name__

    return f, [(x(),)]


@program
def wrapped_functions() -> Any:
    def twice(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(fn(*args, **kwargs))

        return inner

    @twice
    def step(v: Any) -> Any:
        return v + 1

    def f(a: Any) -> Any:
        @twice
        def local(v: Any) -> Any:
            return v * 2

        return step(a) + local(a), step.__wrapped__(a), local.__name__  # type: ignore[attr-defined]

    return f, [(x(),)]


@program
def lru_cache() -> Any:
    @functools.lru_cache
    def table(n: int) -> int:
        return n * n

    def f(a: Any) -> Any:
        return a * table(3) + table(4)

    return f, [(x(),), (x(),)]


@program
def single_dispatch() -> Any:
    @functools.singledispatch
    def apply(v: Any, a: Any) -> Any:
        return a

    @apply.register
    def _(v: int, a: Any) -> Any:
        return a + v

    @apply.register
    def _(v: str, a: Any) -> Any:
        return a * len(v)

    def f(a: Any) -> Any:
        return apply(3, a) + apply("ab", a) + apply(None, a)

    return f, [(x(),)]


@program
def logging_calls() -> Any:
    log = logging.getLogger("tracer_programs")

    def f(a: Any) -> Any:
        b = a + 1
        log.debug("value %s", 3)
        if log.isEnabledFor(logging.ERROR):
            b = b * 2
        return b

    return f, [(x(),)]


@program
def recursion() -> Any:
    def fact(a: Any, n: int) -> Any:
        return a if n == 0 else fact(a * n, n - 1)

    def f(a: Any) -> Any:
        return fact(a, 5)

    return f, [(x(),)]


@program
def exec_and_eval() -> Any:
    def f(a: Any) -> Any:
        return a + eval("1 + 2")

    return f, [(x(),)]


@program
def import_in_function() -> Any:
    def f(a: Any) -> Any:
        import math
        from functools import reduce

        return a * math.pi + reduce(lambda p, q: p + q, [1, 2, 3])

    return f, [(x(),)]


@program
def inspect_signature() -> Any:
    import inspect

    def g(a: Any, b: int = 2) -> Any:
        return a * b

    def f(a: Any) -> Any:
        names = list(inspect.signature(g).parameters)
        return g(a) + len(names)

    return f, [(x(),)]


@program
def objects_with_del() -> Any:
    log: list[str] = []

    class Guard:
        def __del__(self) -> None:
            log.append("gone")

    def f(a: Any) -> Any:
        g = Guard()
        b = a + 1
        del g
        return b * 2

    return f, [(x(),)], lambda: list(log)
