"""Models of torch's own functions and contexts for `__torch_function__`: `has_torch_function`, `handle_torch_function`,
`DisableTorchFunction`, the stack of modes and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..codegen import Codegen
from ..containers.mapping import pairs_of
from ..containers.sequence import ListVar, TupleVar
from ..objects.classes import ClassVar
from ..objects.instantiation import NEW, new_of
from ..objects.namedtuple import NamedTupleVar
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar, make
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .contexts import ContextVar
from .overrides import DISABLED, AccessorVar, State, without_subclass
from .tensor import TensorVar, tensor_and_args
from .tensor_subclass import as_instance
from .tensor_types import has_alias
from .torch_functions import TorchFunctionVar

_NOT_WRAPPED = ("_base", "grad", "_grad")  # not converted to the subclass
_STATES = {
    torch._C.DisableTorchFunctionSubclass: State.SUBCLASSES_DISABLED,
    torch._C.DisableTorchFunction: State.ALL_DISABLED,
}


class StateVar(ContextVar):
    """`torch._C.DisableTorchFunctionSubclass()` or `torch._C.DisableTorchFunction()`."""

    __slots__ = ("entered",)

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.entered: Any = None

    def clone(self) -> ContextVar:
        return StateVar(self.cls)

    def enter(self, tx: Tracer) -> Var:
        self.entered = tx.overrides.disabled(_STATES[self.cls])
        self.entered.__enter__()
        return self

    def exit(self, tx: Tracer) -> Var:
        self.entered.__exit__(None, None, None)
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(self.cls)


def _context(cls: Any) -> Handler:
    return lambda tx, args, kwargs: StateVar(cls)


for _cls in _STATES:
    register(_cls, overridable=False)(_context(_cls))


@register(torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic, overridable=False)
def _has_override(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(tx.overrides.has_torch_function(args))


@register(torch.overrides.has_torch_function, overridable=False)
def _has_override_among(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(tx.overrides.has_torch_function(args[0].unpack(tx)))


@register(torch.overrides.handle_torch_function, overridable=False)
def _handle(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`handle_torch_function(public_api, relevant_args, *args, **kwargs)`."""
    func, relevant, *arguments = args
    found = tx.overrides.overloaded(relevant.unpack(tx), tensors=True)
    return tx.overrides.call_overrides(func, found, arguments, kwargs, python=True)


def _by_name(args: Sequence[Var], kwargs: Mapping[str, Var]) -> dict[str, Var]:
    """The arguments of a `__torch_function__` call, by name."""
    return dict(zip(("func", "types", "args", "kwargs"), args, strict=False)) | dict(kwargs)


def _called(tx: Tracer, given: Mapping[str, Var]) -> Var:
    """Make the call that a `__torch_function__` received, with overrides by subclasses disabled."""
    named: dict[str, Var] = {}
    if "kwargs" in given and slots.constant_or(given["kwargs"], 0) is not None:
        named = dict(pairs_of(tx, given["kwargs"]))
    with tx.overrides.disabled(max(tx.overrides.state, State.SUBCLASSES_DISABLED, key=int)):  # type: ignore[arg-type, unused-ignore]
        args = given["args"].unpack(tx) if "args" in given else []
        if isinstance(given["func"], TorchFunctionVar):
            return given["func"].call_keywords(tx, args, named)
        return tx.call(given["func"], args, named)


@register(torch.Tensor.__torch_function__.__func__, overridable=False)  # type: ignore[attr-defined]
def _default(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch.Tensor.__torch_function__`, called on a class: makes the call and converts its tensors to the class."""
    kind, given = args[0].constant(), _by_name(args[1:], kwargs)
    if not all(issubclass(kind, each.constant()) for each in given["types"].unpack(tx)):
        return make(NotImplemented)
    result, func = _called(tx, given), given["func"]
    if isinstance(func, AccessorVar) and func.attribute in _NOT_WRAPPED and func.value.__name__ == "__get__":
        return result
    return _converted(tx, result, kind)


def _converted(tx: Tracer, value: Var, kind: type) -> Var:
    """A result with its tensors converted to instances of a class."""
    if kind is torch.Tensor:
        return value
    if isinstance(value, ListVar | TupleVar):
        items = [_converted(tx, item, kind) for item in value.items]
        if type(value) is ListVar or type(value) is TupleVar:
            return type(value)(items)
        if isinstance(value, NamedTupleVar):
            return NamedTupleVar(value.python_type(), items)
        return value
    if not slots.has_type(value, torch.Tensor) or slots.has_type(value, kind):
        return value
    tensor = without_subclass(value)
    assert isinstance(tensor, TensorVar)
    return as_instance(tx, tensor, kind)


@register(DISABLED, overridable=False)
def _disabled(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch._C._disabled_torch_function_impl`."""
    return _called(tx, _by_name(args, kwargs))


@register(torch.Tensor, method="as_subclass")
def _as_subclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, args = tensor_and_args(args)
    arguments = [*args, *kwargs.values()]
    if len(arguments) != 1 or not isinstance(arguments[0], ClassVar):
        return tensor.unsupported(tx, "as_subclass() with these arguments")
    return as_instance(tx, tensor, arguments[0].value)


@register(torch.Tensor._make_subclass, overridable=False)
def _make_subclass(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch.Tensor._make_subclass(cls, data)`; a third argument says whether the result requires a gradient."""
    requires_grad = slots.constant_or(args[2], None) if len(args) == 3 else False
    if len(args) not in (2, 3) or requires_grad is not False or kwargs or not slots.has_type(args[1], torch.Tensor):
        return tx.graph_break("unsupported-object", "torch.Tensor._make_subclass() with these arguments")
    detached = tx.graph.call_method("detach", [without_subclass(args[1])], {})
    assert isinstance(detached, TensorVar)
    return as_instance(tx, detached, args[0].constant())


def _new(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`torch._C.TensorBase.__new__(cls, tensor)` of a subclass of torch.Tensor: an alias."""
    given = without_subclass(args[0]) if len(args) == 1 and slots.has_type(args[0], torch.Tensor) else None
    if kwargs or tx.overrides.in_mode or not isinstance(given, TensorVar) or not has_alias(given):
        return tx.graph_break("unsupported-object", f"creating an instance of {cls.__qualname__}")
    return as_instance(tx, given, cls)


NEW[torch._C.TensorBase] = _new
register(torch._C.TensorBase.__new__, overridable=False)(new_of(torch._C.TensorBase))


# ---- modes ----
@register(torch._C._push_on_torch_function_stack, overridable=False)
def _push(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    tx.overrides.push(args[0])
    return ConstVar(None)


@register(torch._C._pop_torch_function_stack, overridable=False)
def _pop(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return tx.overrides.pop()


@register(torch._C._get_function_stack_at, overridable=False)
def _mode_at(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return tx.overrides.all_modes()[slots.index(tx, args[0])]




@register(torch._C._is_torch_function_enabled, overridable=False)
def _is_enabled(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(tx.overrides.state == State.ENABLED)


@register(torch._C._is_torch_function_all_disabled, overridable=False)
def _is_all_disabled(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(tx.overrides.state == State.ALL_DISABLED)


@register(torch._C._len_torch_function_stack, overridable=False)
def _mode_count(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(len(tx.overrides.all_modes()))


@register(torch._C._is_torch_function_mode_enabled, overridable=False)
def _is_mode_enabled(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return ConstVar(tx.overrides.in_mode)
