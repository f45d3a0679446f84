"""Which results of `compile` share their captures: those of the same function (or bound method, or module) with equal
settings, unless one asks for captures of its own with `isolate_recompiles`."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn

from .lazy_compiler import LazyCompiler
from .module import fresh_root

if TYPE_CHECKING:
    from .driver import FrameCompiler

Compiler: TypeAlias = "FrameCompiler | LazyCompiler"

# Keys hold ids: an object with the id of one that is gone may get its compiler, whose captures do not fit other code.
_compilers: weakref.WeakValueDictionary[Hashable, Compiler] = weakref.WeakValueDictionary()
_roots: weakref.WeakKeyDictionary[Compiler, types.FunctionType] = weakref.WeakKeyDictionary()


def shared_compiler(target: Any, made: Compiler) -> Compiler:
    """The compiler of an earlier `compile` of `target` with the settings of `made`, if its result still exists;
    otherwise `made`."""
    identity: tuple[int, int | None]
    if isinstance(target, types.MethodType):
        identity = id(target.__func__), id(target.__self__)
    elif isinstance(target, types.FunctionType | nn.Module):
        identity = id(target), None
    else:
        return made
    backend = "inductor" if isinstance(made, LazyCompiler) else _key_of(made.backend)
    key = (*identity, backend, made.options)
    try:
        return _compilers.setdefault(key, made)
    except TypeError:  # settings of a backend that is not pyframe's own may be unhashable
        return made


def root_of(compiler: Compiler, module: nn.Module) -> types.FunctionType:
    """The function that runs `module` when a compiled module is called."""
    return _roots.setdefault(compiler, fresh_root(module))


def _key_of(backend: Any) -> Hashable:
    if isinstance(backend, functools.partial):
        return id(backend.func), backend.args, tuple(sorted(backend.keywords.items()))
    return id(backend)
