"""Queries about torch's symbolic numbers, with a lazy import of `torch.fx.experimental.symbolic_shapes`.

That module imports sympy, which takes as long as importing this whole project, so it is imported only when the first
symbol is created.
"""

from __future__ import annotations

import sys
from typing import Any


def data_dependent() -> tuple[type[Exception], ...]:
    """The exceptions that torch raises for data-dependent numbers, for use in an `except` clause."""
    loaded = sys.modules.get("torch.fx.experimental.symbolic_shapes")
    error = getattr(loaded, "GuardOnDataDependentSymNode", None)  # missing while another thread imports the module
    return () if error is None else (error,)


def is_unbacked(number: Any) -> bool:
    """Whether a symbolic number depends on an unbacked symbol, whose value is known only at run time."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # deferred: imports sympy

    return bool(free_unbacked_symbols(number))


def surely_true(number: Any) -> bool:
    """Whether a symbolic bool is statically known to be true, without adding a guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # deferred: imports sympy

    return statically_known_true(number)


def hint(number: Any) -> int:
    """An int, or the value of a symbolic one in the first call, without adding a guard."""
    return int(number.node.hint) if type(number) is not int else number
