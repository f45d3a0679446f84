"""The parameters of an exported or packaged function: how the arguments of a call become its flat inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..errors import UserError
from .structure import PLAIN_TYPES, Structure, matched

_ANY = inspect.Signature([
    inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
    inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
])  # fmt: skip


class Absent:
    """The default of a parameter whose default is not a plain constant: only a call without the argument is known."""


ABSENT = Absent()


@dataclass(frozen=True)
class Parameters:
    """`signature`: of the function, with defaults that are plain constants or ABSENT. `given`: the structure of each
    argument that the example call passed, by parameter; its leaves are the inputs. `by_keyword`: the parameters that
    were passed by keyword."""

    signature: inspect.Signature
    given: Mapping[str, Structure]
    by_keyword: frozenset[str]

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call. UserError for arguments that the program does not take."""
        arguments = bound(self.signature, args, kwargs)
        found: dict[int, Any] = {}
        for name, value in arguments.items():
            if name not in self.given:
                self._check_default(name, value)
        for name, structure in self.given.items():
            value = arguments.get(name, _empty(self.signature.parameters[name]))
            if value is ABSENT or value is inspect.Parameter.empty:
                raise UserError(f"the argument {name} is missing: the program was made with one")
            matched(structure, value, name, found)
        return [found[index] for index in range(len(found))]

    def _check_default(self, name: str, value: Any) -> None:
        """An argument that the example call did not pass must have the value of its default."""
        parameter = self.signature.parameters[name]
        default = _empty(parameter)
        if value is default or type(value) is type(default) and value == default:
            return
        what = "its default" if default is ABSENT else repr(default)
        raise UserError(
            f"the program was made without the argument {name}, so it must be {what}, not {value!r}; make it "
            "with an example of this argument"
        )


def _empty(parameter: inspect.Parameter) -> Any:
    """The value of a parameter in a call that does not pass it."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return ()
    return {} if parameter.kind is inspect.Parameter.VAR_KEYWORD else parameter.default


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function or module; `(*args, **kwargs)` where there is none."""
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        found = inspect.signature(target)
    except (TypeError, ValueError):
        return _ANY
    parameters = [
        each.replace(annotation=inspect.Parameter.empty, default=_plain(each.default))
        for each in found.parameters.values()
    ]
    return inspect.Signature(parameters)


def _plain(default: Any) -> Any:
    return default if default is inspect.Parameter.empty or type(default) in PLAIN_TYPES else ABSENT


def bound(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter, without those that it leaves at their defaults."""
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise UserError(f"the arguments do not fit {signature}: {error}") from None
