"""Classes that the traced program creates: `class` statements, `type(name, bases, namespace)`, `namedtuple` and others.

The trace creates a real placeholder class, so that MRO computation, `issubclass` and the like work unchanged.  Members
with a known value are set to it; the others are placeholder objects, which `tx.wrap` maps back to their Vars.  No code
of the program runs for the placeholder: `__set_name__`, `__init_subclass__` and metaclasses are traced.

If the class is needed after the graph, the new bytecode creates it at run time by the same steps, which its Var
records.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.files import our_file
from ...core.python_compat import ANNOTATIONLIB, LAZY_ANNOTATIONS
from ..codegen import Codegen
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, TupleVar
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, make, maker
from ..registry import register
from ..tracer import Tracer
from . import classes
from .classes import ClassVar
from .deferred_annotations import PlaceholderAnnotate, evaluated, in_format
from .descriptors import PropertyVar, WrappedFunctionVar
from .functions import BuiltinVar, CellVar, FunctionVar
from .instances import InstanceVar
from .lookup import class_function, defined_in
from .lru_cache import NewCacheVar
from .property_instances import PropertyInstanceVar
from .superclasses import SuperVar

Step = tuple[Callable[..., Any], tuple[Var, ...]]
# Namespace entries that `type.__new__` itself reads; they must be present when the class is created.
_CORE = ("__module__", "__qualname__", "__slots__", "__doc__", "__orig_bases__")
# The entry in which `type.__annotations__` caches its result, from CPython 3.14 on.
_ANNOTATIONS, _CACHE = type.__dict__["__annotations__"], "__annotations_cache__"
# Vars of placeholder classes, by the id of the placeholder.
_NEW_CLASSES: weakref.WeakValueDictionary[int, NewClassVar] = weakref.WeakValueDictionary()
CONFLICT = (
    "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all "
    "its bases"
)
# Modules whose `__init_subclass__` is not traced; it runs when the placeholder is created.
_NOT_BY_PROGRAM = (typing, abc, enum)


class NewClassVar(ClassVar):
    """A class that the traced program creates; `value` is its placeholder.

    At run time `maker(*parts)` creates the real class; then each of `steps` is called with it.
    """

    __slots__ = ("__weakref__", "maker", "parts", "steps")

    def __init__(self, value: type, maker: Callable[..., Any], parts: Sequence[Var]) -> None:
        super().__init__(value)
        self.maker, self.parts = maker, list(parts)
        self.steps: list[Step] = []
        _NEW_CLASSES[id(value)] = self

    def run(self, tx: Tracer, step: Callable[..., Any], *args: Var) -> None:
        """Call `step(cls, *args)` on the placeholder now, and record it for the class created at run time."""
        try:
            step(self.value, *(placeholder_object(tx, arg) for arg in args))
        except (AttributeError, TypeError, ValueError) as error:
            tx.raise_(type(error), *error.args)
        self.steps.append((step, args))

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "__annotations__" and LAZY_ANNOTATIONS and lookup(type(self.value), name) is _ANNOTATIONS:
            return self._annotations(tx)
        return super().getattr_(tx, name)

    def _annotations(self, tx: Tracer) -> Var:
        """As `type.__annotations__` does: evaluate once, then cache the result in the class."""
        if any(name in vars(self.value) for name in ("__annotations__", _CACHE)):
            return super().getattr_(tx, "__annotations__")
        annotate = self.value.__annotate__  # type: ignore[attr-defined]
        found: Var = evaluated(tx, tx.wrap(annotate, tx.const_source(annotate, "__annotate__")))
        self.set_member(tx, _CACHE, found)
        return found

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        special = "__setattr__" if value is not None else "__delattr__"
        args = [make(name), *([value] if value is not None else [])]
        method = lookup(type(self.value), special)
        if isinstance(method, types.FunctionType):
            tx.call(class_function(tx, type(self.value), special, method), [self, *args], {})
        else:
            self.set_member(tx, name, value)

    def set_member(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`type.__setattr__(cls, name, value)`; None deletes."""
        if value is not None and LAZY_ANNOTATIONS and name in ("__annotate__", "__annotate_func__"):
            _placeholder_annotate(tx, value)
        if value is None:
            self.run(tx, type.__delattr__, make(name))
        else:
            self.run(tx, type.__setattr__, make(name), value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.maker)
        cg.call_top(*(lambda part=part: cg.load(part) for part in self.parts))
        cg.remember(self)  # before the members, whose cells may refer back to the class
        for step, args in self.steps:
            cg.load_const(step)
            cg.call_top(lambda: cg.load(self), *(lambda arg=arg: cg.load(arg) for arg in args))
            cg.emit("POP_TOP")


