"""Which results of `compile` share their captures: those of the same function (or bound method, or module) with equal
settings, unless one asks for captures of its own with `isolate_recompiles`. Results for other objects share them where
the guards allow it, see `sibling_captures`."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn

from .lazy_compiler import LazyCompiler
from .module import fresh_root
from .sibling_captures import siblings_of

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
    key = (*identity, _backend_of(made), made.options)
    try:
        return _compilers.setdefault(key, made)
    except TypeError:  # settings of a backend that is not pyframe's own may be unhashable
        return made


def with_siblings(made: Compiler) -> Compiler:
    """`made`, which then takes over captures of compilers with equal settings, and they its own."""
    made.siblings = siblings_of(_backend_of(made), made.options, isinstance(made, LazyCompiler))
    return made


def root_of(compiler: Compiler, module: nn.Module) -> types.FunctionType:
    """The function that runs `module` when a compiled module is called."""
    root = _roots.setdefault(compiler, fresh_root(module))
    if compiler.siblings is not None:
        compiler.siblings.add_root(root.__code__, type(module))
    return root


def _backend_of(made: Compiler) -> Hashable:
    return "inductor" if isinstance(made, LazyCompiler) else _key_of(made.backend)


def _key_of(backend: Any) -> Hashable:
    if isinstance(backend, functools.partial):
        return id(backend.func), backend.args, tuple(sorted(backend.keywords.items()))
    return id(backend)
