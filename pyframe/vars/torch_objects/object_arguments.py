"""Frozen dataclass instances as arguments of functions that the program allows in the graph.

A node takes tensors and plain containers, not objects: it gets the fields, and rebuilds the instances for the call.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..containers.mapping import DictVar
from ..containers.sequence import TupleVar
from ..objects.instances import InstanceVar
from ..protocol.base import Var
from ..tracer import Tracer


def with_fields(
    tx: Tracer, function: Callable[..., Any], args: Sequence[Var]
) -> tuple[Callable[..., Any], Sequence[Var]]:
    """`function` and its arguments; if some are instances, a function that rebuilds them, and their fields."""
    classes = [_class_of(arg) for arg in args]
    if not any(classes):
        return function, args
    fields = [arg.fields(tx) if isinstance(arg, InstanceVar) and cls else {} for arg, cls in zip(args, classes)]
    places = {place: (cls, tuple(fields[place])) for place, cls in enumerate(classes) if cls}

    @functools.wraps(function)
    def rebuilding(*values: Any, **kwargs: Any) -> Any:
        rebuilt = [_instance(*places[at], value) if at in places else value for at, value in enumerate(values)]
        return function(*rebuilt, **kwargs)

    return rebuilding, [
        TupleVar(list(fields[place].values())) if place in places else arg for place, arg in enumerate(args)
    ]


def _class_of(arg: Var) -> type | None:
    """The class of an instance of a frozen dataclass whose fields are in its `__dict__`; None for other arguments."""
    if not isinstance(arg, InstanceVar) or isinstance(arg, DictVar):
        return None
    cls: type = arg.cls
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return None
    return cls if cls.__new__ is object.__new__ and cls.__basicsize__ == _Plain.__basicsize__ else None


class _Plain:
    """A class without slots."""


def _instance(cls: type, names: Sequence[str], values: Sequence[Any]) -> Any:
    instance: Any = object.__new__(cls)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(instance, name, value)
    return instance
