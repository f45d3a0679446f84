"""Which results of `compile` share their captures: those of the same function (or bound method, or module) with equal
settings, unless one asks for captures of its own with `isolate_recompiles`."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Hashable
from typing import Any

from torch import nn

from .driver import FrameCompiler
from .module import fresh_root

# Keys hold ids: an object with the id of one that is gone may get its compiler, whose captures do not fit other code.
_compilers: weakref.WeakValueDictionary[Hashable, FrameCompiler] = weakref.WeakValueDictionary()
_roots: weakref.WeakKeyDictionary[FrameCompiler, types.FunctionType] = weakref.WeakKeyDictionary()


def shared_compiler(target: Any, made: FrameCompiler) -> FrameCompiler:
    """The compiler of an earlier `compile` of `target` with the settings of `made`, if its result still exists;
    otherwise `made`."""
    identity: tuple[int, int | None]
    if isinstance(target, types.MethodType):
        identity = id(target.__func__), id(target.__self__)
    elif isinstance(target, types.FunctionType | nn.Module):
        identity = id(target), None
    else:
        return made
    key = (*identity, _key_of(made.backend), made.options)
    try:
        return _compilers.setdefault(key, made)
    except TypeError:  # settings of a backend that is not pyframe's own may be unhashable
        return made


def root_of(compiler: FrameCompiler, module: nn.Module) -> types.FunctionType:
    """The function that runs `module` when a compiled module is called."""
    return _roots.setdefault(compiler, fresh_root(module))


def _key_of(backend: Any) -> Hashable:
    if isinstance(backend, functools.partial):
        return id(backend.func), backend.args, tuple(sorted(backend.keywords.items()))
    return id(backend)
