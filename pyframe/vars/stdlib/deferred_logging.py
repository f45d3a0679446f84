"""Logging calls named in the options: dropped, or deferred until after the graph.

Also models `Logger.isEnabledFor` by a guard on its answer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..objects.functions import BoundMethodVar, BuiltinVar, FunctionVar
from ..objects.instances import InstanceVar
from ..protocol.base import Var
from ..protocol.class_reads import MISSING
from ..protocol.const import ConstVar, make
from ..registry import register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer


def defer(tx: Tracer, fn: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """Drop or defer a call of a logging function named in the options; the result is the Var of None.

    None (no Var) if the function is not named, or if an argument is neither a tensor nor a constant: it could change
    before the deferred call.
    """
    if _named(tx, fn, tx.options.ignore_logging_functions):
        return ConstVar(None)
    if not _named(tx, fn, tx.options.reorderable_logging_functions):
        return None
    if not all(isinstance(arg, TensorVar) or arg.is_constant() for arg in (*args, *kwargs.values())):
        return None
    function, owner = (fn.fn, [fn.obj]) if isinstance(fn, BoundMethodVar) else (fn, [])
    tx.effects.add("CALL", None, (function.constant(), [*owner, *args], dict(kwargs)), tx.user_line())
    return ConstVar(None)


def _named(tx: Tracer, fn: Var, functions: set[Any]) -> bool:
    """Whether `fn` is one of `functions`.  A plain function in there matches bound to any object, a method only to its
    own."""
    if not functions:
        return False
    if isinstance(fn, FunctionVar | BuiltinVar):
        return fn.is_constant() and any(fn.constant() is each for each in functions)
    if not isinstance(fn, BoundMethodVar) or not fn.fn.is_constant():
        return False
    function = fn.fn.constant()
    if any(function is each for each in functions):
        return True
    owner = getattr(fn.obj, "value", None)
    bound = [each for each in functions if getattr(each, "__func__", None) is function]
    return any(each.__self__ is owner for each in bound)


@register(logging.Logger.isEnabledFor)
def _is_enabled_for(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`Logger.isEnabledFor`: a guard on the answer, instead of tracing the locks and caches of the implementation."""
    logger, level = [*args, *kwargs.values()]
    if not isinstance(logger, InstanceVar) or logger.value is MISSING or not level.is_constant():
        return logger.unsupported(tx, "isEnabledFor()")
    enabled, number = logger.value.isEnabledFor(level.constant()), level.constant()
    check = functools.partial(_answers, number, enabled)
    tx.guard(logger.source, "PREDICATE", (check, (), f"isEnabledFor({number}) is {enabled}"))
    return make(enabled)


def _answers(level: int, enabled: bool, logger: logging.Logger) -> bool:
    return logger.isEnabledFor(level) == enabled


