"""Process groups of `torch.distributed`, and functional collectives in graphs.

Size, rank and name of a group never change, so they are constants of a capture that is guarded by the group itself. A
functional collective becomes a node of the graph, followed by a node that waits for it (`wait_tensor`); the compiler
decides when to start and to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from ...core.source import CallSource, ConstSource, Source
from ..objects.instances import InstanceVar
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar, make
from ..protocol.slots import constant_or
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


PROCESS_GROUPS: tuple[type, ...] = (dist.ProcessGroup,) if dist.is_available() else ()


def wrap_process_group(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a process group that existed before the frame."""
    tx.guard(source, "TYPE", type(value))
    return ProcessGroupVar(value, source)


def _is_tracing(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """Functional collectives then return plain tensors and wait in the graph, instead of when a result is used."""
    return ConstVar(True)


def _group_of_name(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """The group of a name; a guard looks it up again."""
    name = constant_or(args[0], None) if len(args) == 1 and not kwargs else None
    resolve = distributed_c10d._resolve_process_group
    if not isinstance(name, str):
        return tx.graph_break("unsupported-object", "a process group whose name is not a constant")
    try:
        group = resolve(distributed_c10d.GroupName(name))
    except RuntimeError as error:
        tx.raise_(RuntimeError, *error.args)
    return tx.wrap(group, CallSource(ConstSource.of(name, repr(name)), resolve, "_resolve_process_group"))


if dist.is_available():
    from torch.distributed import _functional_collectives, distributed_c10d

    register(_functional_collectives._are_we_tracing)(_is_tracing)
    register(distributed_c10d._resolve_process_group)(_group_of_name)
