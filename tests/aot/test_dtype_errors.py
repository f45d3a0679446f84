"""Dtypes and divisors for which eager raises and fake tensors do not: compiled graphs raise the same exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import pyframe

DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.int8, torch.bool, torch.complex64
)  # fmt: skip
NUMBERS = ("number", "Scalar", "float", "int", "bool")
PARTS = 4
OTHER_REASONS = ("glu_backward",)  # raises because of the sizes


def overloads() -> Iterator[Any]:
    """Those of ATen that take tensors and numbers, write to nothing and draw no random numbers."""
    names = {name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    for name in sorted(names.difference(OTHER_REASONS)):
        packet = None if name.startswith("_") else getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            needed = {str(a.type) for a in op._schema.arguments if not a.has_default_value()}
            pure = not op._schema.is_mutable and torch.Tag.nondeterministic_seeded not in op.tags
            if pure and "Tensor" in needed and needed <= {"Tensor", *NUMBERS}:
                yield op


def arguments(op: Any, dtype: torch.dtype) -> Iterator[list[Any]]:
    """Arguments of the dtype; where any number is accepted, an int and a bool."""
    needed = [str(a.type) for a in op._schema.arguments if not a.has_default_value()]
    for number in (1, True) if {"number", "Scalar"} & {*needed} else (1,):
        values = {"Tensor": torch.tensor([[1, 0], [1, 1]], dtype=dtype), "number": number, "Scalar": number}
        yield [values.get(kind, 1) for kind in needed]


def raised(fn: Any, *args: Any) -> type[Exception] | None:
    try:
        fn(*args)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_eager_errors_are_raised(part: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="torch._subclasses.fake_tensor")
    mode, tried, different = FakeTensorMode(), 0, []

    def on_fakes(op: Any, args: list[Any]) -> None:
        with mode:
            op(*[mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args])

    calls = [(op, args) for op in overloads() for dtype in DTYPES for args in arguments(op, dtype)]
    for op, args in calls[part::PARTS]:
        wanted = raised(op, *args)
        if wanted is None or raised(on_fakes, op, args) is not None:
            continue
        tried += 1
        pyframe.reset()
        got = raised(pyframe.compile(lambda given, op=op: op(*given)), args)
        if got is not wanted:
            different.append((op, args, got, wanted))
    assert not different
    assert tried > 100


@pytest.mark.parametrize(
    "divide", [torch.fmod, torch.remainder, torch.floor_divide, lambda a, b: a % b, lambda a, b: a // b]
)
@pytest.mark.parametrize("zero", [0, torch.tensor([2, 0])], ids=["number", "tensor"])
def test_integer_division_by_zero(divide: Any, zero: Any) -> None:
    x = torch.tensor([5, 7])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(x, zero)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pyframe.compile(lambda x, y: divide(x + 1, y) * 2)(x, zero)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool, torch.float16])
@pytest.mark.parametrize("bounds", [(-3, 3), (-3, None), (None, -3), (2, 300), (300, None), (None, 300), (-3e9, 3e9)])
@pytest.mark.filterwarnings("ignore")
def test_bounds_that_the_dtype_does_not_hold(dtype: torch.dtype, bounds: tuple[Any, Any]) -> None:
    """Releases of torch differ: such a bound is wrapped around, or ignored, or an error."""
    x = torch.tensor([0, 1, 2, 5, 100, 7, 1, 0]).to(dtype)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(*bounds) + 1

    error = raised(program, x)
    assert raised(pyframe.compile(program), x) is error
    if error is None:
        torch.testing.assert_close(pyframe.compile(program)(x), program(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("number", [1e9, -1e9, 100000, float("inf"), 65504.0])
@pytest.mark.filterwarnings("ignore")
def test_numbers_beyond_float16(number: float) -> None:
    mask = torch.tensor([True, False, True])
    programs = (
        lambda x: x.masked_fill(mask, number) + 1, lambda x: torch.full_like(x, number) + x, lambda x: x.pow(number) + 1,
        lambda x: torch.nn.functional.pad(x, (1, 1), value=number) + 1, lambda x: x.clamp(max=number) + 1,
        lambda x: x + number, lambda x: x * number, lambda x: torch.where(mask, x, number), lambda x: x < number,
    )  # fmt: skip
    x = torch.ones(3, dtype=torch.float16)
    for program in programs:
        error = raised(program, x)
        assert raised(pyframe.compile(program), x) is error
        if error is None:
            torch.testing.assert_close(pyframe.compile(program)(x), program(x), rtol=1e-3, atol=0)
