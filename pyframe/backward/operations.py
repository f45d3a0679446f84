"""The functions written in C++ that compute the derivatives of operators.

The engine hands over each once per process, at the first backward pass with such a node. A program calls a Python
function around it, which is a single node of the captured graph: the compiler sees the ATen operators that it calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import _C
from ..vars.torch_objects.torch_functions import IN_GRAPH

_functions: dict[str, Callable[..., Any]] = {}


def bind(name: str, function: Callable[..., Any], is_custom: bool, is_traceable: bool) -> str:
    """Keep a function of the engine; returns the name under which it will be asked for.

    is_custom: it belongs to a `torch::autograd::Function` of a library; two of these may have the same name.
    is_traceable: its library says that it may run on fake tensors. Otherwise it runs between two graphs.
    """
    if is_custom:
        name = f"{name}_{sum(other.rpartition('_')[0] == name for other in _functions)}"

    def call(*args: Any) -> Any:
        return function(*args)

    call.__name__ = call.__qualname__ = _identifier(name)
    if not is_custom:
        call.engine_function = name  # type: ignore[attr-defined]
    if is_traceable:
        IN_GRAPH.add(call)
    _functions[name] = call if is_traceable else _C.disable_wrapper(call)
    _share(name, function, is_custom, is_traceable)
    return name


def operation(name: str) -> Callable[..., Any] | None:
    """The function with this name; None if the engine has handed it over to something else in this process."""
    if name not in _functions:
        known = getattr(_of_torch(), name, None)
        if known is None or not hasattr(known, "fn"):
            return None
        bind(name, known.fn, False, True)
    return _functions[name]


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _of_torch() -> Any:
    """The functions that torch's own compiled autograd has got, if the program uses it."""
    return getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "ops", None)


def _share(name: str, function: Callable[..., Any], is_custom: bool, is_traceable: bool) -> None:
    """Hand a function on to torch's own compiled autograd, which would not get it either."""
    ops = _of_torch()
    if ops is not None and not is_custom and not hasattr(ops, name):
        ops.add(name, function, is_custom, is_traceable)
