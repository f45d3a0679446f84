"""The databases by name. Each is imported at its first use, because some of them import large parts of torch."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol


class Database(Protocol):
    """A list of entries, each run in some modes. An entry in one mode is a unit, which is one row of the report."""

    modes: tuple[str, ...]

    def names(self) -> list[str]:
        """Of the entries."""
        ...

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs a unit and reports the verdict of each of its cases, as `op_suite_worker` does."""
        ...


# name: (module of this package, function that returns the Database)
LOCATIONS = {
    "modules": ("modules", "modules"),
    "optimizers": ("optimizers", "optimizers"),
    "foreach": ("operators", "foreach"),
    "autograd_function": ("operators", "autograd_functions"),
    "custom_op": ("operators", "custom_operators"),
    "higher_order": ("operators", "higher_order"),
    "distributions": ("distributions", "all_distributions"),
    "functions": ("function_transforms", "collection"),
    "training": ("training_programs", "collection"),
    "refs": ("operators", "references"),
}


@functools.cache
def database(name: str) -> Database:
    """The database of that name."""
    module, function = LOCATIONS[name]
    return getattr(importlib.import_module(f"tools.database_suite.{module}"), function)()