def var_of_class(value: type) -> ClassVar:
    """The Var of a class: its NewClassVar if it is a placeholder, else a new ClassVar."""
    return _NEW_CLASSES.get(id(value)) or ClassVar(value)


def new_class_of(value: type) -> NewClassVar | None:
    """The Var of the class if it is a placeholder, else None."""
    return _NEW_CLASSES.get(id(value))


class PlaceholderInstance:
    """Placeholder for a value that is unknown while tracing."""


def placeholder_object(tx: Tracer, var: Var) -> Any:
    """The value of `var` if known, else a placeholder object, which `tx.wrap` maps back to `var`."""
    try:
        return var.constant()
    except NotConstant:
        pass
    known = next((obj for obj, of in tx.placeholder_objects.values() if of is var), None)
    if known is not None:
        return known
    placeholder = _placeholder(tx, var)
    if placeholder is not var:
        tx.placeholder_objects[id(placeholder)] = (placeholder, var)
    return placeholder


def _placeholder_annotate(tx: Tracer, var: Var) -> PlaceholderAnnotate | None:
    if var.is_constant():
        return None
    placeholder = PlaceholderAnnotate(lambda number: placeholder_object(tx, in_format(tx, var, make(number))))
    tx.placeholder_objects[id(placeholder)] = (placeholder, var)
    return placeholder


def _placeholder(tx: Tracer, var: Var) -> Any:
    if isinstance(var, PropertyVar):
        return property(*(None if fn is None else placeholder_object(tx, fn) for fn in var.accessors))
    if isinstance(var, WrappedFunctionVar):
        return var.kind(placeholder_object(tx, var.fn))
    if isinstance(var, PropertyInstanceVar):
        return tx.graph_break("unsupported-object", f"a class with {var.describe()}")
    if isinstance(var, FunctionVar):
        return _function(tx, var)
    if isinstance(var, NewCacheVar):
        return functools.lru_cache(_unused)
    if type(var) is TupleVar:
        return tuple(placeholder_object(tx, item) for item in var.items)
    if type(var) is ListVar and var.source is None:
        return [placeholder_object(tx, item) for item in var.items]
    if type(var) is DictVar and var.cls is dict and var.source is None and not any(map(_odd, var.items)):
        return {key: placeholder_object(tx, item) for key, item in var.items.items()}
    if type(var) is InstanceVar and var.value is MISSING:
        obj: Any = object.__new__(var.cls)
        tx.placeholder_objects[id(obj)] = (obj, var)
        _fill(tx, obj, var)
        return obj
    if isinstance(var, InstanceVar) and var.value is not MISSING:
        return var.value
    if var.source is not None and not (var.is_tensor or isinstance(var, DictVar | ListVar)):
        return tx.existing(var)
    return PlaceholderInstance()


def _unused() -> None: ...


def _odd(key: Any) -> bool:
    return not isinstance(key, str | int)


def _fill(tx: Tracer, obj: Any, var: InstanceVar) -> None:
    for name, value in var.attrs.items():
        if value is not None:
            object.__setattr__(obj, name, placeholder_object(tx, value))


def _function(tx: Tracer, var: FunctionVar) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in var.code.co_freevars)
    function = types.FunctionType(var.code, var.globals, var.name, None, closure)
    tx.placeholder_objects[id(function)] = (function, var)
    if "__qualname__" in var.attrs:
        function.__qualname__ = var.attrs["__qualname__"].constant()
    for name, value in var.attrs.items():
        setattr(function, name, placeholder_object(tx, value))
    if isinstance(var.annotations, DictVar):
        function.__annotations__ = placeholder_object(tx, var.annotations)
    elif var.annotate is not None:
        function.__annotate__ = _placeholder_annotate(tx, var.annotate)  # type: ignore[attr-defined]
    return function


# ---- class creation ----
class _NoHooks:
    """Temporary first base of a new class, whose empty `__init_subclass__` keeps hooks of the program from running."""

    def __init_subclass__(cls, **kwargs: Any) -> None: ...


