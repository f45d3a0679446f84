"""Texts of numbers that vary between calls are made at run time, unless the program reads them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pyframe
from pyframe.metrics import counters
from pyframe.testing import CompileCounter

X = torch.ones(3)

ORDERED, NAMED = "{}|{:>5}|{{}}|{!r}", "{0} {a} {0:x}"
ONE, SEVERAL = "%d%%", "%05d|%-6d|%+d|%s|%r|%.2f|%#x|%e"
PASSED_ON = {
    "f-string": lambda x, i: (x * i, f"step {i}"),
    "formats": lambda x, i: (x * i, f"{i:03d}|{i + 1:>5}|{i!r}|{{{i}}}"),
    "str and repr": lambda x, i: (x * i, str(i), [repr(i)], {"a": f"{i}"}),
    "sizes": lambda x, i: (x * i, f"{x.shape[0] * i} {i:e}"),
    "joined": lambda x, i: (x * i, "-".join([f"{i}", "a", str(i + 1)]), ", ".join([str(i)])),
    "str.format": lambda x, i: (x * i, ORDERED.format(i, i + 1, "a"), NAMED.format(i, a=i * 2)),
    "percent": lambda x, i: (x * i, ONE % i, SEVERAL % (i, i, i, i, "a", i / 2, i, i)),
    "added": lambda x, i: (x * i, "a" + str(i) + "b", str(i) + str(i + 1)),
    "braces": lambda x, i: (x * i, "{" + f"{i}" if i < 0 else f"}}{i}{{"),
}
READ = {
    "length": lambda x, i: (x * i, len(f"{i}")),
    "key": lambda x, i: (x * i, {f"k{i}": 1}),
    "character": lambda x, i: (x * i, f"{i:c}"),
    "fill": lambda x, i: (x * i, format(i, "{<5")),
    "compared": lambda x, i: (x * i, f"{i}" + "a", f"{i}" == "3"),
    "upper": lambda x, i: (x * i, ORDERED.format(i, i, i).upper()),
}


def captures(fn: Any, numbers: Any) -> int:
    counter = CompileCounter()
    compiled = pyframe.compile(fn, backend=counter)
    for i in numbers:
        got, want = compiled(X, i), fn(X, i)
        assert got[1:] == want[1:] and torch.equal(got[0], want[0])
    return counter.frame_count


@pytest.mark.parametrize("name", PASSED_ON)
def test_passed_on(name: str) -> None:
    assert captures(PASSED_ON[name], [65, 66, 67, 68, 70]) == 2


@pytest.mark.parametrize("name", READ)
def test_read(name: str) -> None:
    assert captures(READ[name], [65, 66, 67, 66]) == 3


WRONG = ["{} {}", "{0} {}", "{q}", "{.real}", "{:{}}", "{!a}", "{", "%d %d", "%", "%q", "%(a)d", "%*d", "%.3d", "%c", "%5s"]


@pytest.mark.parametrize("template", WRONG)
def test_templates_that_are_left_to_python(template):
    def f(x, i):
        try:
            return x * i, template.format(i) if "{" in template else template % i
        except (ValueError, TypeError, LookupError) as error:
            return x + i, type(error).__name__, str(error)

    captures(f, [65, 66, 67])


def test_formats_that_raise():
    def f(x, i):
        try:
            return x * i, f"{i:q}"
        except ValueError as error:
            return x + i, str(error)

    captures(f, [2, 3, 4])


def test_printed(capsys):
    def f(x, i):
        y = x * i
        print(f"step {i}")
        return (y + 1,)

    assert captures(f, [2, 3, 4, 5]) == 3
    assert capsys.readouterr().out.split("\n")[:-1] == [f"step {i}" for i in (2, 3, 4, 5) for _ in range(2)]


def test_integer_functions():
    assert captures(lambda x, i: (x * i, divmod(i, 3), ~i, divmod(-i, 4)), [5, 6, 7, 8]) == 2


def test_dividing_by_zero():
    def f(x, i):
        try:
            return x * i, divmod(7, i - 3)
        except ZeroDivisionError as error:
            return x, str(error)

    captures(f, [2, 5, 3, 4])


def test_floats_that_vary_have_no_inverse():
    def program(x, number):
        return x * 2 * ~number

    fast = pyframe.compile(program, backend="eager")
    for number in (0.5, 1.5, 2.5):
        with pytest.raises(TypeError, match="bad operand type for unary ~: 'float'"):
            fast(torch.ones(2), number)
    assert fast(torch.ones(2), 3).tolist() == [-8.0, -8.0]


def test_texts_of_sizes():
    """A message with the shape of a tensor does not fix the sizes."""

    def program(x):
        return x + 1, f"{x.shape} {tuple(x.shape[:1])} {list(x.shape)!r}", str(x.shape)

    fast = pyframe.compile(program, backend="eager", fullgraph=True)
    for n in (4, 5, 6, 7):
        x = torch.ones(n, 2, n)
        assert str(fast(x)) == str(program(x))
    assert counters["graphs"] == 2
