"""Detects monkey-patching: whether functions, methods and classes of torch or a library are still the original ones.

A library function that has a model, or that becomes one graph node, is not traced.  The trace must therefore check, and
guard, that neither the function nor a part of it was replaced.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.fx.graph import _get_qualified_name, _is_from_torch

from ...core.source import ConstSource, DictItemSource, FuncPartSource
from ..protocol.class_reads import MISSING, PLAIN, is_immutable, lookup
from ..tracer import Tracer

_TORCH = str(Path(torch.__file__).parent)
_IN_C = vars(torch._C.TensorBase)


def in_torch(code: types.CodeType) -> bool:
    """Whether a function with this code is written in torch's package."""
    return code.co_filename.startswith(_TORCH)


def torchs_class(cls: type) -> bool:
    """Whether torch defines a class. Unlike a Python function, which has its code, a class has no other record of its
    origin than the name of its module."""
    return cls.__module__.partition(".")[0] == "torch"


def torchs_own(found: Any, name: str) -> bool:
    """Whether `found`, the attribute `name` of `torch.Tensor`, is torch's original.

    Under a name that torch does not define, a Python function (or a property or classmethod of one) counts as original
    and anything else does not.
    """
    if found is MISSING or found is _IN_C.get(name, MISSING) or found is vars(object).get(name, MISSING):
        return True
    function = getattr(found, "__func__", getattr(found, "fget", found))
    if isinstance(function, types.FunctionType):
        return name not in _IN_C and name not in _PYTHON or in_torch(function.__code__)
    return found is _PYTHON.get(name, MISSING)


_PYTHON = dict(vars(torch.Tensor))


# Library functions and classes that have a model or become one node, instead of being traced.  For each: its parts
# (code, defaults, attributes) and the globals that its code reads, as they were when a capture first saw it.
_first_seen: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
_table, _mro = type.__dict__["__dict__"].__get__, type.__dict__["__mro__"].__get__  # bypass metaclasses


def _parts_of_function(fn: types.FunctionType) -> dict[Any, Any]:
    parts: dict[Any, Any] = {}
    functions = (fn, *_helpers(fn))
    state = _written_globals(functions)
    for place, each in enumerate(functions):
        parts |= {(place, 0): each.__code__, (place, 1): each.__defaults__}
        parts |= {(place, 2, name): value for name, value in _keyword_defaults(each).items()}
        read = set(each.__code__.co_names) - state
        parts |= {(place, 3, name): each.__globals__.get(name, MISSING) for name in read}
    return parts


def _written_globals(functions: Iterable[types.FunctionType]) -> set[str]:
    """The globals that the functions assign: mutable state, such as a flag that something was initialized. Also those
    that models change (`changed_by_models`)."""
    state = {name for fn in functions for module, name in _changed_by_models if module == fn.__module__}
    return state.union(*(_written_by(fn.__code__) for fn in functions))


_changed_by_models: set[tuple[str, str]] = set()  # names of modules and of globals in them


def changed_by_models(module: types.ModuleType, name: str) -> None:
    """Declare a global of a library that models set while tracing, and of which they know what depends on it. So the
    functions that read it have no guard on it."""
    _changed_by_models.add((module.__name__, name))


@functools.cache
def _written_by(code: types.CodeType) -> frozenset[str]:
    if _STORE_GLOBAL not in code.co_code[::2]:
        return frozenset()
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opcode == _STORE_GLOBAL)


_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]


def _parts_of_class(cls: type) -> dict[Any, Any]:
    """The parts of a class.  Of attributes of plain types (`PLAIN`) only the type counts: counters may change."""
    parts: dict[Any, Any] = {"metaclass": type(cls), "bases": _mro(cls)}
    for base in _own_bases(cls):
        for name, raw in _table(base).items():
            parts[base, name] = type(raw) if type(raw) in PLAIN else raw
    for place, fn in enumerate(_functions_of(cls)):
        parts |= {(place, *key): part for key, part in _parts_of_function(fn).items()}
    return parts


def _own_bases(cls: type) -> list[type]:
    """The mutable classes along the MRO, except `torch.Tensor`, which is guarded as a whole."""
    return [base for base in _mro(cls) if base is not torch.Tensor and not is_immutable(base)]


def _keyword_defaults(fn: types.FunctionType) -> dict[str, Any]:
    return fn.__kwdefaults__ or {}


def _functions_of(cls: type) -> list[types.FunctionType]:
    """The Python functions behind the methods of a class, except those of `torch.Tensor`."""
    found: dict[str, Any] = {}
    for base in reversed(_own_bases(cls)):
        found.update(_table(base))
    functions = (getattr(raw, "fget", getattr(raw, "__func__", raw)) for raw in found.values())
    return [fn for fn in functions if type(fn) is types.FunctionType]


def _helpers(fn: types.FunctionType) -> list[types.FunctionType]:
    """The functions of the same module whose names occur in the code of `fn`."""
    named = (fn.__globals__.get(name) for name in fn.__code__.co_names)
    return [each for each in named if type(each) is types.FunctionType and each.__globals__ is fn.__globals__]


def as_first_seen(library_object: Any) -> bool:
    """Whether a library function or class still has the parts that it had when a capture first saw it."""
    parts_of = _parts_of_class if isinstance(library_object, type) else _parts_of_function
    now = parts_of(library_object)
    before = _first_seen.setdefault(library_object, now)
    return all(now.get(key, MISSING) is part for key, part in before.items())


def guard_parts(tx: Tracer, fn: types.FunctionType) -> None:
    """Guard a function whose body is not traced, and the functions of its module that it names.

    The guards cover code, defaults and the globals that the code reads.
    """
    held = fn.__globals__
    place = ConstSource.of(held, f"the globals of {fn.__module__}")
    functions = (fn, *_helpers(fn))
    state = _written_globals(functions)
    for each in functions:
        source = ConstSource.of(each, each.__qualname__)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            tx.guard(FuncPartSource(source, part), "ID", getattr(each, part))
        for name, value in _keyword_defaults(each).items():
            tx.guard(DictItemSource(FuncPartSource(source, "__kwdefaults__"), name), "ID", value)
        for name in each.__code__.co_names:
            if name in held and name not in state:
                tx.guard(DictItemSource(place, name), "ID", held[name])


def guard_class(tx: Tracer, cls: type) -> None:
    """Guard a library class whose instances have a model: its attributes, and the parts of its methods."""
    for base in _own_bases(cls):
        for name in _table(base):
            lookup(cls, name)
    for fn in _functions_of(cls):
        guard_parts(tx, fn)


def by_name(target: Callable[..., Any]) -> Callable[..., Any]:
    """The object to use as the target of an FX node that calls `target`.

    The generated code of a graph calls functions of torch by their qualified names.  If another object has that name
    now, the result is a wrapper that calls `target`; otherwise it is `target` itself.
    """
    if not isinstance(target, types.FunctionType | types.BuiltinFunctionType) or not _is_from_torch(target):
        return target
    path = _get_qualified_name(target)
    found: Any = sys.modules["torch"]
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    if found is None or found is target:
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__module__ = __name__
    return call