class _NoHooksSlotted:
    """Like `_NoHooks`, for bases without `__dict__`."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None: ...


class LayoutDiffers(Exception):
    """The temporary base of a class cannot be removed, because without it the class has another memory layout."""


def class_without_hooks(meta: type, name: str, bases: tuple[type, ...], core: dict[str, Any]) -> type:
    """A class with these bases, created by `type.__new__` without running an `__init_subclass__` of the program.

    LayoutDiffers if CPython does not allow that; TypeError if the class cannot exist.
    """
    if not any(_has_hook(base) for base in bases):
        return type.__new__(meta, name, bases, dict(core))
    cls: Any
    try:
        cls = type.__new__(meta, name, (_NoHooks, *bases), dict(core))
        cls.__bases__ = bases
    except TypeError:
        cls = type.__new__(meta, name, (_NoHooksSlotted, *bases), dict(core))
        try:
            cls.__bases__ = bases
        except TypeError as error:
            raise LayoutDiffers(str(error)) from error
    return cls


def _hook(base: type) -> types.FunctionType | None:
    """The `__init_subclass__` that runs for a subclass of `base`, if it is written in Python; else None."""
    function = getattr(lookup(base, "__init_subclass__"), "__func__", None)
    return function if isinstance(function, types.FunctionType) else None


def _has_hook(base: type) -> bool:
    """Whether the hook belongs to the program.  Hooks of `_NOT_BY_PROGRAM` run for the placeholder, too."""
    function = _hook(base)
    return function is not None and not defined_in(function, *_NOT_BY_PROGRAM)


def make_class(tx: Tracer, meta: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`type.__new__(meta, name, bases, namespace, **kwargs)`."""
    if len(args) != 3:
        tx.raise_(TypeError, f"type.__new__() takes exactly 3 arguments ({len(args)} given)")
    name, bases_var, namespace = args
    if not slots.has_type(name, str):
        tx.raise_(TypeError, f"type.__new__() argument 1 must be str, not {slots.type_name(name)}")
    items = getattr(getattr(namespace, "base", namespace), "items", None)
    if not isinstance(items, Mapping) or not all(isinstance(key, str) for key in items):
        return tx.graph_break(
            "unsupported-object", f"class {name.constant()} whose namespace is not a dict with str keys"
        )
    bases = tuple(bases_var.constant())
    meta = _most_derived(tx, meta, bases)
    if isinstance(lookup(meta, "mro"), types.FunctionType):
        return tx.graph_break("unsupported-object", f"class {name.constant()}, whose metaclass has a method mro()")
    core = {key: items[key] for key in _CORE if key in items}
    if "__module__" not in core:
        core["__module__"] = make(tx.frames[-1].globals.get("__name__"))
    parts = [make(meta), name, TupleVar(list(map(make, bases))), DictVar(core)]
    try:
        values = {
            key: value.plain() if key == "__slots__" else placeholder_object(tx, value) for key, value in core.items()
        }
        cls = class_without_hooks(meta, name.constant(), bases, values)
    except NotConstant as unknown:
        return tx.graph_break("unsupported-object", f"class {name.constant()} with {unknown} known only at run time")
    except LayoutDiffers as error:
        return tx.graph_break("unsupported-object", f"class {name.constant()}: {error}")
    except TypeError as error:
        return tx.raise_(TypeError, *error.args)
    var = NewClassVar(cls, class_without_hooks, parts)
    tx.placeholder_objects[id(cls)] = (cls, var)
    for key, content in (("__classcell__", var), ("__classdictcell__", namespace)):
        cell = items.get(key)
        if isinstance(cell, CellVar):
            cell.store(tx, content)
    handled = (*_CORE, "__classcell__", "__classdictcell__")
    own_items = {key: value for key, value in items.items() if key not in handled}
    members = {key: _wrapped(key, value) for key, value in own_items.items()}
    if "__eq__" in members:
        members.setdefault("__hash__", ConstVar(None))
    for key, value in members.items():
        var.set_member(tx, key, value)
    _name_members(tx, var, members)
    _init_subclass(tx, var, kwargs)
    return var


def _most_derived(tx: Tracer, meta: type, bases: tuple[Any, ...]) -> type:
    for base in bases:
        if not isinstance(base, type):
            tx.raise_(TypeError, "type() doesn't support MRO entry resolution; use types.new_class()")
    for base in bases:
        if slots.derives(type(base), meta):
            meta = type(base)
        elif not slots.derives(meta, type(base)):
            tx.raise_(TypeError, CONFLICT)
    return meta


