"""Represents values that differ between the iterations of a loop, so that one capture of the loop body serves all of
them: numbers, strings and growing containers of which only the type is guarded.

Arithmetic on such numbers is deferred to run time; next to a tensor, a number becomes a 0-d tensor that is an input of
the graph. A branch on one is guarded by its outcome. Anything else that needs the value breaks the graph, except where
each iteration reads it from another object, such as the number of a layer: it is a constant of each capture then. So
is a text that is needed, such as the name of a layer, in the first few captures.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.source import CallSource, Source
from ...errors import Restart
from ..codegen import Codegen
from ..containers.sequence import ListVar, TupleVar
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.const import BINARY, COMPARE, UNARY, ConstVar, MethodVar
from ..tracer import Tracer
from .tensor import TensorVar

VALUES = (int, float, str)
CONTAINERS = (list, dict, set)
_SCALARS = (int, float)
# Operators that cannot fail for any numbers; those in _BY_CONSTANT require a nonzero constant on the right.
_TOTAL = {"+", "-", "*", "&", "|", "^"}
_BY_CONSTANT = {"/", "//", "%"}
_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": repr, "__str__": str, "__format__": format, "__int__": int, "__float__": float, "__abs__": abs,
}  # fmt: skip
_WITH_TENSORS = {"+", "-", "*", "/", "//", "%"}
_INT64 = 1 << 63
_DOUBLES = 1 << 1023  # smaller integers are no larger than the largest float
_CHANGES: dict[type, dict[str, Callable[..., Any]]] = {
    list: {"append": list.append, "extend": list.extend, "clear": list.clear},
    dict: {"__setitem__": dict.__setitem__, "clear": dict.clear},
    set: {"add": set.add, "clear": set.clear},
}
_ARITY = {"append": 1, "extend": 1, "clear": 0, "__setitem__": 2, "add": 1}


def wrap(tx: Tracer, value: Any, source: Source, types: tuple[type, ...]) -> Var | None:
    """The Var of a value that must not be treated as a constant; None if its type is not in `types`."""
    cls = type(value)
    if cls not in types or cls not in VALUES + CONTAINERS:
        return None
    tx.guard(source, "TYPE", cls)
    return RuntimeValueVar(value, source) if cls in VALUES else UnknownContainerVar(value, source)


class RuntimeValueVar(Var):
    """An int, float, bool or str known only at run time. `example` is its value in this call. Without a source, it is
    `fn(*args)` of constants and other such values."""

    __slots__ = ("args", "example", "fn", "scalar")

    def __init__(
        self,
        example: Any,
        source: Source | None = None,
        fn: Callable[..., Any] | None = None,
        args: Sequence[Var] = (),
    ) -> None:
        super().__init__(source)
        self.example, self.fn, self.args = example, fn, tuple(args)
        self.scalar: TensorVar | None = None

    def python_type(self) -> type:
        return type(self.example)

    def constant(self) -> Any:
        raise NotConstant(self.describe(), self)

    def describe(self) -> str:
        return f"{self.source or 'a number'}, known only at run time"

    def derived(self, tx: Tracer, fn: Callable[..., Any], *args: Var) -> Var:
        """`fn(*args)`, computed at run time; the result must be an int, float, str or bool."""
        try:
            # The constants now, and their guards: predicates compute the value when the trace is gone.
            args = tuple(arg if isinstance(arg, RuntimeValueVar) else ConstVar(arg.constant()) for arg in args)
            example = fn(*(arg.example if isinstance(arg, RuntimeValueVar) else arg.constant() for arg in args))
        except (ArithmeticError, TypeError, ValueError, NotConstant):
            return self.unsupported(tx, getattr(fn, "__name__", "an operation"))
        if type(example) not in (*VALUES, bool):
            return self.unsupported(tx, getattr(fn, "__name__", "an operation"))
        return RuntimeValueVar(example, None, fn, args)

    def unsupported(self, tx: Tracer, what: str) -> Any:
        self.specialize(tx)
        return super().unsupported(tx, what)

    def specialize(self, tx: Tracer) -> None:
        """The trace needs the value: restart with it as a constant of this capture if each iteration reads it from
        another object, or if it is a text and few captures did so."""
        texts = tx.options.recompile_limit // 2 if type(self.example) is str else 0
        if tx.known is not None and tx.known.specialize(self._leaves() or (), texts):
            raise Restart()

    def make_symbolic(self, tx: Tracer) -> None:
        """An operator takes the value, as a size for example: if it is an int computed from ints, restart with symbols
        in their place."""
        if tx.known is None or tx.options.dynamic is False or tx.graph.history.concrete or not self._of_ints():
            return
        if tx.known.make_symbolic(self._leaves() or ()):
            raise Restart()

    def _of_ints(self) -> bool:
        """Whether it is an int, computed from ints alone."""
        return type(self.example) is int and all(
            arg._of_ints() if isinstance(arg, RuntimeValueVar) else type(arg.constant()) is int for arg in self.args
        )

    # ---- slots ----
    def unary(self, tx: Tracer, op: str) -> Var:
        return self.derived(tx, UNARY[op], self)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if not _plain(other):
            return self.unsupported(tx, f"{op} with {other.describe()}")
        if op.endswith("="):
            return None
        left, right = (other, self) if reflected else (self, other)
        if op not in _TOTAL and not (op in _BY_CONSTANT and right.is_constant() and right.constant()):
            return self.unsupported(tx, op)
        if str in (left.python_type(), right.python_type()) and op != "+":
            return self.unsupported(tx, op)
        return self.derived(tx, BINARY[op], left, right)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.derived(tx, COMPARE[op], self, other) if _plain(other) else self.unsupported(tx, op)

    def truth(self, tx: Tracer) -> bool:
        leaves = self._leaves()
        if leaves and tx.may_guess():
            outcome = bool(self.example)
            payload = (_Truth(self, leaves, outcome), leaves[1:], f"the branch of line {tx.user_line().lineno}")
            tx.guard(leaves[0], "PREDICATE", payload)
            return outcome
        self.specialize(tx)
        return bool(tx.graph_break("data-dependent-branch", f"the truth of {self.describe()} decides a branch"))

    def getattr_(self, tx: Tracer, name: str) -> Var:
        found = getattr(type(self.example), name, None)
        if isinstance(found, types.GetSetDescriptorType):  # the real and imaginary part, numerator and denominator
            return self.derived(tx, getattr, self, ConstVar(name))
        return _method(tx, self, self.example, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        plain = _METHODS.get(name)
        if plain is None or kwargs or (name == "__repr__" and type(self.example) is str):
            return self.unsupported(tx, f"method {name!r}")
        if name in ("__int__", "__float__"):
            if type(self.example) is str or not self.derived(tx, _converts, self).truth(tx):
                return self.unsupported(tx, f"method {name!r}")
        return self.derived(tx, plain, self, *args)

    def repr_(self, tx: Tracer) -> Var | None:
        return self.call_method(tx, "__repr__", [], {})

    def str_(self, tx: Tracer) -> Var | None:
        return self if type(self.example) is str else self.call_method(tx, "__str__", [], {})

    def format_(self, tx: Tracer, spec: Var) -> Var | None:
        return self.call_method(tx, "__format__", [spec], {})

    # ---- with tensors ----
    def tensor(self, tx: Tracer, op: str, other: TensorVar) -> Var:
        """This number as a 0-d tensor, if `op` with `other` gives the same result then."""
        source = self._scalar_source()
        cls = type(self.example)
        if cls not in _SCALARS or source is None or not (op.removesuffix("=") in _WITH_TENSORS or op in COMPARE):
            return self.unsupported(tx, f"{op} with {other.describe()}")
        example = as_scalar(self.example) if abs(self.example) < _INT64 or cls is float else None
        if example is None or torch.result_type(other.fake, example) != torch.result_type(other.fake, self.example):
            return self.unsupported(tx, f"{op} with {other.describe()}")
        if self.scalar is None:
            self.scalar = tx.graph.input(source, example)
        return self.scalar

    def _scalar_source(self) -> Source | None:
        leaves = self._leaves()
        if leaves is None or len(leaves) != 1:
            return None
        return CallSource(leaves[0], as_scalar if self.source is not None else _Scalar(self, leaves), "scalar")

    def _leaves(self) -> tuple[Source, ...] | None:
        """The distinct sources that the value depends on; None if an operand has no source."""
        if self.source is not None:
            return (self.source,)
        found: dict[Source, None] = {}
        for arg in self.args:
            leaves = arg._leaves() if isinstance(arg, RuntimeValueVar) else ()
            if leaves is None:
                return None
            found.update(dict.fromkeys(leaves))
        return tuple(found)

    def value(self, leaves: Mapping[Source, Any]) -> Any:
        """The value, given the values of its sources."""
        if self.source is not None:
            return leaves[self.source]
        assert self.fn is not None
        values = (arg.value(leaves) if isinstance(arg, RuntimeValueVar) else arg.constant() for arg in self.args)
        return self.fn(*values)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.fn)
        cg.call_top(*(lambda arg=arg: cg.load(arg) for arg in self.args))


class _Scalar:
    """Computes a RuntimeValueVar from its source, as a 0-d tensor."""

    def __init__(self, var: RuntimeValueVar, leaves: tuple[Source, ...]) -> None:
        self.var, self.leaves = var, leaves

    def __call__(self, *values: Any) -> Any:
        return as_scalar(self.var.value(dict(zip(self.leaves, values, strict=True))))


class _Truth(_Scalar):
    """Whether the truth value of a RuntimeValueVar is the same as when it was traced."""

    def __init__(self, var: RuntimeValueVar, leaves: tuple[Source, ...], outcome: bool) -> None:
        super().__init__(var, leaves)
        self.outcome = outcome

    def __call__(self, *values: Any) -> bool:
        return bool(self.var.value(dict(zip(self.leaves, values, strict=True)))) == self.outcome


def _converts(number: Any) -> bool:
    """Whether int() and float() accept the number."""
    return math.isfinite(number) if type(number) is float else -_DOUBLES < number < _DOUBLES


def as_scalar(value: Any) -> torch.Tensor:
    """A number as the 0-d tensor that operators convert it to."""
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def with_tensor(tx: Tracer, op: str, left: Var, right: Var) -> tuple[Var, Var]:
    """The operands of `op`; a RuntimeValueVar next to a tensor is converted to a tensor."""
    if isinstance(left, RuntimeValueVar) and isinstance(right, TensorVar):
        return left.tensor(tx, op, right), right
    if isinstance(right, RuntimeValueVar) and isinstance(left, TensorVar):
        return left, right.tensor(tx, op, left)
    return left, right


def joined(tx: Tracer, parts: Sequence[Var]) -> Var:
    """`''.join(parts)` of strings, at least one known only at run time."""
    first = next(part for part in parts if isinstance(part, RuntimeValueVar))
    return first.derived(tx, _join, *parts)


def _join(*parts: str) -> str:
    return "".join(parts)


def _plain(var: Var) -> bool:
    if isinstance(var, RuntimeValueVar):
        return True
    return isinstance(var, ConstVar) and type(var.value) in (*VALUES, bool)


def _method(tx: Tracer, var: Var, example: Any, name: str) -> Var:
    """A method of a value like `example`; AttributeError if it has none of that name."""
    try:
        getattr(example, name)
    except AttributeError as error:
        tx.raise_(AttributeError, *error.args)
    return MethodVar(var, name)


class UnknownContainerVar(HeldVar):
    """A list, dict or set whose items are not guarded: changes are replayed after the graph, and reading items breaks
    the graph."""

    __slots__ = ()

    def describe(self) -> str:
        return f"{self.source}, whose items are known only at run time"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return _method(tx, self, self.value, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        change = _CHANGES[type(self.value)].get(name)
        if change is None or kwargs or len(args) != _ARITY[name]:
            return self.unsupported(tx, f"method {name!r}")
        if name in ("add", "__setitem__") and not args[0].is_constant():  # hashing may run the program's code
            if isinstance(args[0], RuntimeValueVar):
                args[0].specialize(tx)
            return self.unsupported(tx, f"method {name!r} with a key known only at run time")
        if name == "extend" and not isinstance(args[0], ListVar | TupleVar):
            return self.unsupported(tx, f"method {name!r} with {args[0].describe()}")
        tx.effects.add("CALL", None, (change, [self, *args], {}), tx.user_line())
        return ConstVar(None)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None or type(self.value) is not dict:
            self.unsupported(tx, "item assignment")
        else:
            self.call_method(tx, "__setitem__", [key, value], {})

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op != "+=" or reflected or type(self.value) is not list:
            return self.unsupported(tx, op)
        self.call_method(tx, "extend", [other], {})
        return self

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.unsupported(tx, op)
