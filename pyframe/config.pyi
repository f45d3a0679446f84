"""The settings as a type checker sees them; `config.describe()` says what they mean."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

recompile_limit: int
fail_on_recompile_limit_hit: bool
error_on_recompile: bool
capture_scalar_outputs: bool
capture_dynamic_output_shape_ops: bool
suppress_errors: bool
reorderable_logging_functions: set[Any]
ignore_logging_functions: set[Any]

class Setting:
    default: Any
    type: type
    doc: str
    least: int | None
    def check(self, name: str, value: Any) -> None: ...

SETTINGS: dict[str, Setting]

def describe() -> str: ...
def patch(
    changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **settings: Any
) -> AbstractContextManager[None]: ...
