"""Options of `compile_fx`, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .verify_policy import Policy


@dataclass(frozen=True)
class CompileOptions:
    """Neither of them affects code.

    strict: an error where a graph cannot be compiled, in place of one warning and ATen.
    cache: whether compiled graphs are kept on disk.
    verify: "first", or a rate above 0 and up to 1: compiled graphs are compared with ATen at their first call, or at
        such a share of their calls and of the time; None: as the environment variable PYFRAME_VERIFY says.
    """

    strict: bool = False
    cache: bool = True
    verify: str | float | None = None

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> CompileOptions:
        """ValueError for a name or a type that is not accepted."""
        accepted = {f.name: f.type for f in fields(CompileOptions)}
        for name, value in (given or {}).items():
            if name not in accepted:
                raise ValueError(f"unknown option {name!r}; accepted: {', '.join(sorted(accepted))}")
            if name == "verify":
                Policy.of(value)
            elif not isinstance(value, bool):
                raise ValueError(f"option {name!r} must be {accepted[name]}, not {value!r}")
        return CompileOptions(**dict(given or {}))
