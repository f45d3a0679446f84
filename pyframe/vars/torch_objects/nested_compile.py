"""`torch.compile` called inside of a traced function: a call of the result is traced like one of
the original, and a result that the program keeps is created by the same call after the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..protocol.base import Var
from ..protocol.slots import constant_or
from ..registry import register
from ..tracer import Tracer


class CompiledVar(Var):
    """What `compile(*args, **kwargs)` returned; `model` is the function or module, None for a decorator."""

    __slots__ = ("args", "compile", "kwargs", "model")

    def __init__(self, compile: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> None:
        super().__init__()
        self.compile, self.args, self.kwargs = compile, args, kwargs
        model = args[0] if args else kwargs.get("model")
        self.model = None if model is None or constant_or(model, 0) is None else model

    def describe(self) -> str:
        return "the result of a call of compile"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.model is not None:
            return tx.call(self.model, args, kwargs)
        rest = {name: value for name, value in self.kwargs.items() if name != "model"}
        return CompiledVar(self.compile, [*args, *self.args[1:]], {**rest, **kwargs})

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.compile)
        loads = [*self.args, *self.kwargs.values()]
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in loads), names=tuple(self.kwargs))


@register(torch.compile)
def _compile(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return CompiledVar(torch.compile, args, kwargs)
