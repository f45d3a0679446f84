"""Vars for functions wrapped in `functools.lru_cache`.

A wrapper that existed before the trace is called while tracing, and its result is guarded.  For a wrapper that the
program creates, the trace runs an equivalent cache written in Python.
"""

from __future__ import annotations

import functools
import gc
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core.files import skipped_file
from ...core.source import AttrSource, CallSource, ConstSource, Source
from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..polyfills.builtins import lru_cache_wrapper
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.class_reads import MISSING
from ..protocol.const import make
from ..registry import register
from ..tracer import Tracer
from .instances import InstanceVar

CACHED = type(functools.lru_cache(len))


def _name(cached: Any) -> str:
    """The qualified name of a wrapper, or its text if it has none, as for some C functions."""
    return str(getattr(cached, "__qualname__", cached))


class CachedFunctionVar(HeldVar):
    """A function wrapped in `functools.lru_cache` before the trace.

    A call with known arguments is executed while tracing.  A guard repeats it at each run, as eager would, because the
    cache may have been cleared or may have dropped the result.  Arguments count as known if they are constants, or
    objects that existed before the frame and that it has not changed.  A call with other arguments breaks the graph.
    """

    __slots__ = ()

    def describe(self) -> str:
        return f"{_name(self.value)}, which caches its results,"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name.startswith("cache_"):
            return self.unsupported(tx, f"attribute {name!r}")
        return tx.wrap(getattr(self.value, name), AttrSource(self.source, name) if self.source else None)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.value.cache_parameters()["maxsize"] == 0:
            return self.unsupported(tx, "a call with maxsize=0")
        try:
            values, named = [_known(tx, arg) for arg in args], {key: _known(tx, arg) for key, arg in kwargs.items()}
        except NotConstant:
            return self.unsupported(tx, "a call with arguments known only at run time")
        changed = [effect.target for effect in tx.effects if effect.kind != "CALL"]
        if changed and _may_read(self.value.__wrapped__, changed):
            return self.unsupported(tx, "a call after a change of an object that it may read")
        try:
            result = self.value(*values, **named)
        except Exception as error:  # noqa: BLE001  the program sees any exception
            tx.raise_(type(error), *error.args)
        source = _call_of(self.value, tuple(named), *values, *named.values())
        tx.guard(source, "EQUALS" if type(result) in _EQUAL_TYPES else "ID", result)
        return tx.wrap(result, ConstSource.of(result, f"{_name(self.value)}(...)"))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class NewCacheVar(Var):
    """A function that the traced program wraps in `lru_cache`; `fn` is an equivalent wrapper written in Python.

    It cannot be reconstructed: if it is needed after the graph, the graph breaks at the root step `created_at` that
    created it.
    """

    __slots__ = ("fn", "created_at")

    def __init__(self, fn: Var, created_at: int) -> None:
        super().__init__()
        self.fn, self.created_at = fn, created_at

    def python_type(self) -> type:
        return CACHED

    def describe(self) -> str:
        return "a function that caches its results"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return make(CACHED) if name == "__class__" else self.fn.getattr_(tx, name)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        self.fn.setattr_(tx, name, value)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.call(self.fn, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuilt(f"{self.describe()} and is needed after the graph", self.created_at, "unsupported-object")


@functools.lru_cache(maxsize=256, typed=True)
def _call_of(cached: Any, keywords: tuple[str, ...], *values: Any) -> Source:
    """The source of the result of a call, which repeats the call when read; equal calls share one source.

    The last `len(keywords)` values are passed by keyword.
    """
    label = f"{_name(cached)}(...)"
    if len(values) == 1 and not keywords:
        return CallSource(ConstSource.of(values[0], "its argument"), cached, _name(cached))
    positional = values[: len(values) - len(keywords)]
    call = functools.partial(cached, *positional, **dict(zip(keywords, values[len(positional) :], strict=True)))
    return CallSource(ConstSource.of(call, label), operator.call, "call")


def _may_read(fn: Any, changed: Sequence[Var]) -> bool:
    """Whether a function may read one of these objects, which the frame has changed."""
    state = _state(fn)
    if state == []:
        return False
    objects = [var.value if isinstance(var, InstanceVar) else MISSING for var in changed]
    if state is None or any(value is MISSING for value in objects):
        return True
    reached = _reachable(state)
    return reached is None or any(id(value) in reached for value in objects)


def _state(fn: Any, callers: tuple[Any, ...] = ()) -> list[Any] | None:
    """What a function, and those that it calls, may read that a program can change: globals and variables of closures
    that are not modules, classes or functions; None if that is unknown."""
    if any(fn is caller for caller in callers):
        return []
    if isinstance(fn, types.ModuleType | type | types.BuiltinFunctionType | CACHED):
        return []
    if not isinstance(fn, types.FunctionType):
        return [fn]
    if len(callers) > _MAX_DEPTH:
        return None
    if skipped_file(fn.__code__.co_filename):
        return []
    names = [name for code in _codes(fn.__code__) for name in code.co_names]
    read = [fn.__globals__[name] for name in names if name in fn.__globals__]
    try:
        read += [cell.cell_contents for cell in fn.__closure__ or ()]
    except ValueError:  # an empty cell
        return None
    found: list[Any] = []
    for value in read:
        more = _state(value, (*callers, fn))
        if more is None:
            return None
        found += more
    return found


def _reachable(roots: Sequence[Any]) -> set[int] | None:
    """The ids of the objects that can be reached from these without passing a module or class, those included that
    methods of the objects may read; None if that is unknown or there are too many."""
    seen: set[int] = set()
    classes: set[type] = set()
    todo = list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, types.ModuleType | type):
            continue
        seen.add(id(each))
        cls = type(each)
        functions = [each] if isinstance(each, types.FunctionType) else [] if cls in classes else _methods(cls)
        classes.add(cls)
        read = [_state(function) for function in functions]
        if None in read or len(seen) > _MAX_REACHED:
            return None
        todo += [value for values in read for value in values or ()]
        if not isinstance(each, types.FunctionType):
            todo += gc.get_referents(each)
    return seen


def _methods(cls: type) -> list[types.FunctionType]:
    """The Python functions that using an instance of a class may call."""
    found = [value for base in cls.__mro__ for value in vars(base).values()]
    found += [part for value in found if isinstance(value, property) for part in (value.fget, value.fset, value.fdel)]
    found = [getattr(value, "__func__", value) for value in found]
    return [value for value in found if isinstance(value, types.FunctionType)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those defined in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


_MAX_DEPTH = 8
_MAX_REACHED = 50_000


@register(CACHED)
def _new_cache(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return NewCacheVar(tx.inline(lru_cache_wrapper, args, kwargs), tx.steps)


def _known(tx: Tracer, var: Var) -> Any:
    """The object of a Var; raises NotConstant if it is unknown or the frame has changed it."""
    if var.is_constant() or not isinstance(var, InstanceVar):
        return var.constant()
    if var.source is None or var.value is MISSING or any(effect.target is var for effect in tx.effects):
        raise NotConstant(var.describe())
    tx.guard(var.source, "ID", var.value)
    return var.value


# Results of these types are guarded by equality, others by identity.
_EQUAL_TYPES = (int, float, complex, str, bytes, bool)
