"""How `compile` handles callables that are neither Python functions nor modules.

Objects implemented in C, partials and objects with a `__call__` get a small Python function that calls them, and that
function is captured. Classes, `staticmethod` and `classmethod` objects keep their type, so that `compile` works as a
decorator on top of them.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from . import _C


def original(model: Any) -> Any:
    """`model` without the wrappers that earlier calls of `compile` or `disable`, ours or torch's, put around it."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")  # defines torch's wrappers
    while True:
        if isinstance(model, _C.CompiledFunction | _C.DisabledFunction):
            model = model.__wrapped__
        elif eval_frame is None:
            return model
        elif isinstance(model, eval_frame.OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, types.FunctionType) and model.__globals__ is vars(eval_frame):
            wrapped = getattr(model, "_torchdynamo_orig_callable", None)
            if wrapped is None:
                return model
            model = wrapped
        else:
            return model


def python_function(model: Any) -> types.FunctionType | None:
    """The Python function that a call of `model`, a function or bound method, runs; None if `model` is neither."""
    function = model.__func__ if isinstance(model, types.MethodType) else model
    return function if isinstance(function, types.FunctionType) else None


def suspends(function: types.FunctionType) -> bool:
    """Whether calls of `function` return a generator or coroutine, whose frame cannot be replaced."""
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return bool(function.__code__.co_flags & flags)


def caller_of(target: Callable[..., Any]) -> types.FunctionType:
    """A Python function that calls `target`. It has the target's name and signature, and a code object of its own."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__name__ = call.__qualname__ = type(target).__name__  # partials, for example, have no __name__
    call.__module__ = type(target).__module__
    name = getattr(target, "__name__", None)
    name = name if isinstance(name, str) else call.__name__
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)
    functools.update_wrapper(call, target, updated=())
    return call  # type: ignore[return-value]  # inferred to be any callable


def compile_class(cls: type, compile_function: Callable[[Any], Any]) -> type:
    """Modify `cls` in place, as torch.compile does, and return it: calls of its instances are compiled, or its own
    `__init__` if instances are not callable. A class that has neither method in Python is left unchanged."""
    call = _in_class(cls, "__call__")
    if python_function(original(call)) is not None:
        cls.__call__ = compile_function(caller_of(original(call)))  # type: ignore[method-assign]
    elif call is None and python_function(initializer := original(cls.__dict__.get("__init__"))) is not None:
        cls.__init__ = compile_function(initializer)  # type: ignore[misc]
    return cls


def _in_class(cls: type, name: str) -> Any:
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
