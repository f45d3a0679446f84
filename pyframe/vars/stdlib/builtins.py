"""Models of Python's builtin functions, and of a few functions of `inspect`, `dataclasses` and `typing`.

Importing this module also registers the models of the neighbouring `builtins_*` modules, `locks` and `warnings`.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import inspect
import operator
import sys
import traceback
import types
import typing
from typing import Any

from ...core.trace_reliances import note_fields, note_made
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, TupleVar, sorted_items
from ..numbers.numpy_scalars import NumpyArgumentVar
from ..numbers.symint import is_unbacked
from ..objects.abstract_classes import guard_answer
from ..objects.class_construction import placeholder_object
from ..objects.classes import ClassVar, is_callable
from ..objects.exceptions import TracebackVar
from ..objects.functions import BoundMethodVar, FunctionVar, PartialVar
from ..objects.instances import InstanceVar
from ..objects.lookup import defined_in
from ..objects.namedtuple import NamedTupleVar
from ..objects.object_methods import refuse_arguments
from ..objects.originals import in_torch
from ..objects.superclasses import SuperVar
from ..protocol import slots
from ..protocol.base import NotConstant, Raised, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, bool_var, fold, make
from ..protocol.identity import IdVar
from ..protocol.text import format_of, hash_of, repr_of, str_of
from ..registry import Args, Handler, Kwargs, register
from ..torch_objects.tensor import TensorVar
from ..torch_objects.tensor_types import is_instance, is_tensor_type
from ..tracer import Tracer
from . import (  # noqa: F401  registers the models of these modules
    builtins_containers,
    builtins_iterate,
    builtins_operator,
    imports,
    locks,
    warnings,
)
from .frame_locals import names_of_caller, variables_of_caller


@register(len)
def _len(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return args[0].length(tx)


@register(bool)
def _to_bool(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args and isinstance(args[0], TensorVar) and (item := args[0].truth_as_number(tx)) is not None:
        return item
    if args and is_unbacked(args[0]):
        return slots.compare(tx, "!=", args[0], ConstVar(0))
    return bool_var(bool(args) and args[0].truth(tx))


@register(sys.intern)
def _intern(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return fold(tx, sys.intern, args[0].constant())


@register(isinstance)
def _isinstance(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    try:
        kind = args[0].python_type()
    except NotConstant:
        return args[0].unsupported(tx, "isinstance()")
    if isinstance(args[1], TupleVar):
        return bool_var(any(_isinstance(tx, [args[0], each], {}).truth(tx) for each in args[1].items))
    if isinstance(args[1], ClassVar):
        if is_tensor_type(args[1].value):
            return bool_var(isinstance(args[0], TensorVar) and is_instance(args[0].fake, args[1].value))
        if kind is args[1].value and not isinstance(args[0], TensorVar):
            return bool_var(True)  # CPython does not call `__instancecheck__` if the type is the class itself
        check = lookup(type(args[1].value), "__instancecheck__")
        if isinstance(check, types.FunctionType) and not isinstance(args[1].value, abc.ABCMeta):
            # those of `nn.Parameter` and `nn.Buffer` read attributes of the tensor, which the program may have set
            if not _is_untraced(check) or (isinstance(args[0], TensorVar) and not issubclass(kind, args[1].value)):
                return bool_var(args[1].getattr_(tx, "__instancecheck__").call(tx, [args[0]], {}).truth(tx))
    return _is_derived(tx, args, kind)


def _is_derived(tx: Tracer, args: Args, kind: type) -> Var:
    """`isinstance(*args)` for an object of type `kind`, without the `__instancecheck__` of the class."""
    classes = args[1].constant()
    lookup(kind, "__class__")
    guard_answer(tx, issubclass, kind, classes)
    varies = isinstance(args[0], ConstVar) and args[0].varies
    value = None if varies else slots.constant_or(args[0], None)
    if isinstance(args[0], InstanceVar) and isinstance(args[0].value, kind):
        value = args[0].value
    try:
        return bool_var(issubclass(kind, classes) or (value is not None and isinstance(value, classes)))
    except TypeError:
        return fold(tx, isinstance, None, classes)  # raises the TypeError in the program


@register(type.__instancecheck__)
def _instancecheck(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    cls, tested = args
    if not isinstance(tested, TensorVar):
        return tx.graph_break("unknown-c-function", f"type.__instancecheck__ of {tested.describe()}")
    return _is_derived(tx, [tested, cls], tested.python_type())


def _is_untraced(check: types.FunctionType) -> bool:
    """Whether an `__instancecheck__` is called and guarded instead of traced: those of torch, typing and enum."""
    return in_torch(check.__code__) or defined_in(check, typing, sys.modules.get("typing_extensions"), enum)


@register(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[1], ClassVar):
        check = lookup(type(args[1].value), "__subclasscheck__")
        if isinstance(check, types.FunctionType) and not isinstance(args[1].value, abc.ABCMeta):
            return bool_var(args[1].getattr_(tx, "__subclasscheck__").call(tx, [args[0]], {}).truth(tx))
    if isinstance(args[1], TupleVar):
        return bool_var(any(_issubclass(tx, [args[0], each], {}).truth(tx) for each in args[1].items))
    if isinstance(args[0], ClassVar):
        guard_answer(tx, issubclass, args[0].value, args[1].constant())
    return fold(tx, issubclass, args[0].constant(), args[1].constant())


def _attribute(tx: Tracer, obj: Var, name: str) -> Var | None:
    try:
        return tx.getattr(obj, name)
    except Raised as raised:
        if not issubclass(raised.exc.python_type(), AttributeError):
            raise
        return None


def _name(tx: Tracer, name: Var) -> str:
    """The value of the `name` argument of getattr and the like; TypeError unless it is a str."""
    if not slots.has_type(name, str):
        tx.raise_(TypeError, f"attribute name must be string, not {slots.type_name(name)!r}")
    return str(name.constant())


@register(getattr)
def _getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    name = _name(tx, args[1])
    if len(args) == 2:
        return tx.getattr(args[0], name)
    return _attribute(tx, args[0], name) or args[2]


@register(hasattr)
def _hasattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return bool_var(_attribute(tx, args[0], _name(tx, args[1])) is not None)


@register(setattr)
def _setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args[0].setattr_(tx, _name(tx, args[1]), args[2])
    return ConstVar(None)


@register(delattr)
def _delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args[0].setattr_(tx, _name(tx, args[1]), None)
    return ConstVar(None)


@register(object.__setattr__)
def _object_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar):
        args[0].store(tx, args[1].constant(), args[2])
    else:
        args[0].setattr_(tx, args[1].constant(), args[2])
    return ConstVar(None)


@register(object.__delattr__)
def _object_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar):
        args[0].store(tx, args[1].constant(), None)
    else:
        args[0].setattr_(tx, args[1].constant(), None)
    return ConstVar(None)


@register(object.__init__)
def _object_init(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if isinstance(args[0], InstanceVar) and (len(args) > 1 or kwargs):
        refuse_arguments(tx, args[0].cls)
    return ConstVar(None)


@register(object)
def _object(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return InstanceVar.fresh(object)


def _via(function: Any, method: str) -> Handler:
    """A handler that folds constants, calls the special method `method` of instances, and else uses `call_method`."""

    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        if function in (int, float) and len(args) == 1 and not kwargs and isinstance(args[0], NumpyArgumentVar):
            return args[0].number.call_method(tx, method, [], {})
        if function is abs and isinstance(args[0], NumpyArgumentVar):
            return args[0].call_method(tx, method, args[1:], kwargs)
        if all(arg.is_constant() for arg in args) and not kwargs:
            return fold(tx, function, *(arg.constant() for arg in args))
        if kwargs and all(arg.is_constant() for arg in (*args, *kwargs.values())):
            named = {name: arg.constant() for name, arg in kwargs.items()}
            return fold(tx, function, *(arg.constant() for arg in args), **named)
        if isinstance(args[0], InstanceVar):
            return _numeric(tx, function, method, args, kwargs)
        return args[0].call_method(tx, method, args[1:], kwargs)

    return run


for _function, _method in (
    (abs, "__abs__"),
    (int, "__int__"),
    (float, "__float__"),
    (complex, "__complex__"),
    (round, "__round__"),
    (divmod, "__divmod__"),
):
    register(_function)(_via(_function, _method))
register(operator.abs)(_via(abs, "__abs__"))


_INSTEAD = {int: ("__index__", "__trunc__"), float: ("__index__",), complex: ("__float__", "__index__")}

_RETURNS = {"__index__": int, "__float__": float}


def _numeric(tx: Tracer, function: Any, method: str, args: Args, kwargs: Kwargs) -> Var:
    """`function(obj)` of an instance: calls `method`, or a special method that CPython falls back to."""
    for name in (method, *_INSTEAD.get(function, ())):
        if lookup(args[0].python_type(), name) is not MISSING:
            result = args[0]._invoke(tx, name, *args[1:], *kwargs.values())  # type: ignore[attr-defined]
            wanted = function if name == method else _RETURNS.get(name)
            known = result.python_type() if slots.has_type(result, object) else None
            if isinstance(wanted, type) and known is not None and known is not wanted:
                tx.graph_break("unsupported-object", f"a {name}() that returns a {slots.type_name(result)}")
            return result if name == method else tx.call(ClassVar(function), [result], {})
    if hasattr(args[0], "base"):
        return tx.call(tx.wrap(function, None), [args[0].base, *args[1:]], kwargs)
    name = function.__name__
    texts: dict[Any, str] = {
        int: "int() argument must be a string, a bytes-like object or a real number, not {!r}",
        float: "float() argument must be a string or a real number, not {!r}",
        complex: "complex() first argument must be a string or a number, not {!r}",
        abs: "bad operand type for abs(): {!r}",
        round: "type {} doesn't define __round__ method",
    }
    return tx.raise_(TypeError, texts.get(function, name + " of {!r}").format(slots.type_name(args[0])))


def _of_index(function: Any) -> Handler:
    return lambda tx, args, kwargs: fold(tx, function, slots.index(tx, args[0]))


for _of_number in (bin, hex, oct, chr):
    register(_of_number)(_of_index(_of_number))


@register(sys.exc_info)
def _exc_info(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    handled = tx.handled()
    if handled is None:
        tx.guard_nothing_handled()
        return TupleVar([ConstVar(None)] * 3)
    return TupleVar([make(handled.python_type()), handled, TracebackVar(handled)])


@register(traceback.clear_frames)
def _clear_frames(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """The frames that an exception left in the trace have no variables any more."""
    tb = args[0] if args else kwargs.get("tb")
    if not isinstance(tb, TracebackVar) or tb.source is not None:
        raise NotConstant("the frames of a traceback")
    return ConstVar(None)


@register(sys.exception)
def _exception(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    handled: Var | None = tx.handled()
    if handled is None:
        tx.guard_nothing_handled()
    return handled or ConstVar(None)


@register(hash)
def _hash(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return hash_of(tx, args[0])


@register(repr)
def _repr(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return repr_of(tx, args[0])


@register(ascii)
def _ascii(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    text = repr_of(tx, args[0])
    return ConstVar(text.constant().encode("ascii", "backslashreplace").decode())


@register(format)
def _format(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return format_of(tx, args[0], args[1] if len(args) > 1 else ConstVar(""))


@register(str)
def _str(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) == 1 and not kwargs:
        return str_of(tx, args[0])
    return fold(tx, str, *(arg.constant() for arg in args), **{key: arg.constant() for key, arg in kwargs.items()})


@register(pow)
def _pow(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    args = [*args, *(kwargs[name] for name in ("base", "exp", "mod")[len(args) :] if name in kwargs)]
    if len(args) < 3 or slots.constant_or(args[2], 0) is None:
        return slots.binary(tx, "**", args[0], args[1])
    if isinstance(args[0], InstanceVar):
        return args[0]._invoke(tx, "__pow__", *args[1:])
    return fold(tx, pow, *(arg.constant() for arg in args))


@register(dir)
def _dir(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if not args:
        return names_of_caller(tx)
    obj = args[0]
    if isinstance(obj, InstanceVar):
        if lookup(obj.cls, "__dir__") is not object.__dir__:
            return ListVar(sorted_items(tx, obj._invoke(tx, "__dir__").unpack(tx), None, None))
        fields = obj.fields(tx) if obj.cls.__dictoffset__ else {}
        return make(sorted({*dir(obj.cls), *fields}))
    if isinstance(obj, ClassVar):
        return obj.unsupported(tx, "dir()")
    kind = obj.python_type()
    if isinstance(obj, TensorVar) and not obj.own_attributes(tx):
        return make(dir(kind))
    if kind.__dictoffset__ or kind is types.MethodType:  # its own attributes are unknown
        return obj.unsupported(tx, "dir()")
    return make(dir(kind))


@register(callable)
def _callable(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return bool_var(is_callable(tx, args[0]))


@register(vars)
def _vars(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if not args:
        return variables_of_caller(tx, "vars()")
    found = _attribute(tx, args[0], "__dict__")
    return tx.raise_(TypeError, "vars() argument must have __dict__ attribute") if found is None else found


@register(id)
def _id(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return IdVar(args[0])


@register(super)
def _super(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if len(args) != 2:
        frame = tx.frames[-1]
        if not frame.code.co_argcount:
            return tx.raise_(RuntimeError, "super(): no arguments")
        if "__class__" not in frame.cells:
            return tx.raise_(RuntimeError, "super(): __class__ cell not found")
        name = frame.code.co_varnames[0]
        obj = frame.cells[name].content if name in frame.cells else frame.locals.get(name)
        cls = frame.cells["__class__"].content
        if obj is None:
            return tx.raise_(RuntimeError, "super(): arg[0] deleted")
        if cls is None:
            return tx.raise_(RuntimeError, "super(): empty __class__ cell")
        args = [cls, obj]
    return SuperVar(args[0].constant(), args[1])


@register(functools.partial)
def _partial(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    inner = args[0]
    if not is_callable(tx, inner):
        tx.raise_(TypeError, "the first argument must be callable")
    if type(inner) is PartialVar and not inner.attrs:
        return PartialVar(inner.fn, [*inner.args, *args[1:]], {**inner.kwargs, **kwargs})
    return PartialVar(inner, args[1:], kwargs)




@register(object.__getattribute__)
def _object_getattribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    obj, name = args
    if isinstance(obj, InstanceVar):
        return obj.generic_getattr(tx, name.constant())
    return obj.getattr_(tx, name.constant())


@register(dataclasses.fields)
def _dataclass_fields(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    cls = args[0].constant() if isinstance(args[0], ClassVar) else args[0].python_type()
    try:
        found = dataclasses.fields(cls)
    except TypeError as error:
        tx.raise_(TypeError, *error.args)
    note_fields(cls)
    return TupleVar([tx.wrap(f, tx.const_source(f, f"fields({cls.__name__})")) for f in found])


@register(inspect.signature)
def _signature(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`inspect.signature` of a function, whose code is guarded, and with it the signature."""
    function = args[0].fn if isinstance(args[0], BoundMethodVar) else args[0]
    target = _known_function(tx, function)
    if not isinstance(target, types.FunctionType | types.BuiltinFunctionType | type):
        return args[0].unsupported(tx, "signature()")
    found = inspect.signature(target, **{key: value.constant() for key, value in kwargs.items()})
    if isinstance(args[0], BoundMethodVar):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    tx.keep_alive.append(found)
    if not hasattr(target, "__signature__"):
        note_made(found, "signature", target, {key: value.constant() for key, value in kwargs.items()})
    return tx.wrap(found, tx.const_source(found, "signature"))


