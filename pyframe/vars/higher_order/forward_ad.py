"""Models `torch.autograd.forward_ad`: `dual_level`, and `make_dual` and `unpack_dual` inside of it.

The level is entered and left by nodes, so the graph itself computes with dual tensors; while tracing, fake tensors are
dual in the same way. A dual tensor has its tangent only until its level ends, so a graph must contain the whole level:
a break inside of it is made at its beginning instead.
"""

from __future__ import annotations

from torch.autograd import forward_ad

from inductor.modes import ENTER_DUAL, EXIT_DUAL

from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..objects.originals import changed_by_models
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..torch_objects.contexts import GraphModeVar, register_by_name
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer

changed_by_models(forward_ad, "_current_level")  # frames that are called inside of a level are not captured


class DualLevelVar(GraphModeVar):
    """`dual_level()`, created at the instruction `step` of the root frame."""

    __slots__ = ("step",)

    switches = (ENTER_DUAL, EXIT_DUAL)

    def __init__(self, step: int) -> None:
        super().__init__(forward_ad.dual_level, ())
        self.step = step

    def clone(self) -> GraphModeVar:
        return DualLevelVar(self.step)

    def enter(self, tx: Tracer) -> Var:
        super().enter(tx)
        return ConstVar(forward_ad._current_level)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuilt("a level of forward-mode AD", self.step, "unsupported-context-manager")


@register(forward_ad.dual_level)
def _dual_level(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if args or kwargs:
        return tx.graph_break("unsupported-context-manager", "dual_level() with arguments or as a decorator")
    if tx.graph.stack.is_nested or tx.overrides.in_mode:
        return tx.graph_break("unsupported-context-manager", "dual_level() in a function that an operator takes")
    return DualLevelVar(tx.steps)


@register(forward_ad.make_dual)
def _make_dual(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    given = dict(zip(("tensor", "tangent", "level"), args), **kwargs)
    tensor, tangent = given.get("tensor"), given.get("tangent")
    fits = isinstance(tensor, TensorVar) and isinstance(tangent, TensorVar)
    if not fits or set(given) > {"tensor", "tangent"} or not tx.graph.modes.is_entered(EXIT_DUAL):
        return tx.graph_break("unsupported-object", "make_dual() outside of a traced dual_level(), or of a given level")
    return tx.graph.call(forward_ad.make_dual, [tensor, tangent], {})


@register(forward_ad.unpack_dual)
def _unpack_dual(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    given = dict(zip(("tensor", "level"), args), **kwargs)
    tensor = given.get("tensor")
    if not isinstance(tensor, TensorVar) or len(given) > 1 or not tx.graph.modes.is_entered(EXIT_DUAL):
        return tx.graph_break("unsupported-object", "unpack_dual() outside of a traced dual_level()")
    return tx.graph.call(forward_ad.unpack_dual, [tensor], {})


register_by_name(forward_ad.dual_level)
