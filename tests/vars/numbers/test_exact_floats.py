"""Floats that are read from tensors, or computed of sizes, are what the program's operators make of them: expressions are
not simplified as if floats were real numbers."""

import itertools
import math
from decimal import Decimal

import pytest
import torch

import pyframe

VALUES = (0.0, -0.0, 1.0, -2.5, 1e308, math.inf, math.nan)
EXPRESSIONS = {
    "0 + a": lambda a, b: a + 0,
    "0 - a": lambda a, b: 0 - a,
    "a * 0": lambda a, b: a * 0,
    "a - a": lambda a, b: a - a,
    "a == a": lambda a, b: a == a,
    "a != a": lambda a, b: a != a,
    "a <= a": lambda a, b: a <= a,
    "a // 1": lambda a, b: a // 1,
    "a // b": lambda a, b: a // b,
    "divmod": lambda a, b: divmod(a, b),
    "large": lambda a, b: a + 1e308 - 1e308,
    "sum": lambda a, b: sum([a, b]),
    "twice": lambda a, b: 2 * (a + b),
    "constants": lambda a, b: (a + 0.1 + 0.2, a * 0.1 * 3),
    "square": lambda a, b: a**2,
    "power": lambda a, b: 2**a,
    "int": lambda a, b: int(a),
    "floor": lambda a, b: math.floor(a / 2),
    "sqrt": lambda a, b: math.sqrt(a),
    "text": lambda a, b: str(a // 1),
}
ERRORS = (ArithmeticError, ValueError, TypeError)


def outcomes(fn, of):
    found = []
    for a, b in itertools.product(VALUES, (0.0, -0.0, 3.0)):
        try:
            found.append(repr(fn(*of(a, b))))
        except ERRORS as error:
            found.append(repr(error))
    return found


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_of_numbers_in_tensors(name, handled):
    compute = EXPRESSIONS[name]

    def plain(x):
        return compute(x[0].item(), x[1].item())

    def caught(x):
        try:
            return compute(x[0].item(), x[1].item())
        except ERRORS as error:
            return "caught", str(error)

    def of(a, b):
        return (torch.tensor([a, b], dtype=torch.float64),)

    fn = caught if handled else plain
    assert outcomes(pyframe.compile(fn, backend="eager"), of) == outcomes(fn, of)


@pytest.mark.parametrize("name", ["square", "power", "divmod", "constants"])
def test_of_arguments(name):
    compute = EXPRESSIONS[name]

    def fn(x, a, b):
        x = x + 1
        try:
            return compute(a, b)
        except ERRORS as error:
            return "caught", str(error)

    def of(a, b):
        return torch.ones(2), a, b

    assert outcomes(pyframe.compile(fn, backend="eager", dynamic=True), of) == outcomes(fn, of)


def test_of_sizes():
    def fn(x):
        third = x.shape[0] / 3
        return third + 0.1 + 0.2, third * 0.1 * 3, x * (third + 0.1 + 0.2), (third * 1e308 * 1e-308, third == third)

    captured = pyframe.compile(fn, backend="eager", dynamic=True)
    for size in range(2, 30):
        assert repr(captured(torch.ones(size))) == repr(fn(torch.ones(size)))


def test_of_many_operators():
    def fn(x):
        number = x[0].item()
        for _ in range(350):
            number = number * 1.01 + 1e-3
        return number, x + number

    x = torch.ones(3)
    assert repr(pyframe.compile(fn, backend="eager", fullgraph=True)(x)) == repr(fn(x))


@pytest.mark.parametrize("other", ["a", None, (1,), Decimal(2), 2j])
@pytest.mark.parametrize("compute", [lambda a, b: a > b, lambda a, b: b < a, lambda a, b: a == b, lambda a, b: a + b])
@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: int(x.sum()), lambda x: x.shape[0]])
def test_with_what_is_no_number(read, compute, other):
    def fn(x):
        try:
            return compute(read(x), other)
        except TypeError as error:
            return str(error)

    captured = pyframe.compile(fn, backend="eager", dynamic=True)
    for x in (torch.full((3,), 1 / 3), torch.ones(2), torch.ones(4)):
        assert str(captured(x)) == str(fn(x))
