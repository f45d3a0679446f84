"""Shared by the frame checks, which run under any supported CPython, without pytest or torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def load_extension(path: str, name: str) -> ModuleType:
    """Import the extension module `name` from the file `path`, with no package around it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_C() -> ModuleType:
    """`pyframe._C` from the file that the worker's first argument names."""
    return load_extension(sys.argv[1], "pyframe._C")


C = load_C()


def true_guards() -> Any:
    """A program that always holds."""
    return C.GuardProgram([], 0)


def argument_guards(index: int, value: object) -> Any:
    """Fast local `index` equals `value`."""
    return C.GuardProgram([("LOCAL", 0, index), ("EQUALS", 0, value)], 1)


class Recorder:
    """A callback that replaces the functions in `table` and records what it was asked."""

    def __init__(self, table: dict[FunctionType, Any] | None = None, otherwise: Any = None) -> None:
        self.owner = object()
        self.table = table or {}
        self.otherwise = otherwise
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __call__(self, function: FunctionType, arguments: tuple[Any, ...], state: Any) -> Any:
        self.asked.append((function.__name__, arguments))
        target = self.table.get(function)
        if target is None:
            return self.otherwise
        if isinstance(target, Exception):
            raise target
        if isinstance(target, FunctionType):
            target = target.__code__
        if isinstance(target, CodeType):
            return C.Entry(self.owner, true_guards(), target)
        return target

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


class callback_set:
    """Context manager: this thread's callback for the body of a `with`."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def __enter__(self) -> Any:
        self.previous = C.set_callback(self.callback)
        return self.callback

    def __exit__(self, *error: object) -> None:
        C.set_callback(self.previous)


for _method in (callback_set.__init__, callback_set.__enter__, callback_set.__exit__, Recorder.names.fget):
    C.skip_code(_method, recursive=True)


def raises(kind: type[BaseException], call: Callable[..., Any], *args: Any, **kwargs: Any) -> BaseException:
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


C.skip_code(raises)
