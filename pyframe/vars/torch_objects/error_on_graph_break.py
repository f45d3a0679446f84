"""`error_on_graph_break`: a context manager that makes graph breaks errors in a part of the program, and its model for
the tracer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...core.break_errors import is_switched_on, switch
from ...core.effects import Effect
from ...errors import UserError
from ..codegen import Codegen
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import register
from ..tracer import Tracer
from .contexts import ContextVar


class error_on_graph_break:
    """Context manager and decorator: graph breaks inside are errors (`Unsupported`); with False, they are allowed
    again.

    Works inside and around compiled functions, but existing captures stay valid. compile(fullgraph=True) takes
    precedence.

        with pyframe.error_on_graph_break(True):
            y = must_be_one_graph(x)
    """

    def __init__(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise UserError(f"error_on_graph_break takes True or False, not {on!r}")
        self.on = on
        self.previous: list[bool] = []

    def __enter__(self) -> None:
        self.previous.append(is_switched_on())
        switch(self.on)

    def __exit__(self, *exception: object) -> None:
        switch(self.previous.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        on = self.on

        @functools.wraps(fn)
        def strict(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(on):
                return fn(*args, **kwargs)

        return strict


def _entered(on: bool, *previous: bool) -> error_on_graph_break:
    """An object that was already entered, with `previous` as the states to restore."""
    context = error_on_graph_break(on)
    context.previous.extend(previous)
    return context


class StrictnessVar(ContextVar):
    """An `error_on_graph_break(on)` context."""

    __slots__ = ("effects", "on", "previous")

    def __init__(self, on: bool) -> None:
        super().__init__(error_on_graph_break)
        self.on = on
        self.previous: list[bool] = []
        self.effects: list[Effect] = []

    def describe(self) -> str:
        return f"pyframe.error_on_graph_break({self.on})"

    def enter(self, tx: Tracer) -> Var:
        self.previous.append(tx.error_on_break)
        tx.error_on_break = self.on
        self.effects.append(tx.effects.add("CALL", None, (switch, [ConstVar(self.on)], {}), tx.user_line()))
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        tx.error_on_break = self.previous.pop()
        tx.effects.cancel(self.effects.pop())
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(_entered, self.on, *self.previous)


@register(error_on_graph_break)
def _construct(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    values = [*args, *kwargs.values()]
    if len(values) != 1 or not values[0].is_constant() or not isinstance(values[0].constant(), bool):
        tx.graph_break("unsupported-context-manager", "error_on_graph_break of anything but one known bool")
    return StrictnessVar(values[0].constant())


@register(switch)
def _switched(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """The model of `switch`, called by an object that was entered at run time."""
    on = args[0].constant()
    tx.error_on_break = on
    tx.effects.add("CALL", None, (switch, [ConstVar(on)], {}), tx.user_line())
    return ConstVar(None)


