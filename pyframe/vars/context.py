"""Context managers of torch that change how operators run."""

from __future__ import annotations

from typing import Any

import torch

from ..core.tracer import Tracer
from .base import Var
from .const import ConstVar


class ContextVar(Var):
    """A context manager the tracer models: `enter` and `exit` act on the trace."""

    __slots__ = ()

    def enter(self, tx: Tracer) -> Var:
        raise NotImplementedError

    def exit(self, tx: Tracer) -> Var:
        raise NotImplementedError


class GradModeVar(ContextVar):
    """`no_grad()` and its kin.  The mode is switched for real while tracing (the driver restores it), and by a node
    in the graph."""

    __slots__ = ("cls", "enabled", "previous", "takes_mode")

    def __init__(self, enabled: bool, cls: type, takes_mode: bool = False) -> None:
        super().__init__()
        self.enabled, self.cls, self.takes_mode = enabled, cls, takes_mode
        self.previous: bool | None = None

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"torch.{self.cls.__name__}"

    def enter(self, tx: Tracer) -> Var:
        if self.previous is None:
            self.previous = torch.is_grad_enabled()
        self._switch(tx, self.enabled)
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        assert self.previous is not None
        self._switch(tx, self.previous)
        self.previous = None
        return ConstVar(None)

    @staticmethod
    def _switch(tx: Tracer, enabled: bool) -> None:
        if torch.is_grad_enabled() != enabled:
            torch._C._set_grad_enabled(enabled)
            tx.graph.effect(torch._C._set_grad_enabled, enabled)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.cls)
        if self.takes_mode:
            cg.call_top(lambda: cg.load_const(self.enabled))
        else:
            cg.call_top()
