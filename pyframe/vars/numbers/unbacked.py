"""Checks of numbers of which nothing is known while tracing: what `torch._check` and its kin promise of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.tracer import Tracer
from ..objects.functions import FunctionVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from .symint import NumberVar, apply, is_unbacked


def checked(condition: bool, name: str, text: str) -> None:
    """A check as a node of the graph: `torch.<name>` with a message."""
    getattr(torch, name)(condition, lambda: text)


checked.checks_numbers = True  # type: ignore[attr-defined]  # tells the compiler that the node raises for some numbers


def check(tx: Tracer, function: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """A call of `torch._check` or its kin: a guard where the condition can be one, else a check in the graph, which
    the rest of the trace builds on."""
    given = dict(zip(("cond", "message"), args), **kwargs)
    message = given.get("message")
    if function is not torch._check_is_size:
        _promise(tx, function, args[0], message)
        return ConstVar(None)
    size = args[0]
    if isinstance(size, ConstVar | NumberVar):
        _promise(tx, torch._check, _compare(tx, ">=", size, ConstVar(0)), message)
        if isinstance(size, NumberVar) and is_unbacked(size):
            tx.graph.shapes.as_size(size.sym)
        if "max" in given and not (given["max"].is_constant() and given["max"].constant() is None):
            _promise(tx, torch._check, _compare(tx, "<=", size, given["max"]), message)
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
        if not condition.truth(tx):  # of sizes: a guard
            tx.graph_break("exception-in-traced-code", f"torch.{function.__name__} of something that is false")
        return
    assert isinstance(condition, NumberVar)
    try:
        torch._check(condition.sym)
    except RuntimeError:  # false for whatever value
        tx.graph_break("exception-in-traced-code", f"torch.{function.__name__} of something that is false")
    tx.graph.effect(checked, condition, function.__name__, _text(tx, function, message))


def _text(tx: Tracer, function: Callable[..., Any], message: Var | None) -> str:
    """The message of a check, if it can be known while tracing."""
    if isinstance(message, FunctionVar) and not message.code.co_freevars and not message.code.co_names:
        found = tx.call(message, [], {})
        if found.is_constant():
            return str(found.constant())
    return f"torch.{function.__name__} failed at {tx.user_line()}"
