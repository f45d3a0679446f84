"""Models torch's context managers that change how operators run: grad mode, inference mode, autocast, attention kernels
and default devices.

While tracing, each mode is really switched, so that the fake tensors see it, and it is switched by a node of the graph;
`emit.graph_modes` keeps track of the modes that are entered. The graph restores every mode at its end; a mode that the
program leaves switched is recorded as a side effect.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor.modes import ENTER_AUTOCAST, ENTER_INFERENCE, EXIT_AUTOCAST, EXIT_INFERENCE, SET_GRAD, recorded

from ...core.effects import Effect
from ...core.source import AttrSource, Source
from ..codegen import Codegen
from ..objects.functions import BuiltinVar, FunctionVar
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar, MethodVar, make, maker
from ..registry import Handler, register
from ..tracer import Tracer


class ContextVar(Var):
    """A context manager with a model: `enter` and `exit` change the state of the trace."""

    __slots__ = ("by_name", "cls")

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls
        self.by_name: list[Effect] = []  # one per explicit `__enter__()` call without its `__exit__()`

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"torch.{self.cls.__name__}"

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if name in _BY_NAME else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "clone":
            return self.clone()
        if name == "__enter__":
            entered = self.enter(tx)  # the effect enters the real object if the trace ends before `__exit__()`
            self.by_name.append(tx.effects.add("CALL", None, (enter_unseen, [self], {}), tx.user_line()))
            return entered
        if name == "__exit__" and self.by_name:
            tx.effects.cancel(self.by_name.pop())
            return self.exit(tx)
        if name == "__exit__":
            return self.unsupported(tx, "__exit__() without a matching __enter__() in this frame")
        return super().call_method(tx, name, args, kwargs)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Use as a decorator: the function `args[0]`, decorated."""
        fn = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(fn, FunctionVar) or fn.code.co_flags & _GENERATORS:
            return self.unsupported(tx, "use as a decorator of something other than a plain function")
        return tx.inline(_decorated, [MethodVar(self, "clone"), fn], {})

    def clone(self) -> ContextVar:
        """The context that each call of a decorated function enters."""
        raise NotImplementedError

    def enter(self, tx: Tracer) -> Var:
        raise NotImplementedError

    def exit(self, tx: Tracer) -> Var:
        raise NotImplementedError


_BY_NAME = ("__enter__", "__exit__", "clone")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


_OVERRIDES_OFF: Any = (torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass)


def enter_unseen(context: Any) -> Any:
    """Enter a context at run time whose entry was traced. `__torch_function__` modes do not see this, because they saw
    the entry in the trace. Returns the context."""
    if isinstance(context, _OVERRIDES_OFF):
        context.__enter__()
        return context
    with torch._C.DisableTorchFunction():
        context.__enter__()
    return context


class EnteredVar(Var):
    """What a `with` block keeps on the stack for its end."""

    __slots__ = ()

    @property
    def enters_for_real(self) -> bool:
        """Whether reconstructing this enters a mode of the thread at run time."""
        raise NotImplementedError

    def mode(self) -> Var:
        """That mode, to be entered by other means."""
        raise NotImplementedError


def enters_mode(var: Var) -> TypeGuard[EnteredVar]:
    return isinstance(var, EnteredVar) and var.enters_for_real


_ENTER = operator.methodcaller("__enter__")


class Entered:
    """The modes that generated code has entered at run time, in order, until the `with` blocks that will exit them are
    reached. An exception before that must exit them."""

    __slots__ = ("contexts", "done")

    def __init__(self) -> None:
        self.contexts: list[Any] = []
        self.done: list[Any] = []  # one item per context that was entered

    def enter(self, context: Any) -> Any:
        """`enter_unseen`, and record the context."""
        self.contexts.append(context)
        if isinstance(context, _OVERRIDES_OFF):
            self.done.extend(map(_ENTER, (context,)))  # one C call: no signal handler runs in between
            return context
        with torch._C.DisableTorchFunction():
            self.done.extend(map(_ENTER, (context,)))
        return context

    def leave(self) -> None:
        """Exit the contexts that were entered."""
        for context in reversed(self.contexts[: len(self.done)]):
            context.__exit__(None, None, None)


class LateEntry(Entered):
    """Enters the modes of a suspended frame when that frame is called. `places`: where they are in the list of its
    arguments; there, the `__exit__` of each takes the place of the mode."""

    __slots__ = ("places",)

    def __init__(self, *places: int) -> None:
        super().__init__()
        self.places = places

    def enter_all(self, arguments: list[Any]) -> None:
        try:
            for place in self.places:
                arguments[place] = self.enter(arguments[place]).__exit__
        except BaseException:
            self.leave()
            raise


