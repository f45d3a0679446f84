"""`set_stance`: a process-wide switch for what compiled functions do when they are called, for example run eagerly or
raise on a recompilation. `torch.compiler.set_stance` has the same effect. Where both are set, "force_eager" of either
counts, otherwise pyframe's own stance."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from . import _C
from .errors import UserError

STANCES = {
    "default": "capture and compile whenever a call needs it",
    "force_eager": "run every compiled function eagerly",
    "eager_on_recompile": "use existing captures; calls that match none run eagerly",
    "eager_then_compile": "run the first call of each compiled function eagerly, and capture from the second on",
    "aot_eager_then_compile": "run the first call of each compiled function with backend 'aot_eager', and compile "
    "from the second on",
    "fail_on_recompile": "use existing captures; RecompileError for calls that match none",
}
_current = "default"


def current() -> str:
    """The current stance: pyframe's own or, while that is "default", the one that torch.compiler.set_stance has set."""
    return _current if _current != "default" else _of_torch()


def _of_torch() -> str:
    """The stance of torch.compile. It is a variable of a module that only programs import which use torch._dynamo."""
    found = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    name = getattr(found, "stance", "default")
    return name if name in STANCES else "default"


def _switch(name: str) -> None:
    global _current
    _current = name
    _C.set_eager(name == "force_eager")


def set_stance(stance: str = "default") -> Stance:
    """Set what compiled functions do from now on, in all threads: "default", "force_eager", "eager_on_recompile",
    "eager_then_compile", "aot_eager_then_compile" or "fail_on_recompile".

    Use the result as a context manager, which restores the previous stance on exit, or as a decorator, which sets the
    stance for calls of one function only. A call inside a compiled function breaks the graph.

        pyframe.set_stance("force_eager")
        with pyframe.set_stance("fail_on_recompile"): ...
        @pyframe.set_stance("eager_on_recompile")
        def evaluate(): ...
    """
    return Stance(stance)


class Stance:
    """The result of `set_stance`: a context manager and decorator."""

    def __init__(self, name: str) -> None:
        if name not in STANCES:
            raise UserError(f"unknown stance {name!r}; accepted: {', '.join(map(repr, STANCES))}")
        self.name = name
        self.previous = _current
        _switch(name)

    def __enter__(self) -> None:
        """Does nothing: the constructor has set the stance."""

    def __exit__(self, *exception: object) -> None:
        _switch(self.previous)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(fn):
            raise UserError(f"set_stance decorates functions, not {fn!r}")
        _switch(self.previous)
        name = self.name

        @functools.wraps(fn)
        def in_stance(*args: Any, **kwargs: Any) -> Any:
            with Stance(name):
                return fn(*args, **kwargs)

        return in_stance
