"""Dispatch of `__torch_function__`: before a torch function runs, modes and arguments whose classes define
`__torch_function__` may override it. This module finds them and calls them in torch's order.

The thread's real override state is not changed while tracing, so nothing overrides the torch calls of the tracer
itself.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from ... import _C
from ...core.effects import Effect
from ...core.source import CallSource, ConstSource
from ..codegen import Codegen
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, TupleVar, is_plain
from ..objects.functions import BuiltinVar
from ..objects.instances import InstanceVar
from ..objects.originals import torchs_class
from ..protocol import dunder, slots
from ..protocol.base import HeldVar, Raised, Var
from ..protocol.class_reads import MISSING, lookup, reads_attributes_itself
from ..protocol.const import ConstVar, make
from ..tracer import Tracer
from .tensor import TO_NUMBERS, TensorVar
from .tensor_subclass import TensorSubclassVar

State = torch._C._TorchFunctionState  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
DISABLED = torch._C._disabled_torch_function_impl
# Methods whose C function has another name, which is the one that overrides receive.
_NAMED = {
    **{f"__{prefix}{name}__": function for prefix in ("", "r") for name, function in (("add", "add"), ("mul", "mul"))},
    **{f"__{name}__": name for name in ("sub", "div", "matmul", "lt", "le", "gt", "ge", "ne")},
    "__truediv__": "div", "__mod__": "remainder", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__idiv__": "div_",
    "__itruediv__": "div_", "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__long__": "__int__",
    "__nonzero__": "__bool__", "ndimension": "dim", "nelement": "numel",
}  # fmt: skip
NEVER_SEEN = {"as_subclass"}  # tensor methods that are never overridden
_PUSH, _POP = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_ASKS_SELF_ALONE = {torch.Tensor.new, torch.Tensor.new_tensor}


class Overrides:
    """The override state of one trace: the active `modes`, innermost last, and `state`, which says what is disabled."""

    def __init__(self, tx: Tracer) -> None:
        self.tx = tx
        self.state = torch._C._get_torch_function_state()  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
        self.modes: list[Var] = []
        self.modes_at_entry = False  # whether modes were active before the frame
        self.switches: list[tuple[Callable[..., Any], Var, Effect]] = []  # by this frame, not undone since

    @property
    def in_mode(self) -> bool:
        """Whether a mode intercepts torch calls now."""
        return bool(self.modes) and self.state != State.ALL_DISABLED

    @contextlib.contextmanager
    def disabled(self, state: Any) -> Iterator[None]:
        before, self.state = self.state, state
        try:
            yield
        finally:
            self.state = before

    @contextlib.contextmanager
    def without_mode(self) -> Iterator[Var]:
        """Context manager: removes the innermost mode and returns it."""
        mode = self.modes.pop()
        try:
            yield mode
        finally:
            self.modes.append(mode)

    def begin(self, state: Any, modes: Sequence[Any]) -> None:
        """Initialize from the state and the modes around the frame."""
        self.state = state
        for at, mode in enumerate(modes):
            source = CallSource(ConstSource.of(_reader(at), f"mode {at}"), operator.call, "call")
            self.modes.append(self.tx.wrap(mode, source))
        self.modes_at_entry = bool(modes)

    # ---- modes ----
    def push(self, mode: Var) -> None:
        """Enter a mode. A stack of modes that differs at the end of the frame is a side effect."""
        self._break_with_default_device()
        self.modes.append(mode)
        if self.switches and self.switches[-1][:2] == (_POP, mode):
            self.tx.effects.cancel(self.switches.pop()[2])
            return
        self._switched(_PUSH, mode, [mode])

    def pop(self) -> Var:
        """Exit the innermost mode."""
        self._break_with_default_device()
        if not self.modes:
            return self.tx.graph_break(
                "exception-in-traced-code", "a __torch_function__ mode is exited, but none is active"
            )
        mode = self.modes.pop()
        if self.switches and self.switches[-1][:2] == (_PUSH, mode):
            self.tx.effects.cancel(self.switches.pop()[2])
        else:
            self._switched(_POP, mode, [])
        return mode

    def _switched(self, function: Callable[..., Any], mode: Var, args: list[Var]) -> None:
        effect = self.tx.effects.add("CALL", None, (function, args, {}), self.tx.user_line())
        self.switches.append((function, mode, effect))

    def all_modes(self) -> list[Var]:
        """All modes, outermost first."""
        self._break_with_default_device()
        return self.modes

    def _break_with_default_device(self) -> None:
        if self.tx.graph.modes.has_device:
            self.tx.graph_break(
                "unsupported-context-manager", "a __torch_function__ mode together with a default device"
            )

    # ---- which arguments may override ----
    def overloaded(self, values: Iterable[Var], tensors: bool = False) -> list[Var]:
        """The arguments that may override a call, in the order in which they are tried: one per class, subclasses
        first. `tensors`: include plain tensors, as torch's functions written in Python do."""
        found: list[Var] = []
        if self.state != State.ENABLED:
            return found
        for value in values:
            kind = _overriding(value, tensors)
            if kind is None or any(kind is each.python_type() for each in found):
                continue
            bases = (at for at, each in enumerate(found) if issubclass(kind, each.python_type()))
            found.insert(next(bases, len(found)), value)
        return found

    def has_torch_function(self, values: Iterable[Var]) -> bool:
        """`has_torch_function` for the arguments."""
        return self.in_mode or bool(self.overloaded(values))

    def may_override(self, args: Sequence[Var], kwargs: Mapping[str, Var] | None = None) -> bool:
        """Whether a call may be overridden or has arguments that are tensor subclasses."""
        for value in (*args, *(kwargs or {}).values()):
            if isinstance(value, InstanceVar) and _answers_any_name(value.cls):
                what = f"a torch call with {value.describe()}, whose class defines __getattr__ or __getattribute__,"
                self.tx.graph_break("unsupported-object", what)
        return self.in_mode or _any_foreign(args) or _any_foreign((kwargs or {}).values())

    # ---- calls ----
    def call_overrides(
        self, func: Var, found: Sequence[Var], args: Sequence[Var], kwargs: Mapping[str, Var], python: bool = False
    ) -> Var:
        """The result of `func(*args, **kwargs)` from the innermost mode, or else from the overriding arguments `found`.
        `python`: pass a dict of keyword arguments even if it is empty."""
        tx = self.tx
        kinds = TupleVar([make(each.python_type()) for each in found])
        handler_args: list[Var] = [func, kinds, TupleVar(list(args))]
        if kwargs or python:
            handler_args.append(DictVar(dict(kwargs)))
        if self.in_mode:
            with self.without_mode() as mode:
                result = tx.call(mode.getattr_(tx, "__torch_function__"), handler_args, {})
            if not _declines(result):
                return result
        for each in found:
            owner = make(torch.Tensor) if isinstance(each, TensorVar) else each
            result = tx.call(owner.getattr_(tx, "__torch_function__"), handler_args, {})
            if not _declines(result):
                return result
        return self._all_declined(func, found, python)

    def _all_declined(self, func: Var, found: Sequence[Var], python: bool) -> Var:
        """Raise the TypeError of a call that all overrides declined."""
        value, kinds = func.constant(), [each.python_type() for each in found]
        name = f"torch.Tensor.{func.attribute}.{value.__name__}" if isinstance(func, AccessorVar) else _name(value)
        if self.in_mode or not name and not (python and isinstance(value, types.FunctionType)):
            return self.tx.graph_break("exception-in-traced-code", f"no override takes {func.describe()}")
        if python:
            name = f"{value.__module__}.{value.__name__}"
            words = f"no implementation found for {name!r} on types that implement __torch_function__: {kinds}"
            return self.tx.raise_(TypeError, words)
        listed = "".join(f"\n  - tensor subclass {kind}" for kind in kinds)
        return self.tx.raise_(
            TypeError, f"Multiple dispatch failed for {name!r}; all __torch_function__ handlers returned "
            f"NotImplemented:\n{listed}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
        )  # fmt: skip

    def call(
        self, func: Var, args: Sequence[Var], kwargs: Mapping[str, Var], run: Callable[..., Var], as_dict: bool
    ) -> Var:
        """Call a torch function written in C: through its overrides, or else `run(args, kwargs)`."""
        found = self.overloaded(leaves_of((*args, *kwargs.values())))
        if found or self.in_mode:
            return self.call_overrides(func, found, args, kwargs, as_dict or isinstance(func.constant(), OPERATORS))
        return self.call_original(run, args, kwargs)

    def call_original(self, run: Callable[..., Var], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Call `run`, which is not overridden, with tensor subclass instances replaced by their plain tensors."""
        named = {name: without_subclass(value) for name, value in kwargs.items()}
        return owned(run([without_subclass(arg) for arg in args], named))

    # ---- methods of tensors ----
    def method(self, name: str, args: Sequence[Var], kwargs: Mapping[str, Var], raw: Any = None) -> Var:
        """Call the method `name` of torch.Tensor; `args` includes self."""
        tx = self.tx
        raw = lookup(torch.Tensor, name) if raw is None else raw
        live = self.has_torch_function(leaves_of((*args, *kwargs.values())))
        if live and isinstance(raw, types.FunctionType):
            return tx.inline(raw, args, kwargs)

        def run(args: list[Var], kwargs: dict[str, Var]) -> Var:
            tensor, *others = args
            if not isinstance(tensor, TensorVar):
                return tx.graph_break("unsupported-object", f"torch.Tensor.{name} of {tensor.describe()}")
            found = dunder.call(tx, tensor, name, others) if not kwargs and name not in TO_NUMBERS else None
            return tensor.method(tx, name, others, kwargs) if found is None else found

        if not live or name in NEVER_SEEN or raw is MISSING or raw is lookup(object, name):
            return self.call_original(run, args, kwargs)
        leaves = [args[0]] if _asks_self_alone(raw) else leaves_of((*args, *kwargs.values()))
        found = self.overloaded(leaves, tensors=_asks_self_alone(raw))
        func = BuiltinVar(getattr(torch.Tensor, _NAMED.get(raw.__name__, raw.__name__)))
        return self.call_overrides(func, found, args, kwargs)

    def operator(self, name: str, args: Sequence[Var]) -> Var | None:
        """Call the special method of an operator; None for NotImplemented."""
        try:
            result = self.method(name, args, {})
        except Raised as raised:
            if isinstance(lookup(torch.Tensor, name), types.FunctionType) or not slots.has_type(raised.exc, TypeError):
                raise
            return None
        return None if _declines(result) else result

    def get_attribute(self, tensor: Var, name: str) -> Var:
        """Read a tensor attribute that is computed in C."""
        func = AccessorVar(lookup(torch.Tensor, name).__get__)
        if self.has_torch_function([tensor]):
            return self.call_overrides(func, self.overloaded([tensor], tensors=True), [tensor], {})
        return owned(without_subclass(tensor).getattr_(self.tx, name))

    def set_attribute(self, tensor: Var, name: str, value: Var | None) -> None:
        """Set a tensor attribute that is computed in C; a `value` of None deletes it."""
        if value is None:
            tensor.unsupported(self.tx, f"deleting attribute {name!r}")
            return
        func = AccessorVar(lookup(torch.Tensor, name).__set__)
        if self.has_torch_function([tensor]):
            self.call_overrides(func, self.overloaded([tensor], tensors=True), [tensor, value], {})
        else:
            without_subclass(tensor).setattr_(self.tx, name, without_subclass(value))


class AccessorVar(Var):
    """`torch.Tensor.name.__get__` or `__set__`, the functions that overrides receive for attribute access."""

    __slots__ = ("value",)

    def __init__(self, value: types.MethodWrapperType) -> None:
        super().__init__()
        self.value = value

    @property
    def attribute(self) -> str:
        return self.value.__self__.__name__  # type: ignore[attr-defined]

    def python_type(self) -> type:
        return types.MethodWrapperType

    def constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return f"torch.Tensor.{self.attribute}.{self.value.__name__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "__self__":
            return tx.wrap(self.value.__self__, None)
        try:
            return make(getattr(self.value, name))
        except AttributeError as error:
            return tx.raise_(AttributeError, *error.args)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op not in ("==", "!=") or not other.is_constant():
            return None
        return ConstVar((self.value == other.constant()) == (op == "=="))

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        sets = self.value.__name__ == "__set__"
        if kwargs or not args or not slots.has_type(args[0], torch.Tensor) or sets and len(args) != 2:
            return self.unsupported(tx, "a call with these arguments")
        if sets:
            tx.overrides.set_attribute(args[0], self.attribute, args[1])
            return ConstVar(None)
        return tx.overrides.get_attribute(args[0], self.attribute)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class DescriptorVar(HeldVar):
    """`torch.Tensor.name`, the descriptor of an attribute that is computed in C."""

    __slots__ = ()

    value: types.GetSetDescriptorType

    def constant(self) -> Any:
        return self.value

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__get__", "__set__"):
            return AccessorVar(getattr(self.value, name))
        try:
            return make(getattr(self.value, name))
        except AttributeError as error:
            return tx.raise_(AttributeError, *error.args)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


@functools.cache
def _reader(at: int) -> Callable[[], Any]:
    return functools.partial(_mode_around, at)


def _mode_around(at: int) -> Any:
    """The mode at index `at` of the thread's stack, outermost first; None if the stack is shorter."""
    return torch._C._get_function_stack_at(at) if at < torch._C._len_torch_function_stack() else None


def modes_around() -> list[Any]:
    """The thread's modes, without default devices."""
    return [mode for mode in _get_current_function_mode_stack() if type(mode) is not DeviceContext]


def are_traced() -> bool:
    """Whether the tracer can handle the thread's modes: only default devices, or only modes defined by the program."""
    modes = modes_around()
    if modes and len(modes) != torch._C._len_torch_function_stack():
        return False
    return all(
        isinstance(lookup(type(mode), "__torch_function__"), types.FunctionType)
        and not torchs_class(type(mode))
        for mode in modes
    )


def without_subclass(value: Var) -> Var:
    """`value` with tensor subclass instances, also in sequences, replaced by their plain tensors."""
    if isinstance(value, TensorSubclassVar):
        return value.base
    if is_plain(value) and any(isinstance(leaf, TensorSubclassVar) for leaf in leaves_of([value])):
        return type(value)([without_subclass(item) for item in value.items])
    return value


def owned(result: Var) -> Var:
    """The result of an operator, with plain tensors replaced by the subclass instances that own them."""
    if isinstance(result, TensorVar):
        return result if result.owner is None else result.owner
    if isinstance(result, ListVar | TupleVar):
        result.items = [owned(item) for item in result.items]
    return result


def leaves_of(values: Iterable[Var]) -> list[Var]:
    """The arguments, with lists and tuples flattened."""
    found: list[Var] = []
    for value in values:
        found += leaves_of(value.items) if isinstance(value, ListVar | TupleVar) else [value]
    return found


def _any_foreign(values: Iterable[Var]) -> bool:
    for value in values:
        if isinstance(value, ListVar | TupleVar):
            if _any_foreign(value.items):
                return True
        elif isinstance(value, InstanceVar):
            if isinstance(value, TensorSubclassVar) or _overriding(value) is not None:
                return True
    return False


def _answers_any_name(cls: type) -> bool:
    """Whether torch's lookup of `__torch_function__`, which it does for every argument, runs code of the class."""
    if issubclass(cls, torch.nn.Module) or lookup(cls, "__torch_function__") is not MISSING:
        return False
    return lookup(cls, "__getattr__") is not MISSING or reads_attributes_itself(cls)


def _overriding(value: Var, tensors: bool = False) -> type | None:
    """The class of an argument, if it has a `__torch_function__`; otherwise None."""
    if isinstance(value, TensorVar):
        return torch.Tensor if tensors and value.cls is torch.Tensor else None
    if not isinstance(value, InstanceVar):
        return None
    own = lookup(value.cls, "__torch_function__")
    return None if own is MISSING or own is DISABLED else value.cls


def _declines(result: Var) -> bool:
    return slots.constant_or(result, None) is NotImplemented


def _name(function: Any) -> str:
    """The name of a function in torch's messages; "" if unknown."""
    if getattr(function, "__objclass__", None) is torch._C.TensorBase:
        return f"torch.Tensor.{function.__name__}"
    of_torch = getattr(torch._C._VariableFunctions, getattr(function, "__name__", ""), None) is function
    return f"torch.{function.__name__}" if of_torch else ""


@functools.lru_cache(maxsize=1024)
def _asks_self_alone(raw: Any) -> bool:
    """Whether a method takes at most one argument, so that torch checks only self for overrides."""
    if not isinstance(raw, types.MethodDescriptorType):
        return False
    return raw in _ASKS_SELF_ALONE or not _C.takes_keywords(raw)