def _wrapped(name: str, value: Var) -> Var:
    """A member as `type.__new__` stores it: `__new__` becomes a staticmethod, two other functions a classmethod."""
    if isinstance(value, FunctionVar) and name in ("__new__", "__init_subclass__", "__class_getitem__"):
        return WrappedFunctionVar(staticmethod if name == "__new__" else classmethod, value)
    return value


def _name_members(tx: Tracer, var: NewClassVar, members: Mapping[str, Var]) -> None:
    """Call `__set_name__` of the members that have one written in Python."""
    for name, member in members.items():
        if not isinstance(member, InstanceVar):
            continue
        if isinstance(lookup(member.cls, "__set_name__"), types.FunctionType):
            member._invoke(tx, "__set_name__", var, make(name))
            if member.value is MISSING:
                _fill(tx, placeholder_object(tx, member), member)


def _init_subclass(tx: Tracer, var: NewClassVar, kwargs: Mapping[str, Var]) -> None:
    hook = next((base.__dict__["__init_subclass__"] for base in var.value.__mro__[1:] if _defines_hook(base)), None)
    function = getattr(hook, "__func__", None)
    if isinstance(function, types.FunctionType):
        ran = defined_in(function, *_NOT_BY_PROGRAM)
    else:  # a C hook other than object's has run when the placeholder was created, and runs again at run time
        ran = isinstance(hook, types.ClassMethodDescriptorType) and hook is not object.__dict__["__init_subclass__"]
    if not ran:
        tx.call(SuperVar(var.value, var).getattr_(tx, "__init_subclass__"), [], kwargs)
    elif kwargs:
        var.unsupported(tx, "keyword arguments of the class statement")


def _defines_hook(base: type) -> bool:
    return "__init_subclass__" in base.__dict__