def _known_function(tx: Tracer, function: Var) -> Any:
    """The real function, or for one that the program created a placeholder with its annotations and defaults."""
    if not isinstance(function, FunctionVar) or function.fn is not None:
        return function.constant()
    target = placeholder_object(tx, function)
    target.__annotations__ = placeholder_object(tx, function.getattr_(tx, "__annotations__"))
    positional, named = function.default_values(tx)
    try:
        target.__defaults__ = tuple(value.constant() for value in positional) or None
        target.__kwdefaults__ = {name: value.constant() for name, value in named.items()} or None
    except NotConstant:
        return function.unsupported(tx, "signature() with defaults known only at run time")
    return target


@register(inspect.getfullargspec)
def _getfullargspec(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    function = args[0].fn if isinstance(args[0], BoundMethodVar) else args[0]
    target = _known_function(tx, function)
    if not isinstance(target, types.FunctionType):
        return args[0].unsupported(tx, "getfullargspec()")
    found = inspect.getfullargspec(types.MethodType(target, 0) if isinstance(args[0], BoundMethodVar) else target)
    tx.keep_alive.append(found)
    fresh = (list, dict)
    parts = [make(each) if type(each) in fresh else tx.wrap(each, tx.const_source(each, "spec")) for each in found]
    return NamedTupleVar(type(found), parts)


@register(typing.get_type_hints)
def _get_type_hints(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    target = args[0].fn.constant() if isinstance(args[0], BoundMethodVar) else args[0].constant()
    if not isinstance(target, types.FunctionType | type):
        return args[0].unsupported(tx, "get_type_hints()")
    try:
        found = typing.get_type_hints(target, **{key: value.constant() for key, value in kwargs.items()})
    except NameError as error:
        tx.raise_(NameError, *error.args)
    return DictVar({name: tx.wrap(hint, tx.const_source(hint, f"the type of {name}")) for name, hint in found.items()})


