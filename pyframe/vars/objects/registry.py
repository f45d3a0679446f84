"""Helpers for modules that define models.

A model is a handler that computes the result of a call on Vars while tracing.  The decorator `model` registers it in
`functions.BUILTINS` under the function or class that it models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tracer import Tracer
from ..protocol.base import Var
from ..protocol.const import ConstVar
from .classes import type_var
from .functions import BUILTINS, Handler
from .lookup import MISSING, lookup

Args = list[Var]
Kwargs = dict[str, Var]


def model(*targets: Any) -> Callable[[Handler], Handler]:
    def register(fn: Handler) -> Handler:
        for target in targets:
            BUILTINS[target] = fn
        return fn

    return register


def known(value: bool) -> Var:
    return ConstVar(bool(value))


def is_callable(tx: Tracer, value: Var) -> bool:
    return lookup(type_var(tx, value).constant(), "__call__") is not MISSING