@register(object.__dict__["__init_subclass__"])
def _plain_init_subclass(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`object.__init_subclass__`."""
    name = args[0].constant().__qualname__
    if kwargs:
        tx.raise_(TypeError, f"{name}.__init_subclass__() takes no keyword arguments")
    if len(args) > 1:
        tx.raise_(TypeError, f"{name}.__init_subclass__() takes no arguments ({len(args) - 1} given)")
    return ConstVar(None)


def _generic_init_subclass(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`Generic.__init_subclass__`, which is written in C in CPython 3.12 and calls this function of `typing`."""
    called: Var = tx.call(make(typing._generic_init_subclass), args, kwargs)  # type: ignore[attr-defined]
    return called


@register(type)
def type_of_three(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`type(obj)`, and `type(name, bases, namespace, **kwargs)`."""
    if len(args) == 1 and not kwargs:
        return classes.type_var(tx, args[0])
    if len(args) != 3:
        tx.raise_(TypeError, "type() takes 1 or 3 arguments")
    return make_class(tx, type, args, kwargs)


@register(type.__new__)
def _type_new(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return make_class(tx, args[0].constant(), args[1:], kwargs)


@register(abc._abc_init)  # type: ignore[attr-defined]
def _abc_init(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    (cls,) = args
    if not isinstance(cls, NewClassVar):
        return cls.unsupported(tx, "_abc_init()")
    cls.run(tx, abc._abc_init)  # type: ignore[attr-defined]
    return ConstVar(None)


@register(type.__setattr__, type.__delattr__)
def _type_setattr(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    cls, name, *value = args
    if isinstance(cls, NewClassVar):
        cls.set_member(tx, name.constant(), value[0] if value else None)
    else:
        cls.setattr_(tx, name.constant(), value[0] if value else None)
    return ConstVar(None)


# ---- classes created by functions of the standard library ----
def from_factory(tx: Tracer, factory: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`factory(*args, **kwargs)`, where `factory` creates a class and runs no code of the program."""
    values = [placeholder_object(tx, arg) for arg in args]
    named = {key: placeholder_object(tx, arg) for key, arg in kwargs.items()}
    try:
        cls = factory(*values, **named)
    except (TypeError, ValueError) as error:
        return tx.raise_(type(error), *error.args)
    var = NewClassVar(cls, _call_factory, [BuiltinVar(factory), TupleVar(list(args)), DictVar(kwargs)])
    tx.placeholder_objects[id(cls)] = (cls, var)
    return var


def _call_factory(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return factory(*args, **kwargs)


@register(collections.namedtuple)
def _namedtuple(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    module = tx.frames[-1].globals.get("__name__", "__main__")
    return from_factory(tx, collections.namedtuple, args, {"module": make(module), **kwargs})


@register(dataclasses._process_class)  # type: ignore[attr-defined]
def _process_class(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`dataclasses._process_class`, which implements `@dataclass`; the new methods are added to the placeholder."""
    cls, *flags = args
    if not isinstance(cls, NewClassVar):
        return cls.unsupported(tx, "dataclass()")
    process = dataclasses._process_class  # type: ignore[attr-defined]
    try:
        with _annotations_known(tx, cls):
            processed = process(cls.value, *(flag.constant() for flag in flags))
    except (TypeError, ValueError) as error:
        return tx.raise_(type(error), *error.args)
    for name, field in processed.__dataclass_fields__.items():
        of_field = tx.placeholder_objects.get(id(field), (None, None))[1]
        if isinstance(of_field, InstanceVar):  # from a `field()` call; set the attributes that `@dataclass` fills in
            attributes = {"name": name, "kw_only": field.kw_only, "type": field.type, "_field_type": field._field_type}
            of_field.attrs.update({key: tx.wrap(value, None) for key, value in attributes.items()})
    if processed is cls.value:
        cls.steps.append((process, tuple(flags)))
        return cls
    var = NewClassVar(processed, process, [cls, *flags])  # `slots=True` creates a second class
    tx.placeholder_objects[id(processed)] = (processed, var)
    return var


@contextlib.contextmanager
def _annotations_known(tx: Tracer, cls: NewClassVar) -> Iterator[None]:
    """Cache the traced annotations in the placeholder, so that `dataclass` finds them as `annotationlib` gives them."""
    held = cls.value.__dict__
    if not LAZY_ANNOTATIONS or "__annotations__" in held:
        yield
        return
    form = tx.wrap(ANNOTATIONLIB.Format.FORWARDREF, tx.const_source(ANNOTATIONLIB.Format.FORWARDREF, "FORWARDREF"))
    found = tx.call(FunctionVar(ANNOTATIONLIB.get_annotations), [cls], {"format": form})
    if _CACHE in held:
        yield
        return
    type.__setattr__(cls.value, _CACHE, placeholder_object(tx, found))
    try:
        yield
    finally:
        type.__delattr__(cls.value, _CACHE)


def _call_annotate_function(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    annotate, number = args
    return in_format(tx, annotate, number)


def _annotations_of_class(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return args[0].getattr_(tx, "__annotations__")


@register(functools.total_ordering)
def _total_ordering(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    (cls,) = args
    if not isinstance(cls, NewClassVar):
        return cls.unsupported(tx, "total_ordering()")
    cls.run(tx, functools.total_ordering)
    return cls


@register(typing._make_nmtuple)  # type: ignore[attr-defined]
def _named_tuple_class(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`typing._make_nmtuple`, which creates a class derived from `typing.NamedTuple`."""
    fields = ListVar(args[1].unpack(tx))
    return from_factory(tx, typing._make_nmtuple, [args[0], fields, *args[2:]], kwargs)  # type: ignore[attr-defined]


def _module_of_frame(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`sys._getframemodulename(depth)`: the `__module__` of the function that runs in that frame."""
    depth = kwargs["depth"] if "depth" in kwargs else args[0] if args else make(0)
    # polyfills of this project replace C functions, which have no frame
    frames = [frame for frame in tx.frames if not our_file(frame.file)]
    number = max(depth.constant(), 0)
    if number >= len(frames):
        return depth.unsupported(tx, "sys._getframemodulename() of a frame outside of the compiled function")
    frame = frames[-1 - number]
    if frame.function is not None:
        found: Var = frame.function.getattr_(tx, "__module__")
        return found
    if tx.func.__module__ != frame.globals.get("__name__"):
        return depth.unsupported(tx, "sys._getframemodulename() of a function whose __module__ was set")
    return make(tx.func.__module__)


maker(type)(var_of_class)
register(type.__init__)(lambda tx, args, kwargs: ConstVar(None))
register(type.__prepare__)(lambda tx, args, kwargs: DictVar({}))
if LAZY_ANNOTATIONS:
    register(ANNOTATIONLIB.call_annotate_function)(_call_annotate_function)
    register(_ANNOTATIONS.__get__)(_annotations_of_class)
_GENERIC_HOOK = typing.Generic.__dict__["__init_subclass__"]
if isinstance(_GENERIC_HOOK, types.ClassMethodDescriptorType):
    register(_GENERIC_HOOK)(_generic_init_subclass)
if hasattr(sys, "_getframemodulename"):  # from CPython 3.12 on
    register(sys._getframemodulename)(_module_of_frame)
