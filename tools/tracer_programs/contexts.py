"""Programs about context managers and warnings."""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from typing import Any

import torch

from .programs import program, x


@program
def catch_warnings() -> Any:
    def f(a: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = a + 1
        return a * 2

    return f, [(x(),), (x(),)], lambda: len(warnings.filters)


@program
def catch_warnings_recorded() -> Any:
    def f(a: Any) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
            b = a + 1
        return b * len(seen), str(seen[0].message)

    return f, [(x(),)]


@program
def catch_warnings_and_warn() -> Any:
    def f(a: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*careful.*", category=UserWarning)
            warnings.warn("careful", stacklevel=1)
            return a.sin() + 1

    return f, [(x(),)]


@program
def warn_outside() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        warnings.warn("careful", DeprecationWarning, stacklevel=2)
        return b * 2

    return f, [(x(),)]


@program
def redirect_stdout() -> Any:
    def f(a: Any) -> Any:
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer):
            print("hidden")
            b = a + 1
        return b * 2, buffer.getvalue()

    return f, [(x(),)]


@program
def redirect_stdout_without_print() -> Any:
    def f(a: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            b = a + 1
        return b * 2

    return f, [(x(),)]


@program
def redirect_stderr() -> Any:
    def f(a: Any) -> Any:
        with contextlib.redirect_stderr(None):
            b = a + 1
        return b * 2

    return f, [(x(),)]


@program
def suppress() -> Any:
    def f(a: Any) -> Any:
        with contextlib.suppress(KeyError):
            a = a + {}["missing"]
        with contextlib.suppress(ValueError, TypeError):
            a = a + int("no")
        return a * 2

    return f, [(x(),)]


@program
def contextmanager_of_the_program() -> Any:
    log: list[str] = []

    @contextlib.contextmanager
    def section(name: str) -> Any:
        log.append(f"enter {name}")
        try:
            yield len(log)
        finally:
            log.append(f"exit {name}")

    def f(a: Any) -> Any:
        with section("one") as n:
            a = a * n
        return a

    return f, [(x(),), (x(),)], lambda: list(log)


@program
def context_class_that_swallows() -> Any:
    class Swallow:
        def __enter__(self) -> Any:
            self.seen: Any = None
            return self

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            self.seen = kind.__name__ if kind else None
            return True

    def f(a: Any) -> Any:
        with Swallow() as s:
            raise RuntimeError("lost")
        return a + len(s.seen)

    return f, [(x(),)]


@program
def exit_stack() -> Any:
    log: list[int] = []

    def f(a: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.callback(log.append, 3)
            b = a * 2
        return b, torch.is_grad_enabled()

    return f, [(x(grad=True),)], lambda: list(log)


@program
def nullcontext_and_conditional() -> Any:
    def f(a: Any, flag: bool) -> Any:
        with torch.no_grad() if flag else contextlib.nullcontext(5) as value:
            b = a * 2
        return b.requires_grad, b, value

    return f, [(x(grad=True), True), (x(grad=True), False)]


@program
def closing_and_other_managers() -> Any:
    class Resource:
        closed = False

        def close(self) -> None:
            self.closed = True

    def f(a: Any) -> Any:
        r = Resource()
        with contextlib.closing(r) as same:
            a = a + (same is r)
        return a, r.closed

    return f, [(x(),)]


@program
def break_in_a_context() -> Any:
    def f(a: Any) -> Any:
        with torch.no_grad():
            b = a * 2
            print("inside")
            c = b + 1
        return c, c.requires_grad, torch.is_grad_enabled()

    return f, [(x(grad=True),)]


@program
def lock_held() -> Any:
    lock = threading.Lock()

    def f(a: Any) -> Any:
        with lock:
            b = a + 1
        return b * 2

    return f, [(x(),)], lock.locked


@program
def local_of_thread() -> Any:
    local = threading.local()
    local.scale = 3

    def f(a: Any) -> Any:
        return a * local.scale

    return f, [(x(),)]
