"""`pyframe.config`: settings of the whole process. Each is read again whenever it is needed, so changes take effect at
once.

    pyframe.config.recompile_limit = 16
    with pyframe.config.patch(suppress_errors=True): ...

Where `compile(options=...)` has an option of the same name, the setting is its default. Unknown names and values of a
wrong type raise `UserError`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inductor.log.progress import show_progress

from . import _C
from .errors import UnknownSetting, UserError


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its default, type, description and, for numbers, the least valid value."""

    default: Any
    type: type
    doc: str
    least: Any = None
    accepted: tuple[Any, ...] = ()  # the valid values; (): all

    def check(self, name: str, value: Any) -> None:
        if type(value) is not self.type or (self.least is not None and value < self.least):
            wanted = self.type.__name__ + (f" of at least {self.least}" if self.least is not None else "")
            raise UserError(f"config.{name} must be a {wanted}, not {value!r}")
        if self.accepted and value not in self.accepted:
            raise UserError(f"config.{name} must be one of {', '.join(map(repr, self.accepted))}, not {value!r}")


SETTINGS: dict[str, Setting] = {
    "recompile_limit": Setting(
        8, int, "How often one function is captured; after that, calls whose guards match none of its captures run "
        "eagerly.", 1
    ),  # fmt: skip
    "fail_on_recompile_limit_hit": Setting(
        False, bool, "Raise RecompileLimitExceeded when the recompile limit is reached, instead of one warning."
    ),
    "error_on_recompile": Setting(False, bool, "Raise RecompileError whenever a function would be captured again."),
    "capture_scalar_outputs": Setting(
        True, bool, "Numbers read from tensors (.item(), .tolist(), int(), float()) stay in the graph, as unbacked "
        "symbols; if False, and in loops that contain a graph break, reading one breaks the graph."
    ),
    "capture_dynamic_output_shape_ops": Setting(
        True, bool, "Operators whose result size depends on data (nonzero, unique, boolean masks) stay in the graph; "
        "if False, and in loops that contain a graph break, they break the graph."
    ),
    "instruction_limit": Setting(
        100_000, int, "Bytecode instructions that are traced while the graph hardly grows; a loop or call that takes "
        "more is not traced and runs in Python.", 1,
    ),
    "size_limit": Setting(
        16_384, int, "The largest constant while tracing: bytes of an int, characters of a string, items of a "
        "container. An operation that creates a larger one breaks the graph; of longer lists and tuples, only the "
        "items that are read are guarded.", 1,
    ),
    "suppress_errors": Setting(
        False, bool, "Turn errors of a backend and of pyframe itself into one warning, and run the frame eagerly."
    ),
    "compile_when_traced": Setting(
        False, bool, "Compiled code also runs in threads with a trace or profile function (sys.settrace, "
        "sys.setprofile) and while a tool of sys.monitoring is registered; if False, the program's own frames run."
    ),
    "reorderable_logging_functions": Setting(
        set(), set,
        "Functions such as print, warnings.warn and methods of loggers whose calls do not break the graph: they are "
        "called after the graph, in order, with the values that tensors have then.",
    ),
    "ignore_logging_functions": Setting(
        set(), set, "Functions and methods, such as those of loggers, whose calls are left out of captured code."
    ),
    "progress": Setting(
        os.environ.get("PYFRAME_PROGRESS", "1") != "0", bool, "Calls that compile for more than two seconds show a "
        "line with the phase, a count and an estimate, if stderr is a terminal and tqdm is installed. The environment "
        "variable PYFRAME_PROGRESS=0 sets it to False.",
    ),
    "frame_cache": Setting(
        "on", str, "'on': captures are kept on disk, beside compiled graphs, and a process that starts later loads "
        "them instead of tracing. 'check' traces, too, and raises InternalError if the capture would be another one. "
        "'off': neither. The environment variable PYFRAME_FRAME_CACHE sets it.",
        accepted=("on", "off", "check"),
    ),
    "compiled_autograd": Setting(
        False, bool, "Backward passes are captured and compiled in all threads, as in a `with "
        "pyframe.compiled_autograd():` around the program.",
    ),
    "verbose": Setting(
        False, bool, "Print a line to stderr for each capture and each graph break: the function and how long it took, "
        "and what broke the graph.",
    ),
}
if TYPE_CHECKING:  # for type checkers: `_Config` provides these
    recompile_limit: int
    fail_on_recompile_limit_hit: bool
    error_on_recompile: bool
    capture_scalar_outputs: bool
    capture_dynamic_output_shape_ops: bool
    instruction_limit: int
    size_limit: int
    suppress_errors: bool
    compile_when_traced: bool
    reorderable_logging_functions: set[Any]
    ignore_logging_functions: set[Any]
    progress: bool
    frame_cache: str
    compiled_autograd: bool
    verbose: bool
_values: dict[str, Any] = {name: copy.copy(setting.default) for name, setting in SETTINGS.items()}
_from_environment = os.environ.get("PYFRAME_FRAME_CACHE", "on")
if _from_environment in SETTINGS["frame_cache"].accepted:
    _values["frame_cache"] = _from_environment


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise UnknownSetting(f"unknown setting config.{name}; there are: {', '.join(sorted(SETTINGS))}")
    return SETTINGS[name]


def _set(values: Mapping[str, Any]) -> None:
    _values.update(values)
    _C.set_stands_aside(not _values["compile_when_traced"])
    show_progress(_values["progress"])
    if values.get("compiled_autograd") or f"{__package__}.api" in sys.modules:  # imports torch
        importlib.import_module(f"{__package__}.api").capture_all_backwards(_values["compiled_autograd"])


def describe() -> str:
    """Every setting, its value and what it means."""
    return "\n".join(f"{name} = {_values[name]!r}\n    {row.doc}" for name, row in SETTINGS.items())


@contextlib.contextmanager
def patch(changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **settings: Any) -> Iterator[None]:
    """Context manager and decorator: change settings temporarily.

    `patch(recompile_limit=2)`, `patch({"recompile_limit": 2})` or `patch("recompile_limit", 2)`.
    """
    wanted = {changes: value} if isinstance(changes, str) else dict(changes or {})
    wanted.update(settings)
    for name, new in wanted.items():
        _setting(name).check(name, new)
    before = {name: _values[name] for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


class _Config(types.ModuleType):
    """The class of this module: makes the settings attributes of the module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'pyframe.config' has no attribute {name!r}")
        _setting(name)
        return _values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            _setting(name).check(name, value)
            _set({name: value})
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise UserError(f"config.{name} cannot be deleted")

    def __dir__(self) -> list[str]:
        return [*SETTINGS, "patch", "describe"]


sys.modules[__name__].__class__ = _Config
