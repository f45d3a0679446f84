"""The key under which a capture is kept: all that it depends on besides what its guards test.

That is the code and the name of the function, a coarse description of the arguments (so that calls with other sizes
have entries of their own), the settings of the compilation, the settings and versions of the process, and the files of
this package. A capture whose sizes vary has another key, in which sizes and numbers are left out.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductor.cache.file_store import content_key
from inductor.cache.process_key import process_key

from .. import config
from .code_hash import code_hash
from .described import NotKept, has_sizes, is_one_of
from .library_functions import library_functions
from .record import FORMAT

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_WITHOUT_EFFECT = ("frame_cache", "progress", "verbose")  # settings that change no capture
_MARKS = ("_dynamo_", "_pyframe_")  # attributes of tensors that mark dimensions
_DEPTH = 3  # how deep containers among the arguments are described
_ITEMS = 32
_MODULES = 4096


@dataclass(frozen=True, slots=True)
class FrameKeys:
    """The keys of a call. `exact`: with the sizes and numbers of its arguments. `sized`: without them, for captures in
    which sizes or numbers vary; whether they are 0, 1 or more is part of it. `coarse`: without texts, too, for frames
    that run as they are."""

    exact: str
    sized: str
    coarse: str


def frame_keys(func: types.FunctionType, locals_: Sequence[Any], settings: tuple[Any, ...]) -> FrameKeys:
    """The keys for a call of `func` with these fast locals. `settings`: those of the compilation, as plain values.
    NotKept if the function has constants that no hash describes, or if the program has replaced functions of torch."""
    code = code_hash(func.__code__)
    names = repr((func.__module__, func.__qualname__))
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    modes = repr((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), device))
    process = str(FORMAT), sys.version, _own_files(), process_key(), _settings(), library_functions(), modes
    given = (*locals_, *_closure(func))
    modules: dict[int, str] = {}
    exact, sized, coarse = (
        repr([_argument(value, _DEPTH, varies, modules) for value in given]) for varies in range(3)
    )
    common = content_key(*process, repr(settings), code, names)
    return FrameKeys(
        content_key("frame", common, exact), content_key("sized", common, sized), content_key("coarse", common, coarse)
    )


def _settings() -> str:
    """The settings of pyframe.config, and what of torch's compiler this process has imported, which its functions for
    settings may have changed. NotKept if there are settings that hold functions of the program."""
    values = {name: getattr(config, name) for name in config.SETTINGS if name not in _WITHOUT_EFFECT}
    for name in ("reorderable_logging_functions", "ignore_logging_functions"):
        if values.pop(name):
            raise NotKept(f"config.{name}")
    return repr((sorted(values.items()), "torch._dynamo" in sys.modules, os.environ.get("PYFRAME_VERIFY")))


def _argument(value: Any, depth: int, varies: int, modules: dict[int, str]) -> Any:
    """What a key has of an argument. `varies`: 1 for nothing but whether sizes and numbers are 0, 1 or something else;
    2 for no value of numbers and texts. `modules`: the structure of each module, by id."""
    kind = type(value)
    if is_one_of(kind, _TENSORS):
        if not has_sizes(value):
            return kind.__name__, str(value.layout)
        sizes: Any = [min(n, 2) for n in value.shape] if varies else (tuple(value.shape), value.stride())
        described = str(value.dtype), str(value.device), sizes, value.requires_grad
        return kind.__name__, *described, *sorted(_attribute(*each) for each in vars(value).items())
    if varies and is_one_of(kind, (int, float)) and (varies > 1 or value not in (0, 1)):
        return kind.__name__
    if varies > 1 and is_one_of(kind, (str, bytes)):
        return kind.__name__
    if is_one_of(kind, _PLAIN):
        return kind.__name__, value
    if is_one_of(kind, (tuple, list)) and depth:
        return kind.__name__, len(value), [_argument(each, depth - 1, varies, modules) for each in value[:_ITEMS]]
    if kind is dict and depth:
        items = list(value.items())[:_ITEMS]
        return "dict", len(value), [
            (_argument(k, depth - 1, 0, modules), _argument(v, depth - 1, varies, modules)) for k, v in items
        ]
    if issubclass(kind, torch.nn.Module):
        if id(value) not in modules:
            modules[id(value)] = content_key(repr(list(_structure(value))))
        return modules[id(value)]
    return _name(kind)


def _attribute(name: str, value: Any) -> str:
    """What a key has of an attribute of a tensor. `mark_dynamic` and its like, of pyframe and of torch, set some that
    hold plain data; of others the name suffices."""
    if not name.startswith(_MARKS):
        return name
    held = sorted(map(repr, value.items() if type(value) is dict else value)) if hasattr(value, "__iter__") else value
    return f"{name} {held}"


def _name(cls: type) -> tuple[Any, Any]:
    return type.__getattribute__(cls, "__module__"), type.__getattribute__(cls, "__qualname__")


def _closure(func: types.FunctionType) -> list[Any]:
    """What the cells of a function hold."""
    held = []
    for cell in func.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            held.append(cell.cell_contents)
    return held


def _structure(root: torch.nn.Module) -> Iterator[tuple[Any, ...]]:
    """The classes of a module and of those in it, and the sizes of their tensors: models of one class, such as
    nn.Sequential, that are compiled in one program have entries of their own."""
    found, seen = [root], {id(root)}
    while found and len(seen) < _MODULES:
        module = found.pop()
        kind, held = type(module), object.__getattribute__(module, "__dict__")
        parameters, modules = held.get("_parameters"), held.get("_modules")
        tensors = parameters.values() if type(parameters) is dict else ()
        sizes = [x.shape for x in tensors if is_one_of(type(x), _TENSORS) and has_sizes(x)]
        yield *_name(kind), held.get("training") is True, sizes
        for each in modules.values() if type(modules) is dict else ():
            if issubclass(type(each), torch.nn.Module) and id(each) not in seen:
                seen.add(id(each))
                found.append(each)


@functools.cache
def _own_files() -> str:
    """The files of pyframe and inductor: their names, sizes and times of change, which is faster to find than what they
    hold."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return repr([root, *(list(_files(os.path.join(root, package))) for package in ("pyframe", "inductor"))])


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.name.endswith((".py", ".so", ".pyd", ".h")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
