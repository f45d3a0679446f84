"""Databases of `OpInfo`s beside torch's main list of operators, `op_db`, which `tools/op_suite.py` runs.

Their cases are run and compared by the operator suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_suite_worker import run_unit
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db

FOREACH = ("unary", "binary", "pointwise", "reduce", "other")


class Operators:
    """One list of `OpInfo`s. `modes`: those of the operator suite that it is run in."""

    def __init__(self, infos: list[Any], modes: tuple[str, ...], batch: int | None = None) -> None:
        self.infos = {info.full_name: info for info in infos}
        self.modes, self.batch = modes, batch

    def names(self) -> list[str]:
        """Of the entries, in the order of the list."""
        return list(self.infos)

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs a unit: the cases of an entry in the request's mode."""
        run_unit({**request, "batch": self.batch or request["batch"]}, engine, self.infos[name], tell)


def foreach() -> Operators:
    """Operators on lists of tensors."""
    lists = [getattr(common_methods_invocations, f"foreach_{kind}_op_db") for kind in FOREACH]
    return Operators([info for infos in lists for info in infos], ("forward", "inplace", "backward", "dynamic"))


def autograd_functions() -> Operators:
    """`torch.autograd.Function`s, most with rules for `vmap` and forward mode."""
    return Operators(autograd_function_db, ("forward", "backward", "dynamic"))


def custom_operators() -> Operators:
    """Operators of `torch.library`, which compute with numpy."""
    return Operators(custom_op_db, ("forward", "backward", "dynamic"))


def higher_order() -> Operators:
    """Operators that take functions: `cond`, `while_loop`, `scan`, `map`, `flex_attention` ..."""
    return Operators(hop_db, ("forward", "backward", "dynamic"), batch=1)


def references() -> Operators:
    """torch's implementations of operators in Python (`torch._refs`), which are captured as the user's code is."""
    return Operators(common_methods_invocations.python_ref_db, ("forward",))
