"""Programs about exceptions."""

from __future__ import annotations

from typing import Any

from .programs import program, x


@program
def exceptions_with_attributes() -> Any:
    class Bad(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"bad {code}")
            self.code = code

    def g(a: Any) -> Any:
        raise Bad(4) from KeyError("cause")

    def f(a: Any) -> Any:
        try:
            g(a)
        except Bad as error:
            return a + error.code, str(error), repr(error.__cause__)
        finally:
            a = a + 100
        return a

    return f, [(x(),)]


@program
def exception_leaves() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        if b.shape[0] > 3:
            raise ValueError(f"too long: {b.shape[0]}")
        return b

    return f, [(x(),), (x(2),)]


@program
def exception_of_an_operator() -> Any:
    def f(a: Any, b: Any) -> Any:
        try:
            return a @ b
        except RuntimeError:
            return a + 1

    return f, [(x(2, 3), x(2, 3)), (x(2, 3), x(3, 2))]


@program
def exception_group() -> Any:
    def f(a: Any) -> Any:
        try:
            raise ExceptionGroup("several", [ValueError("v"), TypeError("t")])
        except* ValueError as group:
            a = a + len(group.exceptions)
        except* TypeError:
            a = a * 2
        return a

    return f, [(x(),)]


@program
def return_in_finally() -> Any:
    def f(a: Any) -> Any:
        for i in range(3):
            try:
                if i == 1:
                    continue
                a = a + i
            finally:
                a = a * 2
        return a

    return f, [(x(),)]


@program
def reraise_and_notes() -> Any:
    def f(a: Any) -> Any:
        try:
            try:
                raise ValueError("inner")
            except ValueError as error:
                error.add_note("noted")
                raise
        except ValueError as error:
            return a + len(error.__notes__)

    return f, [(x(),)]
