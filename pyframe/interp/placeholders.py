"""Sources that begin at placeholders: objects, such as classes, that are created while tracing and stand for those that
the program creates at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.source import AttrSource, ConstSource, Source
from ..vars.objects.lookup import MISSING, class_source, lookup
from ..vars.protocol.base import Var

Placeholders = Mapping[int, tuple[Any, Var]]  # by id


def is_of_placeholder(source: Source, placeholders: Placeholders) -> bool:
    """Whether `source` starts at an object created while tracing, which needs no guards."""
    root: Source = source
    while root.base is not None:
        root = root.base
    return isinstance(root, ConstSource) and root.obj_id in placeholders


def inherited_source(source: Source, placeholders: Placeholders) -> Source | None:
    """The source of an attribute that a class created while tracing inherits from a class that existed before: the
    same attribute of that class. None for what was itself created while tracing."""
    if not isinstance(source, AttrSource):
        return None
    if not isinstance(source.parent, ConstSource):
        parent = inherited_source(source.parent, placeholders)
        return None if parent is None else AttrSource(parent, source.attr)
    owner = placeholders[source.parent.obj_id][0]
    if not isinstance(owner, type):
        return None
    raw = lookup(owner, source.attr)
    for base in type.__dict__["__mro__"].__get__(owner):
        if id(base) in placeholders:
            if source.attr in type.__dict__["__dict__"].__get__(base):
                return None
        elif raw is not MISSING and lookup(base, source.attr) is raw:
            return class_source(base, source.attr)
    return None
