"""Checks that the parts of Python and torch that the tracer itself depends on (builtins, `torch.Tensor`, the grad
modes, ...) are unchanged. A program may delete or replace them; until they are restored, frames run uncompiled."""

from __future__ import annotations

import functools
import types
from typing import Any

from . import _C
from .core import guard_program
from .core.guard import Guard
from .core.source import ConstSource, Source
from .originals import BUILTINS, BUILTINS_NOW, MODES, TORCH, TORCH_NOW
from .vars.objects.originals import guard_class
from .vars.protocol.class_reads import class_reads, reads_of_classes
from .vars.torch_objects import tensor_class


def are_unchanged(func: types.FunctionType, locals_: tuple[Any, ...]) -> bool:
    """Whether these builtins, torch functions and class attributes are as they were at the first capture; `func` and
    `locals_` are the context in which the guards are evaluated."""
    return (
        _C.has_items(BUILTINS_NOW, BUILTINS)
        and _C.has_items(TORCH_NOW, TORCH)
        and _classes().check(func, locals_)[0] < 0
    )


class _Collector:
    """Collects guards through the same interface as a trace."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.class_writes: dict[type, Any] = {}

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        self.guards.append(Guard(source, kind, payload, None))


@functools.cache
def _classes() -> _C.GuardProgram:
    """A guard program that passes while tensors have their original attributes and the grad modes their original
    methods."""
    found, reads = _Collector(), dict[type, dict[str, Any]]()
    with reads_of_classes(reads):
        for mode in MODES:
            guard_class(found, mode)  # type: ignore[arg-type]
    payloads = {cls: class_reads(found, cls, names) for cls, names in reads.items()}  # type: ignore[arg-type]
    for cls, payload in {**payloads, **tensor_class.NEEDED}.items():
        found.guard(ConstSource.of(cls, cls.__name__), "CLASS_FINDS", payload)
    return guard_program.lower(found.guards).program
