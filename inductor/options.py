"""Options of `compile_fx`, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class CompileOptions:
    """strict: an error where a graph cannot be compiled, in place of one warning and ATen (does not affect code).
    cache: whether compiled graphs are kept on disk (does not affect code).
    """

    strict: bool = False
    cache: bool = True

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> CompileOptions:
        """ValueError for a name or a type that is not accepted."""
        accepted = {f.name: f.type for f in fields(CompileOptions)}
        for name, value in (given or {}).items():
            if name not in accepted:
                raise ValueError(f"unknown option {name!r}; accepted: {', '.join(sorted(accepted))}")
            if not isinstance(value, bool):
                raise ValueError(f"option {name!r} must be {accepted[name]}, not {value!r}")
        return CompileOptions(**dict(given or {}))
