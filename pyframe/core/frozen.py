"""Frozen dataclasses whose `__init__` writes to the slots directly.

That of `dataclass(frozen=True)` calls `object.__setattr__` for each field, which takes most of the time of creating an
object. A capture creates tens of thousands of sources, guards and lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """`dataclass(frozen=True, slots=True)`. Fields may have defaults, but no factories and no `init=False`."""
    return with_direct_init(dataclasses.dataclass(frozen=True, slots=True)(cls))


def with_direct_init(made: type[_T], hash_slot: Callable[[Any, Any], None] | None = None) -> type[_T]:
    """The frozen dataclass `made`, with slots, with an `__init__` that writes to them. `hash_slot`: what sets the slot
    for the hash of an object, which is then computed at once; it stays empty if a field has no hash."""
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    scope: dict[str, Any] = {"_set_hash": hash_slot}
    parameters, body = ["self"], []
    for field in fields:
        default = field.default is not dataclasses.MISSING
        scope[f"_set_{field.name}"] = _slot(made, field.name).__set__
        scope[f"_default_{field.name}"] = field.default
        parameters.append(f"{field.name}=_default_{field.name}" if default else field.name)
        body.append(f"_set_{field.name}(self, {field.name})")
    if hash_slot is not None:
        hashed = "".join(f"{field.name}, " for field in fields if field.compare)
        body += ["try:", f"    _set_hash(self, hash(({hashed})))", "except TypeError:", "    pass"]
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "".join(f"    {line}\n" for line in body or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n{lines}", scope)
    init, before = scope["__init__"], made.__init__
    init.__qualname__, init.__annotations__ = before.__qualname__, before.__annotations__
    made.__init__ = init  # type: ignore[method-assign]
    return made


def _slot(cls: type, name: str) -> Any:
    """The descriptor of a slot, which `cls` or a base class has."""
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base).get("__slots__", ()))
