"""Calling a class: `type.__call__`, that is `__new__` followed by `__init__`, and `__new__` of the types written in C.

`__new__` and `__init__` written in Python are traced.  For a C type that is modelled, the result is a new Var; for
other C types the graph breaks.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping, Sequence

from ..protocol import result_size_bounds, slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import fold, make
from ..registry import Handler, call_model, register
from ..tracer import Tracer
from . import builtin_instances
from .exception_groups import new_group
from .exceptions import ExceptionVar
from .functions import BoundMethodVar, BuiltinVar
from .instances import InstanceVar
from .lookup import class_function, guarded_lookup
from .namedtuple import NamedTupleVar, acts_as_tuple, is_plain_struct_sequence, new_struct_sequence
from .property_instances import PropertyInstanceVar
from .simple_namespace import NamespaceVar

# Exceptions whose C constructors do more than store their arguments.
_SPECIAL_ERRORS = (OSError, ImportError, UnicodeError, SyntaxError)
# Wrapper subclasses of Tensor, a call of which is one graph node: pairs of a test for the class and a handler.
CONSTRUCTORS: list[tuple[Callable[[type], bool], Callable[[Tracer, type, Sequence[Var], Mapping[str, Var]], Var]]] = []
# `__new__` of types written in C that other packages model, by type.
NEW: dict[type, Callable[[Tracer, type, Sequence[Var], Mapping[str, Var]], Var]] = {}
_HEAP_TYPE = 0x200  # Py_TPFLAGS_HEAPTYPE
_NOT_CALLED = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def construct(tx: Tracer, cls_var: Var, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`type.__call__(cls, *args, **kwargs)`."""
    cls = cls_var.constant()
    if cls.__flags__ & _NOT_CALLED:
        return tx.graph_break("unsupported-object", f"creating an instance of {cls.__qualname__}")
    for makes_instances, make_instance in CONSTRUCTORS:
        if makes_instances(cls):
            return make_instance(tx, cls, args, kwargs)
    new = guarded_lookup(tx, cls, "__new__")
    if isinstance(new, staticmethod | types.FunctionType):
        obj = tx.call(class_function(tx, cls, "__new__", new), [cls_var, *args], kwargs)
    elif isinstance(new, types.BuiltinMethodType) and isinstance(new.__self__, type):
        obj = new_in_c(tx, new.__self__, cls, args, kwargs)
    else:
        obj = tx.call(cls_var.getattr_(tx, "__new__"), [cls_var, *args], kwargs)
    if not slots.has_type(obj, cls):
        return obj
    kind = obj.python_type()
    init = guarded_lookup(tx, kind, "__init__")
    if isinstance(init, types.FunctionType):
        result = tx.call(class_function(tx, kind, "__init__", init), [obj, *args], kwargs)
        if slots.constant_or(result, 0) is not None:
            tx.raise_(TypeError, f"__init__() should return None, not {slots.type_name(result)!r}")
    elif isinstance(init, type):
        return tx.graph_break("unsupported-object", f"{kind.__qualname__}.__init__, which is a class,")
    elif isinstance(obj, InstanceVar) and init is not object.__init__:
        method = obj.special(tx, "__init__")
        if method is not None:
            tx.call(method, args, kwargs)
        else:
            obj.c_method(tx, "__init__", args, kwargs)
    return obj


