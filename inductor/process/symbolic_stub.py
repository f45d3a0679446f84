"""Keeps torch's fake tensors from importing sympy (0.4 s) where no size is symbolic: stubs of it and of
`torch.fx.experimental.symbolic_shapes`.

torch's fake tensors import functions of that module at each use, to ask about sizes that may be symbols. The functions
here answer for plain numbers and for tensors with such sizes as torch's do; for anything else they call torch's.
Every other name is read from the real module. Modules that import a name when they are loaded keep it, so they get the
real one, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils._ordered_set import OrderedSet

SYMPY = "sympy"
NAME = "torch.fx.experimental.symbolic_shapes"
_NUMBERS = frozenset([int, float, bool, type(None)])
_SEQUENCES = frozenset([tuple, list, torch.Size])


class _GuardOnDataDependentSymNode(Exception):
    """Takes the place of torch's exception in `except` clauses. Only symbols raise that, and a program that creates one
    has loaded the real module."""


class SymbolicShapesStub(ModuleType):
    """The stub module, to be placed in `sys.modules`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # code that scans all modules reads __file__ and similar attributes
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        known = _KNOWN.get(name)
        if known is None or sys._getframe(1).f_code.co_name == "<module>":
            return getattr(_real(), name)
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # the import system marks a module that it finds
            super().__setattr__(name, value)
        else:
            setattr(_real(), name, value)


def _real() -> ModuleType:
    """Import the real module in place of the stub."""
    load_sympy()
    if isinstance(sys.modules.get(NAME), SymbolicShapesStub):
        sys.modules.pop(NAME, None)
    return importlib.import_module(NAME)


def _is_plain(x: Any) -> bool:
    """Whether `x` is a number, None, a tensor or a sequence of these, without symbols."""
    if type(x) in _NUMBERS:
        return True
    if type(x) in _SEQUENCES:
        return all(map(_is_plain, x))
    return isinstance(x, torch.Tensor) and x.layout is torch.strided and not x._has_symbolic_sizes_strides


def _answering(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns `answer` of its arguments if they are plain, and torch's answer otherwise."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not _is_plain(args):
            return getattr(_real(), name)(*args, **kwargs)
        return answer(*args)

    call.__name__ = call.__qualname__ = name
    return call


def _truth(x: Any) -> bool:
    if type(x) is not bool:
        raise AssertionError(f"Expected bool, got {type(x)}")
    return x


def _equal(x: Any, y: Any) -> bool:
    if type(x) in _SEQUENCES and type(y) in _SEQUENCES:
        return len(x) == len(y) and all(map(_equal, x, y))
    return bool(x == y)


def _all(x: Any, *others: Any) -> Any:
    for y in others:
        x = x & y
    return x


def _any(x: Any, *others: Any) -> Any:
    for y in others:
        x = x | y
    return x


def _compute_unbacked_bindings(shape_env: Any, *args: Any, **kwargs: Any) -> Any:
    """Without a ShapeEnv there are no symbols to bind."""
    return None if shape_env is None else _real().compute_unbacked_bindings(shape_env, *args, **kwargs)


_KNOWN: dict[str, Any] = {
    "compute_unbacked_bindings": _compute_unbacked_bindings,
    "free_unbacked_symbols": _answering("free_unbacked_symbols", lambda x: OrderedSet()),
    "GuardOnDataDependentSymNode": _GuardOnDataDependentSymNode,
    **{name: _answering(name, _truth) for name in ("expect_true", "guard_or_false", "guard_or_true",
       "guard_size_oblivious", "statically_known_true")},
    **{name: _answering(name, lambda x: x) for name in ("guard_int", "guarding_hint_or_throw", "optimization_hint",
       "size_hint")},
    **{name: _answering(name, lambda x: True) for name in ("has_guarding_hint", "has_hint")},
    **{name: _answering(name, lambda x: False) for name in ("has_free_symbols", "has_free_unbacked_symbols",
       "is_nested_int", "is_symbolic")},
    **{name: _answering(name, lambda x: iter(())) for name in ("_iterate_exprs", "_iterate_nodes")},
    "sym_and": _answering("sym_and", _all),
    "sym_eq": _answering("sym_eq", _equal),
    "sym_or": _answering("sym_or", _any),
}  # fmt: skip


# ---- sympy


class _NoExpression:
    """Takes the place of `sympy.Basic` in checks of types while sympy is not loaded: nothing is an instance."""


class SympyStub(ModuleType):
    """A stub of sympy, to be placed in `sys.modules`. Some of torch's functions import sympy only to ask whether an
    argument is an expression; any other use loads the real module. Submodules are left to the finder of
    `import_stubs`, which calls `load_sympy` first."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "Basic" and sys.modules.get(SYMPY) is self and sys._getframe(1).f_code.co_name != "<module>":
            return _NoExpression
        return getattr(load_sympy(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(load_sympy(), name, value)


def load_sympy() -> ModuleType:
    """Import the real sympy in place of the stub, also in modules that have imported the stub."""
    stub = sys.modules.get(SYMPY)
    if not isinstance(stub, SympyStub):
        return importlib.import_module(SYMPY)
    del sys.modules[SYMPY]
    real = importlib.import_module(SYMPY)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(SYMPY) is stub:
            names[SYMPY] = real
    return real
