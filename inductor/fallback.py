"""Fallback for graphs that cannot be compiled: warn once and run the graph with ATen operators.

Any exception of the compiler leads here, so a bug in the compiler never becomes an error of the user's program. With
the option `strict`, every such exception becomes a CompileError. With the environment variable PYFRAME_STRICT=internal,
which the project's own tests set, only unexpected ones do: not `errors.Unsupported`, a missing C++ compiler or an
operating system error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from .budget import OverBudget
from .eager.operator_errors import run_with_aten
from .errors import CompileError, InternalCompileError, Unsupported
from .fx_utils.places import Place, captured_function, name_of, reason_of, user_place
from .log.stages import count, show
from .log.warnings import warn_once
from .runtime.cpp_build import BuildError, RefusedSource

# Exceptions that the compiler raises on purpose. Any other exception is a bug in the compiler.
EXPECTED = (Unsupported, BuildError, OSError)


def fall_back(
    gm: fx.GraphModule, error: Exception, strict: bool, left_out: Sequence[str] = ()
) -> Callable[..., Any]:
    """Warn once and return a callable that runs `gm` with ATen. CompileError if that is not allowed. A budget that is
    spent is no reason for either. `left_out`: the names of the transforms that are not applied to `gm` then."""
    if isinstance(error, OverBudget):
        count("over_budget")
        return run_with_aten(gm)
    check_allowed(error, strict)
    count("fallbacks")
    reason, function = reason_of(error), captured_function(gm)
    node = getattr(error, "graph_node", None)
    show("fallbacks", lambda: f"{reason}\n{gm.print_readable(print_output=False)}")
    whose = f"the graph of {function.function} ({function.file}:{function.line})" if function else "a graph"
    kind = _kind(error, node, function)
    without = f" and without the transforms {', '.join(left_out)}" if left_out else ""
    warn_once(kind, f"inductor: {whose} runs with ATen operators{without}, not compiled: {reason}")
    return run_with_aten(gm)


def check_allowed(error: Exception, strict: bool) -> None:
    """CompileError if the options do not allow a fallback to ATen operators for this error."""
    check_expected(error)
    if strict:
        raise CompileError(f"the graph could not be compiled: {reason_of(error)}") from error


def check_expected(error: Exception) -> None:
    """InternalCompileError for an unexpected exception, if PYFRAME_STRICT=internal is set."""
    expected = isinstance(error, EXPECTED) and not isinstance(error, RefusedSource)
    if not expected and os.environ.get("PYFRAME_STRICT") == "internal":
        raise InternalCompileError(f"the compiler failed: {reason_of(error)}") from error


def _kind(error: Exception, node: fx.Node | None, function: Place | None) -> str:
    """The key under which a warning is shown once. Problems of the machine give one warning per process."""
    if isinstance(error, OSError | BuildError):
        return type(error).__name__
    place = user_place(node) if node is not None else function
    if place is None:
        return f"{type(error).__name__} {error}"
    return f"{type(error).__name__} {node and name_of(node)} {place.file}:{place.line}"
