"""Argument checks for functions that have a model.

A model reads only the arguments that it supports.  Before it runs, `check` compares the call with the signature of the
function and raises the TypeError that CPython would raise for a wrong number of arguments or an unknown keyword.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..tracer import Tracer
from .base import NotConstant, Var

MANY = 1 << 30
_OF_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    type,
)


class Arity(NamedTuple):
    """The least and the most positional arguments of a function, and its keywords (None: any keyword is accepted)."""

    least: int
    most: int
    keywords: frozenset[str] | None = frozenset()
    required: frozenset[str] = frozenset()  # keywords that a positional argument may give instead

    def takes(self, positional: int, keywords: Mapping[str, Any]) -> bool:
        if positional > self.most or (self.keywords is not None and not self.keywords.issuperset(keywords)):
            return False
        return positional + len(self.required.intersection(keywords)) >= self.least


_ONE, _ANY = Arity(1, 1), Arity(0, MANY)
# Functions without a signature that `inspect.signature` can read.
_BY_HAND: dict[Any, Arity] = {
    set: Arity(0, 1), frozenset: Arity(0, 1), bool: Arity(0, 1), range: Arity(1, 3), slice: Arity(1, 3),
    iter: Arity(1, 2), next: Arity(1, 2), getattr: Arity(2, 3), dir: Arity(0, 1), vars: Arity(0, 1),
    map: Arity(2, MANY), filter: Arity(2, 2), zip: Arity(0, MANY, frozenset({"strict"})),
    min: Arity(1, MANY, frozenset({"key", "default"})), max: Arity(1, MANY, frozenset({"key", "default"})),
    dict: Arity(0, 1, None), collections.OrderedDict: Arity(0, 1, None), collections.defaultdict: Arity(0, 2, None),
    collections.deque: Arity(0, 2, frozenset({"iterable", "maxlen"})), super: Arity(0, 2),
    functools.reduce: Arity(2, 3), functools.partial: Arity(1, MANY, None), itertools.chain: _ANY,
    itertools.islice: Arity(2, 4), functools.cmp_to_key: Arity(1, 1, frozenset({"mycmp"}), frozenset({"mycmp"})),
    itertools.product: Arity(0, MANY, frozenset({"repeat"})),
    itertools.repeat: Arity(1, 2, frozenset({"object", "times"}), frozenset({"object"})),
    itertools.zip_longest: Arity(0, MANY, frozenset({"fillvalue"})), operator.methodcaller: Arity(1, MANY, None),
    types.MappingProxyType: Arity(1, 1, frozenset({"mapping"}), frozenset({"mapping"})),
    staticmethod: _ONE, classmethod: _ONE, operator.attrgetter: Arity(1, MANY),
    operator.itemgetter: Arity(1, MANY), math.log: Arity(1, 2), type.__new__: Arity(1, MANY, None),
}  # fmt: skip
# Functions whose model raises the TypeError itself: the message names a class that is known only at the call.
_CHECKED_BY_MODEL = (object.__dict__["__init_subclass__"],)
_METHODS: dict[type, dict[str, Arity]] = {
    dict: {
        "pop": Arity(1, 2), "keys": Arity(0, 0), "items": Arity(0, 0), "values": Arity(0, 0), "clear": Arity(0, 0),
        "copy": Arity(0, 0), "update": Arity(0, 1, None), "__getitem__": _ONE,
    },
    list: {"__getitem__": _ONE},
    set: {
        **dict.fromkeys(("add", "discard", "remove", "isdisjoint", "issubset", "issuperset", "__contains__"), _ONE),
        **dict.fromkeys(("symmetric_difference", "symmetric_difference_update"), _ONE),
        **dict.fromkeys(("clear", "copy", "pop"), Arity(0, 0)),
        **dict.fromkeys(("union", "update", "difference", "difference_update"), _ANY),
        **dict.fromkeys(("intersection", "intersection_update"), _ANY),
    },
    collections.deque: {
        **dict.fromkeys(("append", "appendleft", "extend", "extendleft", "count", "remove"), _ONE),
        **dict.fromkeys(("clear", "copy", "pop", "popleft", "reverse", "__copy__"), Arity(0, 0)),
        "index": Arity(1, 3), "insert": Arity(2, 2), "rotate": Arity(0, 1),
    },
}  # fmt: skip
_METHODS[torch.Size] = {"numel": Arity(0, 0)}
_METHODS[torch._C.TensorBase] = {
    **dict.fromkeys(("detach_", "item", "retain_grad", "tolist"), Arity(0, 0)),
    **dict.fromkeys(("size", "stride"), Arity(0, 1, frozenset({"dim"}))),
    "equal": Arity(1, 1, frozenset({"other"}), frozenset({"other"})),
}  # fmt: skip
_METHODS[frozenset] = {name: arity for name, arity in _METHODS[set].items() if hasattr(frozenset, name)}
_METHODS[collections.OrderedDict] = {
    **_METHODS[dict], "pop": Arity(1, 2, frozenset({"key", "default"}), frozenset({"key"})),
}  # fmt: skip


@functools.cache
def _of_function(fn: Any) -> Arity | None:
    """The arity of a function or method, from the tables or from its signature; None if neither knows it."""
    owner = getattr(fn, "__objclass__", None)
    if owner is not None and fn.__name__ in _METHODS.get(owner, ()):
        method = _METHODS[owner][fn.__name__]
        most = MANY if method.most == MANY else method.most + 1
        return method._replace(least=method.least + 1, most=most)
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError, AttributeError):  # the last of `poll.register`, whose text names what it lacks
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in places if p.default is p.empty]
    return Arity(
        len(needed),
        MANY if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(places),
        None if any(p.kind is p.VAR_KEYWORD for p in parameters) else frozenset(p.name for p in named),
        frozenset(p.name for p in needed),
    )


def _known(fn: Any) -> Arity | None:
    if not isinstance(fn, _OF_C) or getattr(fn, "__module__", None) not in _MODULES:
        return None
    try:
        if fn in _CHECKED_BY_MODEL:
            return None
        return _BY_HAND.get(fn) or (None if isinstance(fn, type) and fn not in _SIMPLE else _of_function(fn))
    except TypeError:  # a bound method of an unhashable object is unhashable
        return None


_MODULES = (
    None, "builtins", "collections", "_functools", "functools", "itertools", "_operator", "operator", "math", "_bisect",
    "_heapq",
)  # fmt: skip
_SIMPLE = (
    list, tuple, float, complex, enumerate, reversed, object, property, itertools.accumulate,
    itertools.combinations, itertools.combinations_with_replacement, itertools.compress, itertools.count,
    itertools.cycle, itertools.dropwhile, itertools.filterfalse, itertools.groupby, itertools.pairwise,
    itertools.permutations, itertools.starmap, itertools.takewhile,
)  # fmt: skip


def check(tx: Tracer, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Any]) -> None:
    """Raise a TypeError in the traced program if `fn`, which has a model, does not accept these arguments."""
    if (written := _in_python(fn)) is not None:
        _check_python(tx, written, args if written is fn else [Var(), *args], kwargs)
        return
    arity = _known(fn)
    if arity is not None and not arity.takes(len(args), kwargs):
        message = _refusal(fn, len(args), tuple(kwargs))
        if message is None:
            tx.graph_break("unsupported-object", f"arguments that {fn.__qualname__}() does not take")
        tx.raise_(TypeError, message)


def _in_python(fn: Any) -> types.FunctionType | None:
    """`fn` if it is written in Python; of a class its `__init__`, if only that reads the arguments."""
    if isinstance(fn, types.FunctionType):
        return fn
    if isinstance(fn, type) and type(fn).__call__ is type.__call__ and fn.__new__ is object.__new__:
        init = fn.__init__  # type: ignore[misc]
        return init if isinstance(init, types.FunctionType) else None
    return None


@functools.cache
def _signature(fn: types.FunctionType) -> inspect.Signature:
    return inspect.signature(fn)


def _check_python(tx: Tracer, fn: types.FunctionType, args: Sequence[Var], kwargs: Mapping[str, Any]) -> None:
    try:
        _signature(fn).bind(*args, **kwargs)
    except TypeError:
        tx.refuse_arguments(inspect.unwrap(fn), args, kwargs)


@functools.lru_cache(maxsize=1024)
def _refusal(fn: Any, count: int, names: tuple[str, ...]) -> str | None:
    """The message of the TypeError that `fn` raises for this number of arguments and these keywords; None if it raises
    none.  `fn` is called with empty tuples (for a method, on an empty object), as CPython checks the count before it
    reads any argument."""
    values: list[Any] = [()] * count
    owner = getattr(fn, "__objclass__", None)
    if values and owner is torch._C.TensorBase:
        values[0] = torch.empty(0)
    elif values and owner in (*_METHODS, tuple, str, bytes):
        values[0] = owner()
    elif values and isinstance(fn, types.ClassMethodDescriptorType):
        values[0] = owner
    try:
        fn(*values, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return None


def check_method(tx: Tracer, obj: Var, name: str, args: Sequence[Var], kwargs: Mapping[str, Any]) -> None:
    """`check` for the method `name` of `obj`; does nothing if the type of `obj` is not known."""
    try:
        kind = obj.python_type()
    except NotConstant:
        return
    of_kind(tx, kind, obj, name, args, kwargs)


def of_kind(
    tx: Tracer, kind: type, obj: Var, name: str, args: Sequence[Var], kwargs: Mapping[str, Any]
) -> None:
    """`check` for the method `name` of the class `kind`, called on `obj`."""
    fn = getattr(kind, name, None)
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType | types.FunctionType):
        check(tx, fn, [obj, *args], kwargs)
