"""Digests of many attributes of a class at once, for the classes of tensors, of which a capture depends on all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..core.guard_reference import found_along
from .described import NotKept, describe

_mro = type.__dict__["__mro__"].__get__


def class_digest(cls: type, names: Sequence[str]) -> tuple[str, list[Any]]:
    """A hash of the raw attributes of a class under these names, and the triples (name, how, raw) of a guard on them.

    An attribute that no description is known for is described by its class alone if that is a class of Python or torch,
    for torch makes such objects in C; NotKept for another class."""
    digest, triples = hashlib.sha256(), list[Any]()
    order = _mro(cls)
    for name in names:
        found = found_along(order, name)
        triples += (name, 1, found[0]) if found else (name, 0, None)
        digest.update(repr((name, _text(found[0]) if found else None)).encode())
    return digest.hexdigest(), triples


def _text(raw: Any) -> Any:
    try:
        return describe(raw)
    except NotKept:
        module = type(raw).__module__
        if module != "builtins" and module.partition(".")[0] != "torch":
            raise
        return module, type(raw).__qualname__
