"""The registry of models: what the trace does where the program calls an object that it cannot trace into.

Functions and classes written in C have no bytecode, and some Python functions are better not traced. Their *model* is a
handler that computes, with Vars, what the call returns and changes. `register` is the one way to add a model; a target
that has none is constant-folded if it is known to be pure, becomes a graph node if it is an operator of torch
(`torch_objects.torch_functions` decides), and breaks the graph otherwise.

    @register(len)                                  calls of a function or class
    @register(torch.Tensor, method="register_hook") calls of a method on an instance of a class
    @register(torch.Tensor, setter="grad")          assignments to an attribute of an instance
    @register(code)                                 calls of a Python function with this code object (a closure)
    @register(functools.reduce, polyfill=True)      a Python function that is traced in place of the target

All handlers have one signature, `handler(tx, args, kwargs) -> Var`. `args` (a list) and `kwargs` (a dict) are the Vars
of the positional and keyword arguments; the handler may change them. The first of `args` is

    of a method    the object whose method is called
    of a setter    the object whose attribute is set, followed by the value; what the handler returns is not used
    of a closure   the `FunctionVar` that is called

A handler reports what it cannot do by `tx.graph_break(...)`, and an error of the program by `tx.raise_(...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..core.trace_reliances import note_call, note_fact

if TYPE_CHECKING:
    from .protocol.base import Var
    from .tracer import Tracer

Args: TypeAlias = "list[Var]"
Kwargs: TypeAlias = "dict[str, Var]"
Handler: TypeAlias = "Callable[[Tracer, Args, Kwargs], Var]"

_Function = TypeVar("_Function", bound=Callable[..., Any])

_CALLS: dict[Any, Handler] = {}  # by function, class or code object
_METHODS: dict[tuple[type, str], Handler] = {}
_SETTERS: dict[tuple[type, str], Handler] = {}
_NOT_OVERRIDABLE: set[Any] = set()


def register(
    *targets: Any,
    method: str | None = None,
    setter: str | None = None,
    polyfill: bool = False,
    overridable: bool = True,
    replace: bool = False,
) -> Callable[[_Function], _Function]:
    """Decorator: the function is the model of each of `targets` (see the module's docstring for the kinds).

    `overridable=False`: the target is a function of torch for which no `__torch_function__` is called. `replace=True`:
    the target has a model, which this one replaces; without it a second model of a target is a ValueError.
    """

    table: dict[Any, Handler] = _METHODS if method is not None else _SETTERS if setter is not None else _CALLS

    def add(function: _Function) -> _Function:
        for target in targets:
            key = target if table is _CALLS else (target, method or setter)
            if (key in table) is not replace:
                raise ValueError(f"{key!r} " + ("has no model to replace" if replace else "already has a model"))
            table[key] = _traced(target, function) if polyfill else function
            if not overridable:
                _NOT_OVERRIDABLE.add(target)
        return function

    return add


def _traced(target: Any, polyfill: Any) -> Handler:
    return lambda tx, args, kwargs: tx.inline_polyfill(target, polyfill, args, kwargs)


def call_model(target: Any) -> Handler | None:
    """The model of calling `target`, a function, class or code object; None if it has none or cannot be hashed."""
    try:
        found = _CALLS.get(target)
    except (TypeError, ValueError):  # a method of an unhashable object, a writable memoryview
        return None
    if found is not None:
        note_call(target)
    return found


def method_model(cls: type, name: str) -> Handler | None:
    """The model of the method `name` of instances of `cls` (models of base classes are not looked up)."""
    found = _METHODS.get((cls, name))
    if found is not None:
        note_fact(f"{cls.__qualname__}.{name}")
    return found


def setter_model(cls: type, name: str) -> Handler | None:
    """The model of assigning to the attribute `name` of instances of `cls`."""
    found = _SETTERS.get((cls, name))
    if found is not None:
        note_fact(f"assignment to {cls.__qualname__}.{name}")
    return found


def is_overridable(target: Any) -> bool:
    """Whether `__torch_function__` is called for a function of torch that has a model."""
    return target not in _NOT_OVERRIDABLE