def new_in_c(tx: Tracer, base: type, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`base.__new__(cls, *args, **kwargs)` of a type `base` written in C."""
    if not issubclass(cls, base):
        name = f"{base.__name__}.__new__({cls.__name__})"
        tx.raise_(TypeError, f"{name}: {cls.__name__} is not a subtype of {base.__name__}")
    # as CPython checks: `__new__` of a base must not skip that of the C type that determines the layout
    solid = next(kind for kind in cls.__mro__ if not kind.__flags__ & _HEAP_TYPE)
    if solid is not base and issubclass(solid, base) and "__new__" in solid.__dict__:
        safe = f"{base.__name__}.__new__({cls.__name__}) is not safe, use {solid.__name__}.__new__()"
        tx.raise_(TypeError, safe)
    if lookup(cls, "__del__") is not MISSING:
        return tx.graph_break("unsupported-object", f"an instance of {cls.__qualname__}, which has a finalizer,")
    if base is type:
        return tx.call(BuiltinVar(type.__new__), [make(cls), *args], kwargs)
    if base is object:
        return _plain_object(tx, cls, args, kwargs)
    if base in NEW:
        return NEW[base](tx, cls, args, kwargs)
    if issubclass(base, BaseException) and issubclass(cls, BaseException):
        return _exception(tx, cls, args, kwargs)
    if base is types.SimpleNamespace:
        return NamespaceVar.fresh(cls)
    if base is property and cls is not base:
        return PropertyInstanceVar.fresh(cls)
    if base is types.MethodType and cls is base:
        return BoundMethodVar(args[0], args[1])
    if base is tuple and hasattr(cls, "_fields") and issubclass(cls, tuple) and acts_as_tuple(cls):
        return NamedTupleVar(cls, args[0].unpack(tx) if args else [])
    if issubclass(cls, tuple) and is_plain_struct_sequence(cls):
        return new_struct_sequence(tx, cls, args, kwargs)
    if (model := call_model(cls)) is not None:
        return model(tx, list(args), dict(kwargs))
    kind = builtin_instances.kind_of(cls)
    if kind is not None and issubclass(kind, base) and cls.__flags__ & _HEAP_TYPE:
        return builtin_instances.fresh(tx, cls, args, kwargs)
    if cls is bytes and len(args) == 1 and isinstance(args[0], InstanceVar):
        for name in ("__bytes__", "__index__", "__iter__"):
            if lookup(args[0].cls, name) is not MISSING:
                found = args[0]._invoke(tx, name)
                if name == "__bytes__" and not slots.has_type(found, bytes):
                    tx.raise_(TypeError, f"__bytes__ returned non-bytes (type {slots.type_name(found)})")
                return found if name == "__bytes__" else tx.call(make(bytes), [found], {})
    if cls in (bytes, complex):
        try:
            values = [arg.plain() for arg in args]
            tx.limit_size(result_size_bounds.of_function(cls, values), f"the result of {cls.__name__}()")
            return fold(tx, cls, *values, **{k: v.plain() for k, v in kwargs.items()})
        except NotConstant:
            return tx.graph_break("unknown-c-function", f"{cls.__name__}() of values known only at run time")
    return tx.graph_break("unsupported-object", f"creating an instance of {cls.__qualname__}")


def _plain_object(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    if args or kwargs:
        _refuse_extra(tx, cls)
        if lookup(cls, "__new__") is not object.__new__:
            tx.raise_(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
        if lookup(cls, "__init__") is object.__init__:
            tx.raise_(TypeError, f"{cls.__name__}() takes no arguments")
    if getattr(cls, "__abstractmethods__", None):
        try:
            object.__new__(cls)
        except TypeError as error:
            tx.raise_(TypeError, *error.args)
    if cls is not object and (not cls.__flags__ & _HEAP_TYPE or cls.__flags__ & _IMMUTABLE):
        return tx.graph_break("unsupported-object", f"creating an instance of {cls.__qualname__}")
    return InstanceVar.fresh(cls)


def _refuse_extra(tx: Tracer, cls: type) -> None:
    """Raise the TypeError that `object.__new__` raises for extra arguments.

    CPython decides this by C slots of the type, which stay set after `del cls.__new__`, so the real function is asked.
    """
    try:
        object.__new__(cls, None)  # type: ignore[call-arg]  # which is what is asked
    except TypeError as error:
        tx.raise_(TypeError, *error.args)


def _exception(tx: Tracer, cls: type[BaseException], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    python_init = isinstance(lookup(cls, "__init__"), types.FunctionType)
    if issubclass(cls, _SPECIAL_ERRORS) and (len(args) > 1 or kwargs) or kwargs and not python_init:
        return _exception_of_c(tx, cls, args, kwargs)
    if issubclass(cls, BaseExceptionGroup):
        return new_group(tx, cls, args)
    return ExceptionVar(cls, args)


def _exception_of_c(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """An exception whose C constructor computes fields.  It is called while tracing, so the arguments must be known."""
    python = any(isinstance(lookup(cls, name), types.FunctionType | staticmethod) for name in ("__init__", "__new__"))
    try:
        values, named = [arg.constant() for arg in args], {name: arg.constant() for name, arg in kwargs.items()}
    except NotConstant:
        python = True
    if python:
        return tx.graph_break("unsupported-object", f"creating a {cls.__name__} with these arguments")
    try:
        real = cls(*values, **named)
    except TypeError as error:
        return tx.raise_(TypeError, *error.args)
    exc = ExceptionVar(type(real), [make(arg) for arg in real.args])
    exc.keep(real, (cls, list(args), dict(kwargs)))
    return exc


@register(type.__call__)
def type_call(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return construct(tx, args[0], args[1:], kwargs)


def new_of(base: type) -> Handler:
    """The model of `base.__new__` of a type written in C."""

    def new(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        if not args or not isinstance(slots.constant_or(args[0], None), type):
            tx.raise_(TypeError, f"{base.__name__}.__new__(): not enough arguments")
        return new_in_c(tx, base, args[0].constant(), args[1:], kwargs)

    return new


_ERRORS = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
_WITH_NEW: tuple[type, ...] = (object, types.SimpleNamespace, *builtin_instances.KINDS, *_ERRORS)
for _base in dict.fromkeys(_WITH_NEW):  # some errors have two names
    if "__new__" in _base.__dict__:
        register(_base.__new__)(new_of(_base))
