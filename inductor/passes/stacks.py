"""Items of a stack of numbers are replaced by the numbers themselves.

Steps of optimizers stack numbers, because operators on lists of tensors take their scalars as one tensor. Without this
pass the loops that read an item compute all of them, and a step with many parameters needs a kernel for each.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import fx

from ..fx_utils.dead_code import remove_unused

aten = torch.ops.aten


def items_of_stacks(gm: fx.GraphModule) -> bool:
    """Lets operators use 0-d tensors instead of the items of their stack. Returns whether anything was changed."""
    changed = False
    for node in list(gm.graph.nodes):
        if node.target is aten.unbind.int:
            changed |= _use_stacked(node)
    if changed:
        remove_unused(gm.graph)
        gm.recompile()
    return changed


def _use_stacked(unbind: fx.Node) -> bool:
    """Replaces the items of one stack. Results, and what is written to inputs, keep theirs: they are new tensors, where
    what was stacked may be an input."""
    stack = unbind.args[0]
    if not isinstance(stack, fx.Node) or stack.target is not aten.stack.default or stack.meta["val"].dim() != 1:
        return False
    stacked, changed = cast(list[fx.Node], stack.args[0]), False
    for item in list(unbind.users):
        number = stacked[cast(int, item.args[1])]
        users = [user for user in item.users if user.op == "call_function" and user.target is not aten.copy_.default]
        if users and _alike(item.meta["val"], number.meta["val"]):
            for user in users:
                user.replace_input_with(item, number)
            changed = True
    return changed


def _alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    return (x.dtype, x.device, x.is_conj(), x.is_neg()) == (y.dtype, y.device, y.is_conj(), y.is_neg())
