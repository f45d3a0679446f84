"""What `compile(module)` returns: an object of a subclass of the module's class that shares the module's state and
whose calls run compiled code."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

from torch import nn


def run_module(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """The code of the root frame of compiled modules."""
    return module(*args, **kwargs)


def fresh_root(module: nn.Module) -> types.FunctionType:
    """`run_module` with a code object of its own, whose captures are freed with the compiled module; named after
    `module`."""
    name = type(module).__qualname__
    code = run_module.__code__.replace(co_name=type(module).__name__, co_qualname=name)
    return types.FunctionType(code, run_module.__globals__, name)


class CompiledModule:
    """Base class put in front of the module's own class. The instance shares the original's `__dict__`, so attributes,
    parameters, hooks and `training` are the same; the original itself stays eager."""

    _pyframe_original: nn.Module
    _pyframe_run: Callable[..., Any]
    _pyframe_recompile: Callable[[nn.Module], nn.Module]
    _pyframe_unpickle: Callable[[nn.Module, dict[str, Any]], nn.Module]
    _pyframe_settings: dict[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._pyframe_run(self._pyframe_original, *args, **kwargs)

    def __reduce__(self) -> Any:
        return self._pyframe_unpickle, (self._pyframe_original, self._pyframe_settings)

    def __copy__(self) -> Any:
        return self._pyframe_recompile(copy.copy(self._pyframe_original))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._pyframe_recompile(copy.deepcopy(self._pyframe_original, memo))


def compile_module(
    module: nn.Module,
    run: Callable[..., Any],
    recompile: Callable[[nn.Module], nn.Module],
    unpickle: Callable[[nn.Module, dict[str, Any]], nn.Module],
    settings: dict[str, Any],
) -> nn.Module:
    """An object like `module` whose calls are `run(module, ...)`. `recompile` compiles a copy of it; `unpickle`, a
    module-level function that pickle can find by name, compiles a copy with `settings`."""
    cls = type(module)
    derived = type(
        cls.__name__,
        (CompiledModule, cls),
        {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "_pyframe_original": module,
            "_pyframe_run": staticmethod(run),
            "_pyframe_recompile": staticmethod(recompile),
            "_pyframe_unpickle": staticmethod(unpickle),
            "_pyframe_settings": settings,
        },
    )
    result: Any = object.__new__(derived)
    object.__setattr__(result, "__dict__", module.__dict__)
    return result
