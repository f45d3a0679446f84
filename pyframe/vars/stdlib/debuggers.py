"""Functions that start or stop a debugger, a profiler or a trace function.

Such tools observe the program's own frames.  A frame that calls one of these functions is therefore skipped: CPython
runs it unchanged.
"""

from __future__ import annotations

import _lsprof
import dis
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..objects.functions import FunctionVar
from ..objects.lookup import defined_in
from ..protocol.base import Var
from ..registry import Handler, register
from ..tracer import Tracer

_MODULES = ("bdb", "cProfile", "pdb", "profile", "trace")
_NAMES = ("settrace", "setprofile", "_settraceallthreads", "_setprofileallthreads", "breakpointhook")
_MONITORING = ("free_tool_id", "register_callback", "set_events", "set_local_events", "use_tool_id")
# Names by which code that was not traced yet may refer to these functions.
_MENTIONS = frozenset((*_NAMES, *_MONITORING, *_MODULES, "breakpoint", "f_trace", "set_trace"))


def mentions_watchers(code: types.CodeType) -> bool:
    """Whether code may start or stop a debugger, profiler or trace function.

    A frame with such code is skipped instead of broken, because the tool would see the resume function.
    """
    found = _MENTIONS.intersection(code.co_names)
    return bool(found - {"trace"}) or bool(found) and _names_module(code, "trace")


def _names_module(code: types.CodeType, name: str) -> bool:
    """Whether code imports the module `name` or reads a variable of this name; `torch.trace` is neither."""
    attributes = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
    return any(step.argval == name and step.opname not in attributes for step in dis.get_instructions(code))


def wrap_watcher(value: types.FunctionType) -> Var | None:
    """The Var of a Python function of a debugger or profiler, None for any other."""
    return WatcherVar(value) if defined_in(value, *map(sys.modules.get, _MODULES)) else None


class WatcherVar(FunctionVar):
    """A Python function of a debugger or profiler."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.run_eagerly(_why(self.name))


def _why(name: str) -> str:
    return f"{name} starts or stops a debugger, profiler or trace function: call it outside the compiled function"


def _register_functions() -> None:
    functions: list[Callable[..., Any]] = [getattr(sys, name) for name in _NAMES if hasattr(sys, name)]
    if hasattr(sys, "monitoring"):
        functions += [getattr(sys.monitoring, name) for name in _MONITORING]
    functions += [breakpoint, _lsprof.Profiler.enable, _lsprof.Profiler.disable]
    for fn in functions:
        register(fn)(_watcher(f"{fn.__name__}()"))


def _watcher(name: str) -> Handler:
    return lambda tx, args, kwargs: tx.run_eagerly(_why(name))


_register_functions()
