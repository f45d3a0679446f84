"""Models the two functions by which `saved_tensors_hooks` takes effect and ends.

Nodes push and pop the program's own functions when the graph runs. They are called while it runs, before the effects of
the frame on Python objects, and in the backward pass; so they have to compute only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from inductor.modes import recorded

from ..containers.mapping import DictVar
from ..containers.sequence import ListVar
from ..containers.sets import SetVar
from ..protocol.base import Raised, Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer
from .called_hooks import Ingredients, Make, NotKnown
from .control_flow import state_of, unchanged
from .late_reads import LateReads
from .tensor_hooks import RegisteredHook

_PUSH = torch._C._autograd._push_saved_tensors_default_hooks
_POP = torch._C._autograd._pop_saved_tensors_default_hooks
_DISABLED = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message


class _PushedHook(RegisteredHook):
    """The pack or unpack hook that `node` pushes. `reads_changeable`: whether the
    frame may change what it reads."""

    made: Ingredients

    def __init__(self, tx: Tracer, tensor: TensorVar, hook: Var, node: Any, made: Ingredients, reads: bool) -> None:
        super().__init__(tx, tensor, hook, node, made)
        self.reads_changeable = reads or _reads_containers(tx, hook)

    def is_right(self) -> bool:
        changed = self.reads_changeable and self.tx.effects.changes != self.changes
        return not changed and self.made.unchanged()


def _reads_containers(tx: Tracer, hook: Var) -> bool:
    """Whether a hook reads a list, dict or set that existed before."""
    kept: list[Any] = []
    state_of(tx, [hook], kept)
    return any(isinstance(var, ListVar | DictVar | SetVar) for var in kept)


def _pushing(pack: Make, unpack: Make) -> tuple[Any, Any]:
    """The functions that push and pop the hooks. Fake tensors are saved as they are."""

    def push() -> None:
        packs, unpacks = pack(()), unpack(())
        _PUSH(
            lambda tensor: tensor if isinstance(tensor, FakeTensor) else packs(tensor),
            lambda packed: packed if isinstance(packed, FakeTensor) else unpacks(packed),
        )

    return recorded(push, lambda _: _POP())


def _example(tx: Tracer, pack: Var, unpack: Var) -> TensorVar | None:
    """A tensor that was packed and unpacked while tracing, to see that the hooks only compute; None if not."""
    nested = tx.graph.stack.enter()
    with tx.graph.fake_mode:
        saved = tx.graph.stack.tensor_argument(torch.empty(2, 2))
    before = state_of(tx, [pack, unpack])
    with torch.no_grad():
        try:
            result = tx.call(unpack, [tx.call(pack, [saved], {})], {})
        except Raised:
            return None
    known = isinstance(result, TensorVar) and unchanged(before, state_of(tx, [pack, unpack]))
    if not isinstance(result, TensorVar) or not known or saved.fake._version or tx.graph.stack.changes_lifted():
        return None
    tx.graph.end_nested(nested, [result])
    return saved


@register(_PUSH)
def _push(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    pack, unpack = args
    outer, reads, ingredients = tx.outside_reads, LateReads(), Ingredients(tx)
    allowed = tx.graph.history.calls_hooks and _DISABLED() is None and not tx.graph.stack.is_nested
    try:
        made = (ingredients.make(pack), ingredients.make(unpack)) if allowed else None
    except NotKnown:
        made = None
    if made is None or ingredients.tensors:
        return tx.graph_break("unsupported-context-manager", "saved_tensors_hooks with these functions")
    tx.outside_reads = reads
    try:
        example = tx.speculate(lambda: _example(tx, pack, unpack))
    finally:
        tx.outside_reads = outer
    if example is None:
        return tx.graph_break("unsupported-context-manager", "saved_tensors_hooks that do not only compute")
    ingredients.guard()
    mode = tx.graph.modes.enter(*_pushing(*made), ())
    # if the frame ends before the hooks are popped, they stay in force
    effect = tx.effects.add("CALL", None, (_PUSH, [pack, unpack], {}), tx.user_line())
    tx.graph.pushed_hooks.append((mode, effect))
    hooks = [_PushedHook(tx, example, each, mode[1], ingredients, reads.changeable) for each in args]
    tx.graph.registered_hooks.extend(hooks)
    return ConstVar(None)


@register(_POP)
def _pop(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    if not tx.graph.pushed_hooks or tx.graph.stack.is_nested:
        # hooks that were in force when the graph began may have changed what the frame goes on to use
        return tx.graph_break("unsupported-context-manager", "the end of saved_tensors_hooks from before")
    mode, effect = tx.graph.pushed_hooks.pop()
    tx.effects.cancel(effect)
    tx.graph.modes.exit(mode)
    return ConstVar(None)
