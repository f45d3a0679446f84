"""Constants: values that are known while tracing.

`ConstVar` holds such a value and evaluates operations on it at once (constant folding).  `make` returns the Var for
any Python value that the traced program computed.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ...core.source import Source
from ...core.trace_reliances import note_fact
from ..codegen import Codegen
from ..registry import method_model
from ..tracer import Tracer
from . import arity, result_size_bounds
from .base import HeldVar, NotConstant, Var

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "&": operator.and_,
    "//": operator.floordiv,
    "<<": operator.lshift,
    "@": operator.matmul,
    "*": operator.mul,
    "%": operator.mod,
    "|": operator.or_,
    "**": operator.pow,
    ">>": operator.rshift,
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}

# Types whose operations are folded: they run no user code, and their values are immutable.
FOLDED = (int, float, complex, str, bytes, type(None), type(NotImplemented), type(Ellipsis))
_PRINTED_BITS = 2000  # of an int in descriptions; CPython raises ValueError for the digits of very large ones

_MAKERS: dict[type, Callable[[Any], Var]] = {}


def maker(*types: type) -> Callable[[Callable[[Any], Var]], Callable[[Any], Var]]:
    """Decorator that registers the function with which `make` builds Vars of these exact types."""

    def register(fn: Callable[[Any], Var]) -> Callable[[Any], Var]:
        _MAKERS.update(dict.fromkeys(types, fn))
        return fn

    return register


def make(value: Any) -> Var:
    """The Var of a newly computed value, without a source; containers become container Vars."""
    if isinstance(value, Var):
        return value
    build = _MAKERS.get(type(value))
    if build is None and isinstance(value, type):
        build = _MAKERS[type]
    if build is None and isinstance(value, enum.Enum):
        build = _MAKERS[enum.Enum]
    return build(value) if build is not None else ConstVar(value)


def bool_var(value: bool) -> Var:
    return ConstVar(bool(value))


def constants(args: Iterable[Var]) -> list[Any]:
    """The values of all `args`; raises NotConstant if one of them is not known while tracing."""
    return [arg.constant() for arg in args]


_PLAIN_TEXTS = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range, torch.dtype, torch.layout,
    torch.memory_format, torch.device, torch.Size,
}  # fmt: skip


def fold(tx: Tracer, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Run a pure function while tracing; an exception that it raises is raised in the traced program."""
    try:
        result = fn(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  the traced program sees any exception of the function
        tx.raise_(type(error), *error.args)
    tx.limit_size(result_size_bounds.size_of(result), "a result")
    if type(result) not in (bool, int, frozenset) and any(map(_holds_set, args)):
        note_fact("the order of a set")
    if type(result) in (str, bytes) and not all(map(_has_plain_text, (*args, *kwargs.values()))):
        note_fact("the text of an object")
    return make(result)


_WITH_OWN_ERRORS = (str, bytes, tuple)


def _operate(tx: Tracer, operator: Callable[[Any, Any], Any], left: Any, right: Any) -> Var | None:
    """The result of an operator; None if the types of the operands do not support it."""
    if isinstance(left, _WITH_OWN_ERRORS) or isinstance(right, _WITH_OWN_ERRORS):
        return fold(tx, operator, left, right)
    result = fold(tx, _not_implemented_on_type_error, operator, left, right)
    return None if isinstance(result, ConstVar) and result.value is NotImplemented else result


def _not_implemented_on_type_error(operator: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    try:
        return operator(left, right)
    except TypeError:
        return NotImplemented


def _holds_set(value: Any) -> bool:
    """Whether a value is a set of several items, in an order that depends on the process, or has one in it."""
    kind = type(value)
    if kind is tuple:
        return any(map(_holds_set, value))
    return kind in (frozenset, set) and (len(value) > 1 or any(map(_holds_set, value)))


def _has_plain_text(value: Any) -> bool:
    """Whether the text of a value is the same in every process: it has no address or path in it."""
    kind = type(value)
    if kind is dict:
        return all(map(_has_plain_text, value)) and all(map(_has_plain_text, value.values()))
    if kind in (tuple, list, set, frozenset):
        return all(map(_has_plain_text, value))
    if issubclass(kind, type):  # the text of a class has its names, unless its metaclass says otherwise
        return kind.__repr__ is type.__repr__ and kind.__str__ is object.__str__
    return kind in _PLAIN_TEXTS


class ConstVar(HeldVar):
    """A value known while tracing: a number, a string, None, a dtype, an enum member ... `varies`: it varies between
    calls, and reading `value` specializes the capture to that of the current call. `takes_numbers`: its own operators
    and comparisons take numbers, so that those of Python's numbers leave the operation to it."""

    __slots__ = ()

    varies: ClassVar[bool] = False
    takes_numbers: ClassVar[bool] = False

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        if type(self.value) is int and self.value.bit_length() > _PRINTED_BITS:  # `repr` refuses 4,300 digits
            return f"an int of {self.value.bit_length()} bits"
        return repr(self.value)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        if callable(found) and not isinstance(found, type):
            return MethodVar(self, name)
        if isinstance(found, (*FOLDED, tuple, type, enum.Enum)):
            return make(found)
        return tx.wrap(found, None)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if not callable(self.value):
            tx.raise_(TypeError, f"{type(self.value).__name__!r} object is not callable")
        if isinstance(self.value, enum.Enum):
            return tx.inline(type(self.value).__call__, [self, *args], kwargs)
        return self.unsupported(tx, "a call")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if not hasattr(self.value, name):
            tx.raise_(AttributeError, f"{type(self.value).__name__!r} object has no attribute {name!r}")
        if not isinstance(self.value, FOLDED):
            found = getattr(self.value, name)
            if isinstance(function := getattr(found, "__func__", None), types.FunctionType):
                return tx.inline(function, [self, *args], kwargs)
            if not isinstance(self.value, enum.Enum) and type(self.value).__module__ != "torch":
                return self.unsupported(tx, f"method {name!r}")
        # models exist for methods of str and bytes that accept Vars without a constant value or return lazy iterators
        model = method_model(type(self.value), name)
        if model is not None:
            return model(tx, [self, *args], dict(kwargs))
        try:
            values = [arg.plain() for arg in args]
            named = {key: arg.plain() for key, arg in kwargs.items()}
        except NotConstant:
            if isinstance(self.value, str):
                return tx.graph_break("tensor-to-python", f"str.{name} of a value known only at run time")
            return self.unsupported(tx, f"method {name!r}")
        tx.limit_size(result_size_bounds.of_method(self.value, name, values), f"the result of {name}()")
        return fold(tx, getattr(self.value, name), *values, **named)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        if isinstance(self.value, str | bytes):
            key = as_index(tx, key)
        if not key.is_constant():
            return self.unsupported(tx, "indexing by an unknown value")
        return fold(tx, operator.getitem, self.value, key.constant())

    def unary(self, tx: Tracer, op: str) -> Var:
        return fold(tx, UNARY[op], self.value)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if not isinstance(self.value, FOLDED) and not isinstance(self.value, enum.Enum):
            return None
        if self._leaves_to(other):
            return None
        if op.endswith("=") or not other.is_constant():
            if op == "%" and isinstance(self.value, str | bytes) and not reflected:
                return self.call_method(tx, "__mod__", [other], {})
            return None
        if op == "+" and not (self.varies or reflected) and isinstance(other, ConstVar) and other.varies:
            return other.binary(tx, op, self, True)
        left, right = (other.constant(), self.value) if reflected else (self.value, other.constant())
        if op in result_size_bounds.BINARY:
            tx.limit_size(result_size_bounds.BINARY[op](left, right), f"the result of {op}")
        return _operate(tx, BINARY[op], left, right)

    def _leaves_to(self, other: Var) -> bool:
        return isinstance(other, ConstVar) and other.takes_numbers and type(self.value) in (bool, int, float)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if self._leaves_to(other) or not other.is_constant():
            return None
        return _operate(tx, COMPARE[op], self.value, other.constant())

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def length(self, tx: Tracer) -> Var:
        return fold(tx, len, self.value)

    def contains(self, tx: Tracer, item: Var) -> bool:
        if not item.is_constant():
            return super().contains(tx, item)
        return bool(fold(tx, operator.contains, self.value, item.constant()).constant())

    def iterate(self, tx: Tracer) -> Var:
        if not hasattr(type(self.value), "__iter__"):
            tx.raise_(TypeError, f"{type(self.value).__name__!r} object is not iterable")
        model = method_model(type(self.value), "__iter__")
        if model is not None:
            return model(tx, [self], {})
        return make(list(self.value)).iterate(tx) if isinstance(self.value, enum.Flag) else super().iterate(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


PASSED_ON = (int, float, str, bytes)


class PassedConstVar(ConstVar):
    """A constant that a resume function gets. One that it only passes on needs no guard; whatever reads it specializes
    the capture to it."""

    __slots__ = ("example", "tx")

    varies = True

    def __init__(self, tx: Tracer, example: Any, source: Source) -> None:
        self.tx, self.example, self.source = tx, example, source

    @property
    def value(self) -> Any:
        self.tx.guard(self.source, "EQUALS", self.example)
        return self.example

    def is_constant(self) -> bool:
        return True

    def python_type(self) -> type:
        self.tx.guard(self.source, "TYPE", type(self.example))
        return type(self.example)

    def describe(self) -> str:
        return repr(self.example)


class MethodVar(Var):
    """A bound method of a value whose type is written in C; a call of it becomes `obj.call_method(name)`."""

    __slots__ = ("obj", "name")

    def __init__(self, obj: Var, name: str) -> None:
        super().__init__()
        self.obj = obj
        self.name = name

    def describe(self) -> str:
        return f"{self.obj.describe()}.{self.name}"

    def python_type(self) -> type:
        return type(getattr(self.obj.python_type(), self.name))

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "__self__":
            return self.obj
        if name == "__name__":
            return ConstVar(self.name)
        return super().getattr_(tx, name)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        arity.check_method(tx, self.obj, self.name, args, kwargs)
        return self.obj.call_method(tx, self.name, args, kwargs)

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.obj)
        cg.emit("LOAD_ATTR", self.name)



def as_index(tx: Tracer, key: Var) -> Var:
    """`key`, or the result of its `__index__` if it is an object of a class of the program that has one."""
    special = getattr(key, "special", None)
    method: Var | None = None if key.is_constant() or special is None else special(tx, "__index__")
    return key if method is None else tx.call(method, [], {})


def attribute_of_type(tx: Tracer, obj: Var, name: str) -> Var:
    """The attribute `name` of `obj`, found on its type, which is written in C."""
    found = getattr(obj.python_type(), name)
    if callable(found):
        return MethodVar(obj, name)
    if found is None or isinstance(found, str):  # `__hash__` of a list, `__doc__`
        return ConstVar(found)
    return obj.unsupported(tx, f"attribute {name!r}")
