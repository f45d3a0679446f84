"""Floats computed from symbolic sizes, such as the factor of a mean or the scale of attention.

Kernels compute them at run time; nothing about their value is known at compile time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import torch

from ..errors import Unsupported
from .handler import ops
from .size import AnySize, at

_OPERATORS: dict[str, Callable[..., float]] = {
    "add": operator.add, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow, "sqrt": math.sqrt,
}  # fmt: skip


def _refuse(self: Real, *others: Any) -> NoReturn:
    raise Unsupported(f"arithmetic with {self}, a float that is known only at run time")


@dataclass(frozen=True, eq=False)
class Real:
    """A loop-IR op on floats, sizes and Reals, in float64. Arithmetic and comparison on it raise Unsupported."""

    op: str
    args: tuple[AnyReal, ...]

    def at(self, values: Mapping[str, int]) -> float:
        """The value, given the values of the symbols."""
        return float(_OPERATORS[self.op](*(x.at(values) if isinstance(x, Real) else _at(x, values) for x in self.args)))

    def traced(self) -> Any:
        """Emits the computation into the current loop body and returns the float64 value."""
        args = [x.traced() if isinstance(x, Real) else ops.constant(x, torch.float64) for x in self.args]
        return getattr(ops, self.op)(*args)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __neg__ = __abs__ = __float__ = __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


AnyReal: TypeAlias = "AnySize | float | Real"


def _at(x: AnySize | float, values: Mapping[str, int]) -> float:
    return x if isinstance(x, float) else at(x, values)
