"""Builds the Vars of containers that existed before the frame, and of instances of the program's classes, which may be
subclasses of containers."""

from __future__ import annotations

import array
import collections
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from ..core.guard_predicates import dict_contents, same_keys, same_set
from ..core.source import AttrSource, CallSource, ConstSource, DictItemSource, DictKeySource, SeqItemSource, Source
from .containers.deque import DequeVar
from .containers.lazy_containers import LazyContainerVar, LongSequenceVar
from .containers.mapping import DictVar, key_of
from .containers.sequence import ListVar, SizeVar, TupleVar
from .containers.sets import SetVar
from .objects.annotations import TYPE_FORMS
from .objects.builtin_instances import SCALARS, BuiltinInstanceVar, kind_of
from .objects.descriptors import ProxyVar
from .objects.instances import InstanceVar
from .objects.namedtuple import NamedTupleVar, acts_as_tuple, is_plain_struct_sequence
from .objects.simple_namespace import NamespaceVar
from .protocol.base import Var
from .protocol.const import ConstVar
from .protocol.opaque import OpaqueVar
from .torch_objects.torch_functions import CONSTANT_CLASSES
from .tracer import Tracer

EQUAL_TYPES = (int, float, complex, str, bytes, bool)
# Types of dict keys that are constants, compared by value or by identity.
KNOWN_KEYS: tuple[type, ...] = (
    *EQUAL_TYPES, type(None), enum.Enum, torch.dtype, *CONSTANT_CLASSES, type, types.FunctionType, types.ModuleType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.GetSetDescriptorType, *TYPE_FORMS,
)  # fmt: skip


