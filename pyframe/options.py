"""Options of `compile`, validated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UserError

MODES = ("default",)


@dataclass(frozen=True, slots=True)
class Options:
    """What a capture depends on.

    fullgraph: an error instead of a graph break.
    dynamic: None or False: every size is a constant of the capture.
    recompile_limit: captures per code object before the frame stays eager.
    strict: errors of the backend surface instead of one warning and eager results.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    recompile_limit: int = 8
    strict: bool = False


_USER_OPTIONS = {"recompile_limit": int, "strict": bool}


def make_options(
    fullgraph: bool, dynamic: bool | None, mode: str | None, options: Mapping[str, Any] | None
) -> Options:
    """Checks what the user gave; UserError says what is accepted."""
    if not isinstance(fullgraph, bool):
        raise UserError(f"fullgraph must be True or False, not {fullgraph!r}")
    if dynamic not in (None, True, False):
        raise UserError(f"dynamic must be None, True or False, not {dynamic!r}")
    if mode is not None and mode not in MODES:
        raise UserError(f"unknown mode {mode!r}; accepted: None, {', '.join(map(repr, MODES))}")
    result = Options(fullgraph=fullgraph, dynamic=dynamic)
    for name, value in (options or {}).items():
        if name not in _USER_OPTIONS:
            raise UserError(f"unknown option {name!r}; accepted: {', '.join(sorted(_USER_OPTIONS))}")
        if type(value) is not _USER_OPTIONS[name]:
            raise UserError(f"option {name!r} must be {_USER_OPTIONS[name].__name__}, not {value!r}")
        result = dataclasses.replace(result, **{name: value})
    return result
