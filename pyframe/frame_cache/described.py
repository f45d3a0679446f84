"""Objects that guards and code refer to, as descriptions that another process can compare with its own objects.

A description is plain data. For what has a name (a module, function, class, operator) it is the name, for a function
with the hash of its code; for an immutable value it is the value. `describe` raises NotKept for everything else, so
that whatever no rule here knows is not kept. `resolve` finds the object of a description by name; an object without a
name, such as a function of a closure, is instead recognized where a guard reads it: `describe` of what is read there
must give the same description.

What a description leaves out is what a guard tests: the attributes of a module, class or function, for instance.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import hashlib
import importlib
import logging
import struct
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal, Optional, ParamSpec, TypeVar

import torch

from .code_hash import NotKept, code_hash

Description = tuple[Any, ...]
_PLAIN = (int, str, bytes, bool, type(None), type(Ellipsis))
_TORCH_VALUES = (torch.dtype, torch.layout, torch.memory_format)
_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)  # fmt: skip
_table, _mro = type.__dict__["__dict__"].__get__, type.__dict__["__mro__"].__get__  # bypass metaclasses
_MISSING = object()
_SPECIAL_FORMS: tuple[type, ...] = (type(Optional), type(Literal))
_VERSIONED = frozenset({"torch", *sys.stdlib_module_names})  # packages whose version is part of keys
_OWN = (f"{__name__.partition('.')[0]}.", "inductor.")
MAX_ITEMS = 256  # of a container


def is_one_of(cls: type, classes: Iterable[type]) -> bool:
    """Whether a class is one of these. Unlike `in`, this does not call the `__eq__` of a metaclass."""
    return any(cls is each for each in classes)


def has_sizes(tensor: torch.Tensor) -> bool:
    """Whether a tensor has sizes and strides that can be read."""
    return tensor.layout is torch.strided and not tensor.is_nested


def describe(value: Any) -> Description:
    """The description of an object. NotKept if it has none."""
    kind = type(value)
    rule = _RULES.get(id(kind))  # neither hashes nor compares the class, whose metaclass may be the program's
    if rule is not None:
        return rule(value)
    if issubclass(kind, type):
        return _class(value)
    if issubclass(kind, enum.Enum):
        return _member(value)
    if issubclass(kind, types.ModuleType):
        return _module(value)
    if issubclass(kind, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _operator(value)
    raise NotKept(f"an object of class {kind.__module__}.{kind.__qualname__}")


def resolve(description: Description) -> Any:
    """The object of this process that has this description. NotKept if there is none, or none that has a name."""
    found = _FINDERS[description[0]](*description[1:])
    if description[0] == "field" and found is not None:
        return found
    if describe(found) != description:
        raise NotKept(f"{description[:3]} is different in this process")
    return found


def has_name(description: Description) -> bool:
    """Whether `resolve` can find the object of a description."""
    return description[0] in _FINDERS and all(
        has_name(part) for part in description[1:] if type(part) is tuple and part and part[0] in _RULE_NAMES
    )


# ---- values


def _float(value: float) -> Description:
    return ("float", struct.pack("<d", value))


def _complex(value: complex) -> Description:
    return ("complex", struct.pack("<dd", value.real, value.imag))


def _tuple(value: tuple[Any, ...]) -> Description:
    if len(value) > MAX_ITEMS:
        raise NotKept(f"a tuple of {len(value)} items")
    return ("tuple", *map(describe, value))


def _slice(value: slice) -> Description:
    return ("slice", *map(describe, (value.start, value.stop, value.step)))


def _frozenset(value: frozenset[Any]) -> Description:
    if len(value) > MAX_ITEMS:
        raise NotKept(f"a frozenset of {len(value)} items")
    return ("frozenset", *sorted(map(describe, value), key=repr))


def _dict(value: dict[Any, Any]) -> Description:
    """A namespace of a module by its name; another dict by its items, which is how it is recognized."""
    if value is sys.modules:
        return ("sys.modules",)
    name = value.get("__name__")
    if isinstance(name, str) and (module := sys.modules.get(name)) is not None and vars(module) is value:
        return ("globals", name)
    if len(value) > MAX_ITEMS:
        raise NotKept(f"a dict of {len(value)} items")
    return ("dict", *(describe(part) for item in value.items() for part in item))


def _torch_value(value: Any) -> Description:
    return ("torch", str(value))


def _find_torch_value(name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."), None)


def _operator(value: Any) -> Description:
    return ("operator", str(value), type(value).__name__)


def _find_operator(name: str, kind: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


# ---- what has a name


def _named(module: Any, path: str) -> Any:
    """The object under a qualified name, read without running code of the program; _MISSING if there is none."""
    if not isinstance(module, str) or "<" in path:
        return _MISSING
    if module.startswith(_OWN) and module not in sys.modules:
        importlib.import_module(module)  # loaded code may refer to helpers of this package
    found: Any = sys.modules.get(module, _MISSING)
    for part in path.split("."):
        if isinstance(found, types.ModuleType):
            found = vars(found).get(part, _MISSING)
        elif isinstance(found, type):
            found = _table(found).get(part, _MISSING)
        else:
            return _MISSING
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
    return found


def _module(value: types.ModuleType) -> Description:
    name = vars(value).get("__name__")
    if not isinstance(name, str) or sys.modules.get(name) is not value:
        raise NotKept(f"the module {name}, which is not in sys.modules under its name")
    return ("module", name)


def _function(value: types.FunctionType) -> Description:
    module, path = value.__module__, value.__qualname__
    for step in _STEPS:
        if _reached(module, path, step) is value:
            return ("function", module, path, step, code_hash(value.__code__))
    return ("local function", module, path, code_hash(value.__code__))


def _reached(module: Any, path: str, step: str) -> Any:
    """The function under a qualified name: itself, a part of the property there, or one that a decorator wrapped."""
    found = _named(module, path)
    if step in ("fget", "fset", "fdel"):
        return getattr(found, step) if isinstance(found, property) else _MISSING
    for _ in range(len(step)):
        found = vars(found).get("__wrapped__", _MISSING) if isinstance(found, types.FunctionType) else _MISSING
    return found


_STEPS = ("", "fget", "fset", "fdel", "w", "ww", "www")  # w: what a decorator wrapped, ww: what that wraps


def _code(value: types.CodeType) -> Description:
    return ("code", value.co_qualname, code_hash(value))


def _class(value: type) -> Description:
    module, path = value.__module__, value.__qualname__
    if not isinstance(module, str):
        raise NotKept(f"the class {path} without a module")
    if module == "builtins" and _BUILTIN_TYPES.get(path) is value:
        return ("builtin type", path)
    return ("class" if _named(module, path) is value else "local class", module, path, _slots_of(value))


def _slots_of(cls: type) -> str:
    """A hash of what decides which operations instances of a class support: its metaclass, its bases, and the special
    attributes that each of them defines. "" for a class of torch or Python, whose version is part of keys."""
    if _is_versioned(cls):
        return ""
    bases = [(base.__module__, base.__qualname__, _special_names(base)) for base in _mro(cls)]
    metaclass = type(cls)
    text = repr((metaclass.__module__, metaclass.__qualname__, bases))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _special_names(cls: type) -> list[str]:
    if _is_versioned(cls):
        return []
    return sorted(name for name in _table(cls) if name[:2] == "__" and name not in _WITHOUT_EFFECT)


def _is_versioned(cls: type) -> bool:
    return str(type.__getattribute__(cls, "__module__")).partition(".")[0] in _VERSIONED


_WITHOUT_EFFECT = frozenset(("__annotations__", "__doc__"))  # Python adds them when they are read


_TYPES: tuple[type, ...] = (
    types.FunctionType, type(None), type(Ellipsis), types.MethodType, types.CodeType, types.BuiltinFunctionType,
    types.ModuleType, types.CellType, types.MappingProxyType, types.GeneratorType,
)  # fmt: skip
_BUILTIN_TYPES = {cls.__name__: cls for cls in _TYPES}  # classes that no module has under their names


def _builtin(value: types.BuiltinFunctionType) -> Description:
    """A function written in C: of a module that is part of Python or torch, or a class method."""
    module, name, owner = value.__module__, value.__name__, value.__self__
    for place in (module, owner.__name__ if isinstance(owner, types.ModuleType) else None):
        if not isinstance(place, str) or not (place.partition(".")[0] in _VERSIONED or place.startswith(_OWN)):
            continue
        if _named(place, name) is value:
            return ("builtin", place, name)
    if isinstance(owner, type) and getattr(owner, name, None) == value:
        return ("class method", _class(owner), name)
    raise NotKept(f"the function {name} written in C")


def _find_class_method(owner: Description, name: str) -> Any:
    return getattr(resolve(owner), name, None)


def _descriptor(value: Any) -> Description:
    owner, name = value.__objclass__, value.__name__
    if _table(owner).get(name) is not value:
        raise NotKept(f"the descriptor {name} of {owner.__qualname__}, which has been replaced")
    return ("descriptor", _class(owner), name)


def _find_descriptor(owner: Description, name: str) -> Any:
    return _table(resolve(owner)).get(name)


def _member(value: enum.Enum) -> Description:
    name = value.name
    if type(name) is not str or type(value)._member_map_.get(name) is not value:
        raise NotKept(f"{value!r}, which is not a plain member of its enum")
    return ("member", _class(type(value)), name, describe(value._value_))


def _find_member(owner: Description, name: str, _: Description) -> Any:
    cls = resolve(owner)
    return cls._member_map_.get(name) if isinstance(cls, enum.EnumMeta) else None


# ---- what consists of others


def _type_variable(value: Any) -> Description:
    module, name = value.__module__, value.__name__
    if _named(module, name) is not value:
        raise NotKept(f"the type variable {name}, which its module does not have")
    return ("type variable", module, name)


def _special_form(value: Any) -> Description:
    """`typing.Union`, `Literal` and the like, which code tests types of annotations against."""
    name = value._name
    if not isinstance(name, str) or _named("typing", name) is not value:
        raise NotKept(f"the special form {name}, which typing does not have")
    return ("special form", name)


def _logger(value: logging.Logger) -> Description:
    if logging.Logger.manager.loggerDict.get(value.name) is not value:
        raise NotKept(f"the logger {value.name}, which logging does not have")
    return ("logger", value.name)


def _cached_function(value: Any) -> Description:
    """A function wrapped in `functools.lru_cache`; what its calls return is guarded."""
    module, path, wrapped = value.__module__, value.__qualname__, value.__wrapped__
    if _named(module, path) is not value or type(wrapped) is not types.FunctionType:
        raise NotKept(f"the cached function {path}, which its module does not have")
    return ("cached function", module, path, code_hash(wrapped.__code__))


def _static_method(value: staticmethod[Any, Any]) -> Description:
    return ("staticmethod", describe(value.__func__))


def _class_method(value: classmethod[Any, Any, Any]) -> Description:
    return ("classmethod", describe(value.__func__))


def _property(value: property) -> Description:
    return ("property", *map(describe, (value.fget, value.fset, value.fdel)))


def _method(value: types.MethodType) -> Description:
    return ("method", describe(value.__func__), describe(value.__self__))


def _partial(value: functools.partial[Any]) -> Description:
    names = sorted(value.keywords)
    named = [describe(part) for name in names for part in (name, value.keywords[name])]
    return ("partial", describe(value.func), _tuple(value.args), ("tuple", *named))


def _find_partial(function: Description, args: Description, named: Description) -> Any:
    parts = resolve(named)
    return functools.partial(resolve(function), *resolve(args), **dict(zip(parts[::2], parts[1::2], strict=True)))


def field_of(cls: type, name: str) -> Description:
    """The description of a field of a dataclass, which says nothing about what the field holds."""
    return ("field", _class(cls), name)


def _find_field(owner: Description, name: str) -> Any:
    found = dataclass_fields(resolve(owner)).get(name)
    return found if isinstance(found, dataclasses.Field) else None


def dataclass_fields(cls: type) -> dict[str, Any]:
    """The fields of a dataclass by name; none for another class."""
    tables = (_table(base) for base in _mro(cls))
    found: Any = next((table["__dataclass_fields__"] for table in tables if "__dataclass_fields__" in table), {})
    return found if type(found) is dict else {}


def _plain(value: Any) -> Description:
    return ("=", type(value).__name__, value)


_RULES_BY_CLASS: dict[type, Callable[[Any], Description]] = {
    **dict.fromkeys(_PLAIN, _plain),
    float: _float, complex: _complex, tuple: _tuple, slice: _slice, frozenset: _frozenset, dict: _dict,
    torch.dtype: _torch_value, torch.layout: _torch_value, torch.memory_format: _torch_value,
    torch.device: lambda value: ("device", str(value)), torch.Size: lambda value: ("size", *value),
    object: lambda value: ("object",),
    type(vars(abc.ABC)["_abc_impl"]): lambda value: ("abc data",),  # what it decides is asked again, see SameAnswer
    range: lambda value: ("range", value.start, value.stop, value.step),
    types.ModuleType: _module, types.FunctionType: _function, types.CodeType: _code,
    types.BuiltinFunctionType: _builtin, staticmethod: _static_method, classmethod: _class_method,
    property: _property, types.MethodType: _method, functools.partial: _partial,
    **dict.fromkeys(_DESCRIPTORS, _descriptor), **dict.fromkeys((TypeVar, ParamSpec), _type_variable),
    logging.Logger: _logger, type(functools.lru_cache(len)): _cached_function,
    **dict.fromkeys(_SPECIAL_FORMS, _special_form),
}  # fmt: skip
_RULES = {id(cls): rule for cls, rule in _RULES_BY_CLASS.items()}
_FINDERS: dict[str, Callable[..., Any]] = {
    "=": lambda _, value: value,
    "float": lambda data: struct.unpack("<d", data)[0],
    "complex": lambda data: complex(*struct.unpack("<dd", data)),
    "tuple": lambda *items: tuple(map(resolve, items)),
    "slice": lambda *items: slice(*map(resolve, items)),
    "frozenset": lambda *items: frozenset(map(resolve, items)),
    "sys.modules": lambda: sys.modules,
    "globals": lambda name: vars(sys.modules[name]) if name in sys.modules else None,
    "torch": _find_torch_value,
    "device": torch.device,
    "size": lambda *sizes: torch.Size(sizes),
    "range": range,
    "operator": _find_operator,
    "module": lambda name: sys.modules.get(name),
    "function": lambda module, path, step, _: _reached(module, path, step),
    "class": lambda module, path, _: _named(module, path),
    "builtin type": lambda path: _BUILTIN_TYPES.get(path),
    "builtin": _named,
    "class method": _find_class_method,
    "descriptor": _find_descriptor,
    "member": _find_member,
    "partial": _find_partial,
    "field": _find_field,
    "type variable": _named,
    "logger": lambda name: logging.Logger.manager.loggerDict.get(name),
    "cached function": lambda module, path, _: _named(module, path),
    "special form": lambda name: _named("typing", name),
}
_RULE_NAMES = frozenset((
    *_FINDERS, "abc data", "dict", "local function", "local class", "code", "object", "staticmethod", "classmethod",
    "property", "method",
))  # fmt: skip
