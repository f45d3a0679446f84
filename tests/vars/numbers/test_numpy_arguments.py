"""numpy scalars as arguments that vary: one capture for all values in torch's operators, sizes and slices, and the
results of eager where the program does anything else with them."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch

import pyframe
from pyframe.testing import CompileCounter

X = torch.arange(6.0).reshape(2, 3) + 1
INTS = [np.int64, np.int32, np.int8, np.uint8]
FLOATS = [np.float64, np.float32, np.float16]


def check(program, values, x=X, captures=None, **settings):
    """Compares a compiled program with eager for each value; `captures`: how many there may be."""
    counter = CompileCounter()
    fn = pyframe.compile(program, backend=counter, **settings)
    for value in values:
        found, wanted = fn(x, value), program(x, value)
        assert type(found) is type(wanted)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        if isinstance(wanted, torch.Tensor):
            assert found.dtype == wanted.dtype
    if captures is not None:
        assert counter.frame_count <= captures


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.lt, operator.eq]


@pytest.mark.parametrize("x", (X, X.to(torch.int8), X.half(), X > 2), ids=lambda x: str(x.dtype))
@pytest.mark.parametrize("kind", INTS + FLOATS)
@pytest.mark.parametrize("apply", OPERATORS)
def test_operands(apply, kind, x):
    if x.dtype == torch.bool and apply is operator.sub:
        pytest.skip("torch has no subtraction of bool")
    values = [kind(n) for n in (2, 3, 4, 5, 6)]
    check(lambda x, n: apply(x, n), values, x, captures=2 if kind in INTS else 1)


@pytest.mark.parametrize("kind", INTS + FLOATS)
def test_the_number_on_the_left(kind):
    check(lambda x, n: n * x - n, [kind(n) for n in (2, 3, 4, 5, 6)], captures=2)


@pytest.mark.parametrize("kind", INTS)
def test_sizes_indices_and_slices(kind):
    values = [kind(n) for n in (2, 3, 4, 5, 6)]
    x = torch.arange(20.0)
    check(lambda x, n: x.repeat(n), values, x, captures=2)
    check(lambda x, n: x[:n] + 1, values, x, captures=2)
    check(lambda x, n: x[n] + 1, values, x, captures=2)
    check(lambda x, n: torch.zeros(n) + n, values, x, captures=2)
    check(lambda x, n: x.new_ones((n, 2)) * n, values, x, captures=2)
    check(lambda x, n: sum(x[i] for i in range(n)), values, x)


@pytest.mark.parametrize("kind", INTS + FLOATS)
def test_item(kind):
    check(lambda x, n: x * n.item() + 1, [kind(n) for n in (2, 3, 4, 5, 6)], captures=2 if kind in INTS else 1)


PROGRAMS = {
    "arithmetic": lambda x, n: x + (n * 2 + 1) / 3,
    "wrapped": lambda x, n: x + int(n + n),  # numpy's integers overflow
    "branch": lambda x, n: x + 1 if n > 3 else x - 1,
    "returned": lambda x, n: n,
    "returned twice": lambda x, n: n * 2,
    "tensor": lambda x, n: torch.tensor(n) + 1,
    "as_tensor": lambda x, n: torch.as_tensor(n) * 2,
    "full": lambda x, n: torch.full((2,), n),
    "float": lambda x, n: x + float(n),
    "int": lambda x, n: x + int(n),
    "bool": lambda x, n: x + bool(n - 2),
    "kind": lambda x, n: x + n.dtype.itemsize + n.nbytes,
    "instance": lambda x, n: x + isinstance(n, float) + isinstance(n, np.integer),
    "text": lambda x, n: x + len(str(n)) + len(f"{n}"),
    "key": lambda x, n: x + {2: 10, 3: 20}.get(n, 30),
    "function": lambda x, n: x + np.sqrt(n),
    "array": lambda x, n: torch.from_numpy(x.numpy() * n),
    "item of list": lambda x, n: x + [10, 20, 30, 40, 50, 60, 70][min(int(n), 6)],
    "tensor of list": lambda x, n: torch.tensor([n, 1]) + torch.tensor([[n], [n]]),
    "tensor of tuple": lambda x, n: torch.as_tensor((n, 2.5)),
    "asarray": lambda x, n: torch.asarray(n),
    "tensor by keyword": lambda x, n: torch.tensor(data=n),
    "tensor of a dtype": lambda x, n: torch.tensor(n, dtype=torch.float16),
    "tensor with an item": lambda x, n: torch.tensor([n, x[1].item()]),
    "new_tensor": lambda x, n: x.new_tensor(n) + x.new_tensor([n]),
    "clamp": lambda x, n: x.clamp(max=n),
    "where": lambda x, n: torch.where(x > 2, x, n),
    "arange": lambda x, n: torch.arange(n),
    "scalar": lambda x, n: torch.scalar_tensor(n),
    "filled": lambda x, n: x.clone().fill_(n),
    "written": lambda x, n: x.clone().index_fill_(0, torch.tensor([0]), n),
    "added": lambda x, n: torch.add(x, x, alpha=n),
}


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float64, np.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, kind):
    check(PROGRAMS[name], [kind(n) for n in (2, 3, 4, 2, 100)], x=torch.arange(6.0))


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_other_kinds_of_numbers_between_calls(kind):
    check(lambda x, n: x * n, [kind(2), 3, kind(4), 5.5, np.float64(0.1), kind(7), np.bool_(True), True, np.int8(3)])


def test_special_values():
    check(lambda x, n: x * n + 1, [np.float32(0.1), np.float32("inf"), np.float32("-inf"), np.float32(-0.0)])
    check(lambda x, n: x * n + 1, [np.int64(0), np.int64(1), np.int64(-1), np.int64(2**62), np.int64(-(2**63))])
    nan = pyframe.compile(lambda x, n: x * n, backend="eager")
    for value in (np.float64(1.5), np.float64("nan"), np.float64(2.5)):
        torch.testing.assert_close(nan(X, value), X * value, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_scalars_that_torch_takes_for_floats():
    values = [*(kind(n) for n in (1, 2, 3) for kind in (np.complex64, np.complex128)), np.bool_(True), np.bool_(False)]
    for x in (X, X.int(), X > 2):
        check(lambda x, n: x * n, values, x)
        check(lambda x, n: torch.full((2,), n) + torch.tensor(n), values, x)


def test_scalars_that_are_no_numbers():
    check(lambda x, n: x + n.astype(int), [np.timedelta64(n, "s") for n in (1, 2, 3)])


def test_dynamic_and_compiled():
    program = lambda x, n: (x * n).sum() + n  # noqa: E731
    for settings in ({"dynamic": True}, {"dynamic": False}, {}):
        fn = pyframe.compile(program, **settings)
        for n in (2, 3, 4, 5):
            for kind in (np.int64, np.float32):
                torch.testing.assert_close(fn(X, kind(n)), program(X, kind(n)))


def test_under_vmap_and_grad():
    def program(x, n):
        return torch.func.vmap(lambda row: row * n)(x) + torch.func.grad(lambda y: (y * n).sum())(x)

    check(program, [np.int64(n) for n in (2, 3, 4)])
    check(program, [np.float32(n) for n in (2, 3, 4)])


def test_in_containers_and_attributes():
    class Settings:
        scale = np.float64(1.0)

    settings = Settings()
    fn = pyframe.compile(lambda x, n: x * n[0] + n[1]["k"] * settings.scale, backend="eager", fullgraph=True)
    for i in range(2, 6):
        settings.scale = np.float64(i / 2)
        given = (np.int64(i), {"k": np.float32(i + 0.5)})
        torch.testing.assert_close(fn(X, given), X * given[0] + given[1]["k"] * settings.scale)


ARITHMETIC = {
    "sum and product": lambda x, n: x * (n * 2 + 1) + (n * n - n),
    "number on the left": lambda x, n: x * (30 - n) + 2 * n,
    "quotient": lambda x, n: x * (n / 3) + 7 / n,
    "floor": lambda x, n: x * (n // 3) + 17 // n,
    "remainder": lambda x, n: x * (n % 3) + 17 % n,
    "power": lambda x, n: x * n**2,
    "sign": lambda x, n: x * abs(n - 2) + +n,
    "in place": lambda x, n: x * operator.iadd(n, 1),
    "comparison": lambda x, n: x + 1 if 2 < n <= 100 and n != 55 else x - 1,
    "of None": lambda x, n: x if n is None or n == None or n == "two" else x + n,  # noqa: E711
    "not zero": lambda x, n: x * n if n else x,
    "isinstance": lambda x, n: x * n if isinstance(n, np.number) else x,
    "attributes": lambda x, n: x * n + n.dtype.itemsize + n.ndim + n.size,
    "text": lambda x, n: (x * n, {"text": f"{n} {n:.2f}", "str": str(n)}),
    "returned": lambda x, n: (x, n + 1, n < 3, n * n),
    "largest": lambda x, n: x * max(n, 2),
    "converted": lambda x, n: x * np.float64(n) + n.astype(np.float64),
    "square root": lambda x, n: x * np.sqrt(np.float64(n)) + math.sqrt(n),
    "ufuncs": lambda x, n: x * np.add(n, 1) + np.multiply(n, n) - np.exp(n),
    "tensors": lambda x, n: (torch.full((2,), n), torch.tensor(n), torch.full_like(x, n), torch.scalar_tensor(n)),
    "array": lambda x, n: torch.from_numpy(x.numpy() * n + (n + 1)),
    "and an int": lambda x, n: x * (n + x.size(0)),
    "after a break": lambda x, n: (x * (n + 1), pyframe.graph_break(), n * 2)[::2],
}  # fmt: skip


def numpy_types(value):
    """The types of numbers in a result."""
    return [type(each) for each in value] if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.uint8, np.float64, np.float32])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_of_scalars_that_vary_is_one_capture(name, kind):
    program = ARITHMETIC[name]
    counter = CompileCounter()
    fn = pyframe.compile(program, backend=counter)
    for n in (4, 5, 7, 9, 11):
        value = kind(n) if issubclass(kind, np.integer) else kind(n + 0.3)
        wanted, found = program(X, value), fn(X, value)
        if name == "text":
            assert repr(found[1]) == repr(wanted[1])
            continue
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        assert numpy_types(found) == numpy_types(wanted)
    captures = 4 if name == "after a break" else 2
    evaluated = name in ("floor", "remainder", "power", "text") and kind is np.float32
    assert counter.frame_count <= (5 if evaluated else captures)


@pytest.mark.parametrize("other", [2, 2.5, True, np.int8(3), np.uint64(3), np.float32(0.1), np.float64(0.1)], ids=repr)
@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, np.uint64, np.float64, np.float32, np.float16])
def test_types_and_values_are_those_of_numpy(kind, other):
    def program(x, a, b):
        values = a + b, b - a, a * b, a / b, b / a, a < b, a == b, a >= b, b // a, b % a
        return x, values

    fn = pyframe.compile(program, backend="eager")
    for n in (3, 5, 6, 7.7, 10, 4):
        wanted, found = program(X, kind(n), other)[1], fn(X, kind(n), other)[1]
        assert numpy_types(found) == numpy_types(wanted)
        assert all(a == b for a, b in zip(wanted, found, strict=True)), (wanted, found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_outside_of_the_range_of_a_type():
    def check_values(program, values):
        fn = pyframe.compile(program, backend="eager")
        for value in values:
            wanted, found = program(X, value), fn(X, value)
            assert repr(found[1:]) == repr(wanted[1:])
            torch.testing.assert_close(found[0], wanted[0], equal_nan=True)

    check_values(lambda x, n: (x + (n + n), n + n, -n, abs(n)), [np.int8(n) for n in (3, 4, 5, 100, 6, -100, -128)])
    check_values(lambda x, n: (x + (n - 5), n - 5, -n), [np.uint8(n) for n in (30, 40, 50, 3, 6, 255)])
    check_values(lambda x, n: (x, n * n), [np.int64(n) for n in (3, 4, 5, 2**40, 6, -(2**33))])
    check_values(lambda x, n: (x * (1 / n), 1 / n), [np.float64(n) for n in (3.5, 4, 5, 0.0, -0.0, 6, "inf", "nan")])
    check_values(lambda x, n: (x, 10 // n, 7 % n, 7 / n), [np.int64(n) for n in (3, 4, 5, 0, 6, -2)])
    check_values(lambda x, n: (x, n * n, n**2, n**-1), [np.float64(n) for n in (3.5, 4, 1e200, -3.5, 1e-300, 5)])
    check_values(lambda x, n: (x, n * 3, n + n), [np.float32(n) for n in (0.1, 0.2, 3e38, 1e-45, 0.3)])
    check_values(lambda x, n: (x, 1 / n), [np.float64(0.0), np.float64(-0.0)])


def test_products_of_sizes():
    def program(x):
        return x.reshape(int(np.prod(x.shape))) * np.sqrt(x.shape[0]), np.prod(x.shape)

    counter = CompileCounter()
    fn = pyframe.compile(program, backend=counter, fullgraph=True)
    for n in (2, 3, 4, 5):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(fn(x), program(x), rtol=0, atol=0)
    assert counter.frame_count == 2


def test_places_in_arrays():
    def program(a, n):
        return a[n] * 2, a[n:] + a[n], a[:, None][:n], a[::-1]

    counter = CompileCounter()
    fn = pyframe.compile(program, backend=counter)
    a = np.arange(9.0)
    for n in (2, 3, 4, 5):
        for value in (n, np.int64(n)):
            for wanted, found in zip(program(a, value), fn(a, value), strict=True):
                assert type(wanted) is type(found)
                np.testing.assert_array_equal(wanted, found)


def test_compiled():
    def program(x, n, t):
        return x * (n * 2 + 1) + np.sqrt(t) - t * 3, torch.full((3,), t) * n

    fn = pyframe.compile(program)
    for i in (2, 3, 4, 5):
        for n, t in ((np.int64(i), np.float64(i + 0.1)), (np.int32(i), np.float32(i + 0.1))):
            torch.testing.assert_close(fn(X, n, t), program(X, n, t))
