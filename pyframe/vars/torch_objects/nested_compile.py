"""Functions that torch.compile or pyframe compiled, called in a traced function: the original is traced.

torch's tracer must not run below ours: it would trace the bytecode that ours generates. A call of `compile` in the
traced function is made after the graph, if the program keeps its result.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.source import AttrSource, Source
from ...markers import compilers
from ..protocol import slots
from ..protocol.base import HeldVar, Var
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


class TorchCompiledVar(HeldVar):
    """A function that existed before the frame and that torch.compile returned."""

    __slots__ = ()

    def describe(self) -> str:
        return f"{self.source}, compiled by torch.compile"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        original = self.value._torchdynamo_orig_callable
        source = self.source and AttrSource(self.source, "_torchdynamo_orig_callable")
        return tx.call(tx.wrap(original, source), args, kwargs)


class CompileVar(HeldVar):
    """pyframe's `compile`."""

    __slots__ = ()

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return _compile(self.value, tx, list(args), dict(kwargs))


def wrap_compiled(value: types.FunctionType, source: Source | None) -> Var | None:
    """The Var of pyframe's `compile`, or of a function that torch.compile returned; None for any other."""
    if any(value is each for each in compilers):
        return CompileVar(value, source)
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")  # defines the function
    if eval_frame is None or value.__globals__ is not vars(eval_frame):
        return None
    return TorchCompiledVar(value, source) if hasattr(value, "_torchdynamo_orig_callable") else None


def _compile(compile: Callable[..., Any], tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    found = CompiledVar(compile, args, kwargs)
    if found.model is not None and slots.has_type(found.model, type):
        return tx.graph_break("unsupported-object", "compile() of a class, which it changes,")
    return found


register(torch.compile)(functools.partial(_compile, torch.compile))
