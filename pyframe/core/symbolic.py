"""What torch knows of symbolic numbers.  Its module loads sympy, which takes as long as all of ours: only the first
symbol makes it be loaded."""

from __future__ import annotations

import sys
from typing import Any

from inductor.process.uninterrupted_import import SYMBOLIC_SHAPES, import_whole


def data_dependent() -> tuple[type[Exception], ...]:
    """The errors that say that a number is known at run time only, for an `except`."""
    loaded = sys.modules.get(SYMBOLIC_SHAPES)
    error = getattr(loaded, "GuardOnDataDependentSymNode", None)  # not there while another thread imports the module
    return () if error is None else (error,)


def is_unbacked(number: Any) -> bool:
    """Whether a symbolic number depends on one that is known at run time only."""
    import_whole(SYMBOLIC_SHAPES)
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))


def surely_true(number: Any) -> bool:
    """Whether a symbolic bool is known to be true without a guard."""
    import_whole(SYMBOLIC_SHAPES)
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(number)
