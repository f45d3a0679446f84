"""`torch._check` and related functions on unbacked numbers, whose values are not known while tracing.

A condition on unbacked symbols becomes a node of the graph that raises if it is false; the rest of the trace assumes
that it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..objects.functions import FunctionVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..tracer import Tracer
from .symint import NumberVar, apply, is_unbacked


def checked(condition: bool, name: str, text: str) -> None:
    """The function that the graph node of a check calls: `torch.<name>(condition)` with the message `text`."""
    getattr(torch, name)(condition, lambda: text)


checked.checks_numbers = True  # type: ignore[attr-defined]  # tells the compiler that the node raises for some numbers


def check(tx: Tracer, function: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """Trace a call of `torch._check` or a related function.  A condition that is known at frame entry becomes a guard;
    any other becomes a check in the graph, which the rest of the trace assumes to pass."""
    arguments = dict(zip(("cond", "message"), args), **kwargs)
    message = arguments.get("message")
    if function is not torch._check_is_size:
        _promise(tx, function, args[0], message)
        return ConstVar(None)
    size = args[0]
    if isinstance(size, ConstVar | NumberVar):
        _promise(tx, torch._check, _compare(tx, ">=", size, ConstVar(0)), message)
        if isinstance(size, NumberVar) and is_unbacked(size):
            tx.graph.numbers.shapes.as_size(size.sym)
        if "max" in arguments and not (arguments["max"].is_constant() and arguments["max"].constant() is None):
            _promise(tx, torch._check, _compare(tx, "<=", size, arguments["max"]), message)
        return ConstVar(None)
    return tx.graph_break("unsupported-object", f"torch._check_is_size of {size.describe()}")


def _compare(tx: Tracer, op: str, left: Var, right: Var) -> Var:
    if isinstance(left, NumberVar) or isinstance(right, NumberVar):
        return apply(tx, op, left, right)
    found = left.compare(tx, op, right)
    assert found is not None
    return found


def _promise(tx: Tracer, function: Callable[..., Any], condition: Var, message: Var | None) -> None:
    if not is_unbacked(condition):
        if not condition.truth(tx):  # adds a guard if the condition is symbolic
            tx.graph_break("exception-in-traced-code", f"torch.{function.__name__} of a condition that is false")
        return
    assert isinstance(condition, NumberVar)
    try:
        torch._check(condition.sym)
    except RuntimeError:  # false for every value
        tx.graph_break("exception-in-traced-code", f"torch.{function.__name__} of a condition that is false")
    tx.graph.effect(checked, condition, function.__name__, _text(tx, function, message))


def _text(tx: Tracer, function: Callable[..., Any], message: Var | None) -> str:
    """The message of a check: the program's own if it is a constant, else one with the user's line."""
    if isinstance(message, FunctionVar) and not message.code.co_freevars and not message.code.co_names:
        found = tx.call(message, [], {})
        if found.is_constant():
            return str(found.constant())
    return f"torch.{function.__name__} failed at {tx.user_line()}"
