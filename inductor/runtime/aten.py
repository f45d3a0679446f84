"""Looks up ATen overloads by name and finds or replaces buffer references among their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .plan_spec import BufRef


def overload(target: str) -> Any:
    """The overload with a name like "aten.addmm.default"."""
    namespace, name, variant = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), variant)


def map_refs(value: Any, convert: Callable[[BufRef], Any]) -> Any:
    """`value` with `convert` applied to every BufRef in it, also inside lists and tuples."""
    if isinstance(value, BufRef):
        return convert(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_refs(item, convert) for item in value)
    return value


def has_refs(value: Any) -> bool:
    """Whether `value` is a BufRef or contains one in nested lists and tuples."""
    return isinstance(value, BufRef) or (isinstance(value, (list, tuple)) and any(map(has_refs, value)))