def _decorated(clone: Callable[[], Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def decorate_context(*args: Any, **kwargs: Any) -> Any:
        with clone():
            return fn(*args, **kwargs)

    return decorate_context


class GradModeVar(ContextVar):
    """`no_grad()`, `enable_grad()`, and `set_grad_enabled(mode)`, whose constructor switches grad mode."""

    __slots__ = ("enabled", "previous", "switched_before", "takes_mode", "unentered")

    def __init__(self, enabled: bool, cls: type, takes_mode: bool = False) -> None:
        super().__init__(cls)
        self.enabled, self.takes_mode = enabled, takes_mode
        self.previous: bool | None = None
        self.unentered: Effect | None = None
        self.switched_before = False  # entered after a switch that is a side effect

    def switch(self, tx: Tracer) -> GradModeVar:
        """Switch now. Unless it is entered as a context, the switch outlives the frame."""
        self.previous = torch.is_grad_enabled()
        if tx.overrides.in_mode:
            tx.graph_break("unsupported-context-manager", f"{self.describe()} inside a __torch_function__ mode")
        if self.previous != self.enabled:
            _switch(tx, self.enabled)
            self.unentered = tx.effects.add("CALL", None, (SET_GRAD, [ConstVar(self.enabled)], {}), tx.user_line())
        return self

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.unentered is not None:  # as `@set_grad_enabled(mode)`: undo the constructor's switch
            tx.effects.cancel(self.unentered)
            self.unentered = None
            assert self.previous is not None
            _switch(tx, self.previous)
        return super().call(tx, args, kwargs)

    def clone(self) -> ContextVar:
        return GradModeVar(self.enabled, self.cls, self.takes_mode)

    def enter(self, tx: Tracer) -> Var:
        if self.previous is None:
            self.previous = torch.is_grad_enabled()
        elif tx.overrides.in_mode:
            tx.graph_break(
                "unsupported-context-manager",
                f"{self.describe()}, created under a __torch_function__ mode and entered later",
            )
        if self.unentered is not None:
            tx.effects.cancel(self.unentered)
            self.unentered = None
        _switch(tx, self.enabled)
        self.switched_before = _is_switched(tx)
        if self.switched_before:
            tx.effects.add("CALL", None, (SET_GRAD, [ConstVar(self.enabled)], {}), tx.user_line())
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        assert self.previous is not None
        _switch(tx, self.previous)
        if _is_switched(tx):
            tx.effects.add("CALL", None, (SET_GRAD, [ConstVar(self.previous)], {}), tx.user_line())
        self.previous = None
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        if self.switched_before:  # effects are replayed after values are rebuilt: set the mode that this will restore
            cg.load_call(SET_GRAD, self.previous)
            cg.emit("POP_TOP")
        if self.takes_mode:
            cg.load_call(_grad_switch, self.enabled, self.previous)
        else:
            cg.load_call(self.cls)


def _grad_switch(enabled: bool, previous: bool | None) -> torch.set_grad_enabled:
    """`torch.set_grad_enabled(enabled)` whose exit restores `previous` (None: the present mode), without the switch
    that its constructor makes."""
    now = torch.is_grad_enabled()
    SET_GRAD(now if previous is None else previous)
    try:
        return torch.set_grad_enabled(enabled)
    finally:
        SET_GRAD(now)


class GradSwitchVar(BuiltinVar):
    """`torch._C._set_grad_enabled` as `__torch_function__` modes see it when the grad mode contexts call it."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if len(args) != 1 or kwargs or not isinstance(slots.constant_or(args[0], None), bool):
            return self.unsupported(tx, "a call with these arguments")
        _switch(tx, args[0].constant())
        return ConstVar(None)


def _is_switched(tx: Tracer) -> bool:
    """Whether the program has switched grad mode beyond a context, as a side effect."""
    return any(effect.kind == "CALL" and effect.detail[0] is SET_GRAD for effect in tx.effects)


def modes_switched(tx: Tracer) -> bool:
    """Whether the program has switched a mode as a side effect, which is replayed after values are rebuilt."""
    return any(effect.kind == "CALL" and effect.detail[0] in (SET_GRAD, enter_unseen) for effect in tx.effects)


def _switch(tx: Tracer, enabled: bool) -> None:
    if tx.overrides.in_mode:
        tx.overrides.call_overrides(GradSwitchVar(SET_GRAD), [], [ConstVar(enabled)], {})
        return
    if torch.is_grad_enabled() != enabled:
        SET_GRAD(enabled)
        tx.graph.effect(SET_GRAD, enabled)


class GraphModeVar(ContextVar):
    """A mode that one graph node enters and another exits. `values` are the arguments of the function that enters it,
    `switches[0]`."""

    __slots__ = ("mode", "values")

    switches: ClassVar[tuple[Callable[..., Any], Callable[[Any], None]]]

    def __init__(self, cls: type, values: tuple[Any, ...]) -> None:
        super().__init__(cls)
        self.values = values
        self.mode: Any = None

    def clone(self) -> ContextVar:
        return type(self)(self.cls, self.values)

    def enter(self, tx: Tracer) -> Var:
        self.mode = tx.graph.modes.enter(*self.switches, self.values)
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        if self.mode is not None:
            tx.graph.modes.exit(self.mode)
            self.mode = None
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(self.cls, *self.values)


class AutocastVar(GraphModeVar):
    """`torch.autocast(device_type, dtype, enabled, cache_enabled)`; `values` are these four arguments."""

    __slots__ = ()

    switches = (ENTER_AUTOCAST, EXIT_AUTOCAST)

    def enter(self, tx: Tracer) -> Var:
        device_type, _, enabled, _ = self.values
        if enabled or torch.is_autocast_enabled(device_type):
            super().enter(tx)
        return self


class RecordFunctionVar(ContextVar):
    """`torch.profiler.record_function(name)`: does not break the graph, and compiled graphs do not show the range in a
    profile."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__(torch.profiler.record_function)
        self.values = values

    def clone(self) -> ContextVar:
        return RecordFunctionVar(self.values)

    def enter(self, tx: Tracer) -> Var:
        return self

    def exit(self, tx: Tracer) -> Var:
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(self.cls, *self.values)


class InferenceModeVar(GraphModeVar):
    """`torch.inference_mode(mode)`. A tensor created inside is an inference tensor, so a backend must compile the
    operations inside separately from those outside."""

    __slots__ = ()

    switches = (ENTER_INFERENCE, EXIT_INFERENCE)


def _enter_attention(backends: Sequence[int], set_priority: bool) -> Any:
    chosen = sdpa_kernel([SDPBackend(number) for number in backends], set_priority)
    chosen.__enter__()
    return chosen


def _exit_attention(chosen: Any) -> None:
    chosen.__exit__(None, None, None)


ENTER_ATTENTION, EXIT_ATTENTION = recorded(_enter_attention, _exit_attention)


class AttentionVar(GraphModeVar):
    """`sdpa_kernel(backends, set_priority)`; `values` are these two arguments, with backends as ints."""

    __slots__ = ()

    switches = ENTER_ATTENTION, EXIT_ATTENTION

    def enter(self, tx: Tracer) -> Var:
        super().enter(tx)
        return make({})

    def reconstruct(self, cg: Codegen) -> None:
        backends, set_priority = self.values
        cg.load_call(sdpa_kernel, [SDPBackend(n) for n in backends], set_priority)


@maker(torch.device)
class DeviceVar(ConstVar):
    """A `torch.device`. As a context it is the default device for new tensors: their nodes then name the device."""

    __slots__ = ()

    def enter(self, tx: Tracer) -> Var:
        if tx.overrides.modes:
            tx.graph_break("unsupported-context-manager", f"{self.value!r} inside a __torch_function__ mode")
        tx.graph.modes.enter_device(self.value)
        return ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        tx.graph.modes.exit_device()
        return ConstVar(None)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("__enter__", "__exit__"):
            tx.graph_break("unsupported-context-manager", f"{name} of {self.value!r} called explicitly")
        return super().call_method(tx, name, args, kwargs)


def _constants(
    tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]
) -> tuple[list[Any], dict[str, Any]]:
    try:
        return [arg.constant() for arg in args], {name: value.constant() for name, value in kwargs.items()}
    except NotConstant as unknown:
        return tx.graph_break("unsupported-context-manager", f"torch.{cls.__name__} of {unknown}")


def _grad_mode(enabled: bool, cls: type) -> Handler:
    """The model of `no_grad` or `enable_grad`, which also work as decorators without a call."""

    def construct(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        context = GradModeVar(enabled, cls)
        return context.call(tx, args, kwargs) if args or kwargs else context

    return construct


@register(torch.set_grad_enabled)
def _set_grad_enabled(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    values, named = _constants(tx, torch.set_grad_enabled, args, kwargs)
    mode = (*values, *named.values())
    if len(mode) != 1 or not isinstance(mode[0], bool):
        tx.graph_break("unsupported-context-manager", "torch.set_grad_enabled of anything but one bool")
    return GradModeVar(mode[0], torch.set_grad_enabled, takes_mode=True).switch(tx)


@register(SET_GRAD)
def _set_grad(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch._C._set_grad_enabled(mode)`."""
    _set_grad_enabled(tx, args, kwargs)
    return ConstVar(None)


@register(torch.inference_mode)
def _inference_mode(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    if len(args) == 1 and isinstance(args[0], FunctionVar) and not kwargs:
        return InferenceModeVar(torch.inference_mode, (True,)).call(tx, args, kwargs)
    values, named = _constants(tx, torch.inference_mode, args, kwargs)
    mode = (*values, *named.values()) or (True,)
    if len(mode) != 1 or not isinstance(mode[0], bool):
        tx.graph_break("unsupported-context-manager", "torch.inference_mode of anything but one bool")
    return InferenceModeVar(torch.inference_mode, (mode[0],))


@register(torch.autocast)
def _autocast(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return _autocast_of(tx, torch.autocast, args, kwargs)


def _autocast_of(tx: Tracer, cls: type[torch.autocast], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    values, named = _constants(tx, cls, args, kwargs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context = cls(*values, **named)
    except (RuntimeError, TypeError, ValueError) as error:
        tx.raise_(type(error), *error.args)
    return AutocastVar(torch.autocast, (context.device, context.fast_dtype, context._enabled, context._cache_enabled))


def _old_autocast(cls: type[torch.autocast]) -> Handler:
    """The model of deprecated names such as `torch.cuda.amp.autocast`."""

    def construct(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        tx.call(tx.wrap(warnings.warn, None), [make(cls.__dict__["__deprecated__"]), make(FutureWarning)], {})
        return _autocast_of(tx, cls, args, kwargs)

    return construct


@register(sdpa_kernel)
def _attention(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    named = dict(zip(("backends", "set_priority"), args, strict=False)) | kwargs
    try:
        chosen = named["backends"].plain()
        set_priority = named["set_priority"].plain() if "set_priority" in named else False
    except NotConstant as unknown:
        return tx.graph_break("unsupported-context-manager", f"sdpa_kernel of {unknown}")
    backends = list(dict.fromkeys(chosen)) if isinstance(chosen, list) else [chosen]
    if not all(isinstance(backend, SDPBackend) for backend in backends):
        tx.graph_break("exception-in-traced-code", "sdpa_kernel of something that is not an SDPBackend")
    return AttentionVar(contextlib._GeneratorContextManager, (tuple(map(int, backends)), set_priority))


@register(torch.profiler.record_function)
def _record_function(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    values, named = _constants(tx, torch.profiler.record_function, args, kwargs)
    return RecordFunctionVar((*values, *named.values()))


def register_by_name(cls: type) -> None:
    """Register the models of `cls.__enter__(context)` and `cls.__exit__(context, ...)`, as `contextlib.ExitStack` calls
    them."""
    for name in ("__enter__", "__exit__"):
        register(getattr(cls, name))(_by_name(cls, name))


def _by_name(cls: type, name: str) -> Handler:

    def called(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        if args and isinstance(args[0], ContextVar):
            return args[0].call_method(tx, name, args[1:], kwargs)
        return tx.inline(getattr(cls, name), args, kwargs)

    return called


def wrap_autocast(tx: Tracer, value: torch.autocast, source: Source | None) -> Var:
    """The Var of a `torch.autocast` object that exists before the frame, used as a decorator."""
    values = (value.device, value.fast_dtype, value._enabled, value._cache_enabled)
    if source is not None:
        tx.guard(source, "TYPE", type(value))
        for name, held in zip(("device", "fast_dtype", "_enabled", "_cache_enabled"), values, strict=True):
            tx.guard(AttrSource(source, name), "ID" if isinstance(held, torch.dtype) else "EQUALS", held)
    var = AutocastVar(type(value), values)
    var.source = source
    return var


register(torch.no_grad)(_grad_mode(False, torch.no_grad))
register(torch.enable_grad)(_grad_mode(True, torch.enable_grad))
for _old in (torch.cpu.amp.autocast, torch.cuda.amp.autocast):
    register(_old)(_old_autocast(_old))
for _cls in (
    torch.no_grad, torch.inference_mode, torch.set_grad_enabled, torch.autocast, torch.profiler.record_function,
):  # fmt: skip
    register_by_name(_cls)
