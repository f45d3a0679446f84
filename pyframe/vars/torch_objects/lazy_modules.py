"""Lazy modules of torch, whose parameters get their sizes from the first input.

The hook that does this in eager runs while tracing, for real, and the trace starts again with the parameters that it
created. That is what eager does if nothing before the call draws random numbers or changes objects; where something
may, the graph breaks at the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.lazy import LazyModuleMixin

from ...errors import Restart
from ..containers.mapping import DictVar
from ..containers.sequence import TupleVar
from ..objects.instances import InstanceVar
from ..protocol.base import NotConstant, Var
from ..registry import register
from ..tracer import Tracer
from .tensor import TensorVar
from .user_directives import existing

_HOOK = LazyModuleMixin._infer_parameters


@register(_HOOK)
def _infer_parameters(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    owner, module, given, named = (*args, DictVar({}))[:4]
    usable = isinstance(module, InstanceVar) and isinstance(module.value, nn.Module) and module.source is not None
    if not usable or kwargs or not isinstance(given, TupleVar) or not isinstance(named, DictVar):
        return _refuse(tx)
    if len(tx.effects) or tx.graph.stack.is_nested or _may_draw(tx.graph.graph):
        return _refuse(tx)
    assert isinstance(module, InstanceVar)
    own = type(module.value).initialize_parameters.__module__.startswith("torch.nn.modules.")
    try:
        values = [_value(tx, each, own) for each in given.items]
        keywords = {name: _value(tx, each, own) for name, each in named.items.items()}
    except NotConstant:
        return _refuse(tx)
    _HOOK(owner.value if isinstance(owner, InstanceVar) else module.value, module.value, tuple(values), keywords)
    raise Restart()


def _value(tx: Tracer, argument: Var, only_sizes: bool) -> Any:
    """An argument for the hook. `only_sizes`: the hook is torch's and reads no values of tensors, so that a fake tensor
    serves for one that the graph computes; NotConstant if its sizes are not known."""
    if not only_sizes or not isinstance(argument, TensorVar):
        return existing(tx, argument)
    if not all(isinstance(size, int) for size in argument.fake.shape):
        raise NotConstant("a tensor whose sizes vary")
    return argument.fake


def _may_draw(graph: fx.Graph) -> bool:
    """Whether an operation of the graph may draw random numbers or set the state of a generator."""
    return any(node.op.startswith("call") and not _is_deterministic(node.target) for node in graph.nodes)


def _is_deterministic(target: Any) -> bool:
    """Whether ATen has an operator of the name, and none of its overloads draws random numbers."""
    if getattr(target, "in_order", False):  # `torch.manual_seed`, for one, whose name ATen has, too
        return False
    packet = getattr(torch.ops.aten, target if isinstance(target, str) else getattr(target, "__name__", ""), None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    return not any(torch.Tag.nondeterministic_seeded in getattr(packet, name).tags for name in packet.overloads())


def _refuse(tx: Tracer) -> Var:
    return tx.graph_break("unsupported-object", "the first call of a lazy module, which creates its parameters")
