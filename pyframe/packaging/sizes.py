"""The argument `dynamic` of `pyframe.package`, which names arguments of a call, in the form that `pyframe.export`
takes, which names parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import UserError
from ..export.whole_graph import plain_target
from ..signature.parameters import signature_of


def by_parameter(dynamic: Any, f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`dynamic` with the names of parameters. UserError if it names what is no argument of the call."""
    if not isinstance(dynamic, Mapping):
        return dynamic
    parameters = list(signature_of(plain_target(f)).parameters.values())
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    starred = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    extra = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD), None)
    found: dict[str, Any] = {}
    for name, spec in dynamic.items():
        if isinstance(name, int) and 0 <= name < min(len(args), len(positional)):
            found[positional[name].name] = _dimensions(spec)
        elif isinstance(name, int) and len(positional) <= name < len(args) and starred is not None:
            rest = found.setdefault(starred, [None] * (len(args) - len(positional)))
            rest[name - len(positional)] = _dimensions(spec)
        elif name in kwargs and extra is not None and all(each.name != name for each in parameters):
            found.setdefault(extra, {})[name] = _dimensions(spec)
        elif isinstance(name, str) and (name in kwargs or name in [each.name for each in positional[: len(args)]]):
            found[name] = _dimensions(spec)
        else:
            raise UserError(f"dynamic names {name!r}, which is no argument of the call")
    return found


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _dimensions(spec: Any) -> Any:
    """One or several dimensions that vary, as what `pyframe.export` takes; other specifications as they are."""
    numbers = [spec] if type(spec) is int else spec
    if isinstance(numbers, tuple | list) and numbers and all(type(each) is int for each in numbers):
        return {dim: True for dim in numbers}
    return spec
