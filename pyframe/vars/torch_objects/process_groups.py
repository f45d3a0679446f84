"""Process groups of `torch.distributed`, and functional collectives in graphs.

Size, rank and name of a group never change, so they are constants of a capture that is guarded by the group itself. A
functional collective becomes a node of the graph, followed by a node that waits for it (`wait_tensor`); the compiler
decides when to start and to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from ...core.source import Source
from ..objects.instances import InstanceVar
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar, make
from ..registry import Args, Kwargs, register
from ..tracer import Tracer

_ATTRIBUTES = frozenset({"bound_device_id", "group_desc", "group_name"})
_METHODS = frozenset({"name", "rank", "size"})


class ProcessGroupVar(InstanceVar):
    """A process group that existed before the frame."""

    __slots__ = ()

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in _ATTRIBUTES:
            return self._constant(tx, getattr(self.value, name))
        return MethodVar(self, name) if name in _METHODS else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in _METHODS and not args and not kwargs:
            return self._constant(tx, getattr(self.value, name)())
        return super().call_method(tx, name, args, kwargs)

    def _constant(self, tx: Tracer, value: Any) -> Var:
        tx.guard(self.source, "ID", self.value)
        return make(value)


def is_process_group(cls: type) -> bool:
    """Whether a class is that of process groups."""
    return dist.is_available() and issubclass(cls, dist.ProcessGroup)


def wrap_process_group(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a process group that existed before the frame."""
    tx.guard(source, "TYPE", type(value))
    return ProcessGroupVar(value, source)


def _is_tracing(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """Functional collectives then return plain tensors and wait in the graph, instead of when a result is used."""
    return ConstVar(True)


if dist.is_available():
    from torch.distributed import _functional_collectives

    register(_functional_collectives._are_we_tracing)(_is_tracing)