def wrap_opaque(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    return OpaqueVar(value, source)


def wrap_object(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    kind = kind_of(type(value))
    if kind is not None and not issubclass(type(value), collections.defaultdict):
        return _builtin_instance(tx, value, source, kind)
    if issubclass(type(value), types.SimpleNamespace):
        return NamespaceVar(value, source)
    if kind is not None or not _plain_layout(type(value)):
        return wrap_opaque(tx, value, source)
    return InstanceVar(value, source)


def _plain_layout(cls: type) -> bool:
    """Whether instances have no C-level contents apart from their attributes."""
    return not issubclass(cls, collections.deque | bytearray | array.array)


def wrap_list(tx: Tracer, value: Any, source: Source | None) -> Var:
    structseq = is_plain_struct_sequence(type(value))
    if type(value) not in (list, tuple, torch.Size) and not structseq and not _plain_named_tuple(type(value)):
        return wrap_object(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    if len(value) > tx.size_limit:
        return LongSequenceVar(value, source)
    items = [tx.wrap(item, SeqItemSource(source, i) if source else None) for i, item in enumerate(value)]
    if isinstance(value, torch.Size):
        return SizeVar(items, source)
    if type(value) not in (list, tuple):
        return NamedTupleVar(type(value), items, source)
    return TupleVar(items, source) if isinstance(value, tuple) else ListVar(items, source)


def wrap_dict(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) not in (dict, collections.OrderedDict, collections.defaultdict):
        return wrap_object(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    items = _items(tx, value, source)
    factory = None
    if isinstance(value, collections.defaultdict):
        factory = tx.wrap(value.default_factory, AttrSource(source, "default_factory") if source else None)
        factory = None if value.default_factory is None else factory
    return DictVar(items, source, type(value), factory)


def _long(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    return LazyContainerVar(value, source)


def _items(tx: Tracer, value: dict[Any, Any], source: Source | None) -> dict[Any, Var]:
    """The items of a dict.  Later calls find the values by key if all keys are constants, else by position."""
    if all(isinstance(k, KNOWN_KEYS) for k in value):
        tx.guard(source, "DICT_KEYS", tuple(value))
        # a copy: wrapping a value can import modules of this project, whose names the program's dict may contain
        return {k: tx.wrap(v, DictItemSource(source, k) if source else None) for k, v in dict(value).items()}
    tx.guard(source, "LEN", len(value))
    values = CallSource(source, _values, "values") if source else None
    found = {}
    for place, (key, item) in enumerate(list(value.items())):
        key_var = _key(tx, key, DictKeySource(source, place) if source else None)
        found[tx.existing_key(value, key_var)] = tx.wrap(item, SeqItemSource(values, place) if values else None)
    return found


def _key(tx: Tracer, key: Any, source: Source | None) -> Var:
    """The Var of a dict key.  Constants are guarded by EQUALS: a function as a key by identity, not by its code."""
    if isinstance(key, KNOWN_KEYS):
        tx.guard(source, "EQUALS", key)
    return tx.wrap(key, source)


def _values(held: dict[Any, Any]) -> list[Any]:
    return list(held.values())


def _plain_named_tuple(cls: type) -> bool:
    """Whether a class is a namedtuple whose instances store nothing but the fields."""
    return hasattr(cls, "_fields") and acts_as_tuple(cls)


def wrap_set(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) not in (set, frozenset):
        return wrap_object(tx, value, source)
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    functions = [each for each in value if isinstance(each, _HASHED_BY_IDENTITY)]
    rest = value.difference(functions) if functions else value
    if not all(isinstance(k, (*EQUAL_TYPES, enum.Enum, torch.dtype, type, type(None))) for k in rest):
        return _set_of_objects(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    frozen = frozenset(value)
    tx.guard(source, "PREDICATE", (functools.partial(same_set, frozen), (), f"=={set(frozen)!r}"))
    if not functions:
        return SetVar(value, source, type(value))
    keys = [key_of(tx, tx.wrap(each, ConstSource.of(each, each.__name__))) for each in functions]
    return SetVar([*rest, *keys], source, type(value))


def _set_of_objects(tx: Tracer, value: set[Any] | frozenset[Any], source: Source | None) -> Var:
    """A set with items that are not constants: each item is guarded by its position in the order of iteration."""
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    items = CallSource(source, list, "list") if source else None
    keys = []
    for place, item in enumerate(value):
        var = _key(tx, item, SeqItemSource(items, place) if items else None)
        keys.append(tx.existing_key(value, var))
    return SetVar(keys, source, type(value))


# Functions compare by identity.
_HASHED_BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType)


def wrap_deque(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) is not collections.deque:
        return wrap_object(tx, value, source)
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    tx.guard(AttrSource(source, "maxlen") if source else None, "EQUALS", value.maxlen)
    items = [tx.wrap(item, SeqItemSource(source, i) if source else None) for i, item in enumerate(value)]
    return DequeVar(items, value.maxlen, source)


def wrap_mapping_proxy(tx: Tracer, value: types.MappingProxyType[Any, Any], source: Source | None) -> Var:
    """The Var of a MappingProxyType, modelled by a copy of its items; opaque if a key is not a plain constant."""
    if not all(isinstance(k, EQUAL_TYPES) for k in value):
        return wrap_opaque(tx, value, source)
    if source is not None:
        tx.guard(source, "TYPE", types.MappingProxyType)
        tx.guard(source, "PREDICATE", (functools.partial(same_keys, tuple(value)), (), f"keys {tuple(value)!r}"))
    items = CallSource(source, dict, "dict") if source else None
    held = DictVar({k: tx.wrap(v, DictItemSource(items, k) if items else None) for k, v in value.items()})
    return ProxyVar(held, source)


def _builtin_instance(tx: Tracer, value: Any, source: Source | None, kind: type) -> Var:
    """The Var of an instance of a subclass of a built-in type.  The contents are read with the methods of the built-in
    type, since the subclass may override them."""
    contents = _CONTENTS[kind]
    held = contents(value)
    if kind in SCALARS:
        inner = CallSource(source, contents, kind.__name__) if source else None
        base = tx.wrap(held, inner)
        return BuiltinInstanceVar(value, source, type(value), kind, ConstVar(base.constant()))
    if isinstance(held, dict) and not all(isinstance(k, EQUAL_TYPES) for k in held):
        return wrap_opaque(tx, value, source)
    inner = CallSource(source, contents, kind.__name__) if source else None
    base = _WRAPPED_BY[type(held)](tx, held, inner)
    if isinstance(base, OpaqueVar):
        return wrap_opaque(tx, value, source)
    if isinstance(base, DictVar):
        base.cls = kind
    base.source = source
    return BuiltinInstanceVar(value, source, type(value), kind, base)


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    dict: dict_contents,
    collections.OrderedDict: dict_contents,
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: set,  # copying a set calls neither `__hash__` nor `__eq__`
    frozenset: frozenset,
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
}

# Of the exact types that `_CONTENTS` gives, but for scalars.
_WRAPPED_BY: dict[type, Callable[[Tracer, Any, Source | None], Var]] = {
    dict: wrap_dict, list: wrap_list, tuple: wrap_list, set: wrap_set, frozenset: wrap_set,
}  # fmt: skip
