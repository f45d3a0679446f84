"""Finds the backward passes in which zeros may not replace the missing gradients of unused results.

If a backward pass reaches only some results of a graph, eager computes nothing for the others. The compiled backward
takes zeros as their gradients, which adds zeros where the backward is linear in them. There are two exceptions. Zero
times an infinite or undefined value is NaN, as in the backward of `log` at 0. And the backward of an
`autograd.Function` may be anything, for example `gradient + 1`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..torch_compat import present
from .levels import OWN_BACKWARD
from .memory import viewed

aten = torch.ops.aten

# Operators that move, select or add up elements of gradients: zeros give zeros, whatever the other operands are.
_MOVE = frozenset(present(aten, *"""
    _to_copy _unsafe_view add cat clone copy cumsum embedding_dense_backward flip gather index index_add index_put
    index_select max_pool2d_with_indices_backward masked_fill neg repeat roll scatter scatter_add select_backward
    select_scatter slice_backward slice_scatter stack sub sum threshold_backward tril triu where
    empty_like full_like new_empty new_full new_ones new_zeros ones_like zeros_like
""".split()))  # fmt: skip
# Operators whose result is zero if the gradients among their operands are, and the other operands are finite.
_ZERO_AT_ZERO = frozenset(present(aten, *"""
    _to_copy _unsafe_view abs bmm clone convolution convolution_backward cumsum dot embedding_dense_backward empty_like
    flip gather index index_select mean mm mul mv native_dropout_backward neg new_empty new_zeros relu repeat roll sgn
    sign sin sinh sum tan tanh threshold_backward tril triu zeros_like
""".split()))  # fmt: skip
_SUMS = frozenset((aten.add, aten.sub))
_CHOICES = frozenset((aten.masked_fill, aten.where))
_QUOTIENTS = frozenset((aten.div,))


def reached_by(graph: fx.Graph, tangents: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """For each node, the tangents that it depends on, as a bit set of their numbers."""
    reached = {x: 1 << k for k, x in enumerate(tangents)}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            reached[node] = reached.get(node, 0) | reached[source]
        reached.setdefault(node, 0)
    return reached


def products_with_data(reached: dict[fx.Node, int]) -> tuple[int, ...]:
    """Sets of tangents: if none of one of them is given, a value of the forward that is not finite may turn into a
    gradient that is NaN in the compiled backward only."""
    found: set[int] = set()
    for node, bits in reached.items():
        if bits and node.op == "call_function" and _reads_floats(node, reached):
            found.update(reached[x] for x in node.all_input_nodes)
    return _smallest(found)


def not_zero_at_zero(reached: dict[fx.Node, int], own: Sequence[int]) -> tuple[int, ...]:
    """Sets of tangents: if none of one of them is given, a backward that the program itself defines is not run in
    eager, while the compiled backward may add something else than zeros for it. `own`: as in JointGraph."""
    found: set[int] = set()
    for node, bits in reached.items():
        owner = owner_of(node)
        if owner is not None and not (bits and _zero_at_zero(node, reached)):
            found.add(own[owner])
    return _smallest(found)


def owner_of(node: fx.Node) -> int | None:
    """The number of the program's `autograd.Function` whose backward computes a value; None if there is none."""
    return (node.meta.get("custom") or {}).get(OWN_BACKWARD)


def absent(sets: Iterable[int], tangents: Sequence[Any]) -> bool:
    """Whether all tangents of one of these sets are None."""
    given = functools.reduce(int.__or__, (1 << k for k, x in enumerate(tangents) if x is not None), 0)
    return any(not given & each for each in sets)


def any_nan(values: Iterable[torch.Tensor | None]) -> bool:
    """Whether an element of one of these tensors is NaN; may also be true if one is infinite. Waits for a GPU once."""
    sums = [x.detach().sum().isnan() for x in values if x is not None and x.numel()]
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for x in sums:
        by_device.setdefault(x.device, []).append(x)
    return any(bool(torch.stack(each).any()) for each in by_device.values())


def _smallest(sets: Iterable[int]) -> tuple[int, ...]:
    """The sets that are not empty and contain none of the others: if one of the others is absent, so is one of them."""
    found: list[int] = []
    for each in sorted(filter(None, sets), key=int.bit_count):
        if not any(known & each == known for known in found):
            found.append(each)
    return tuple(found)


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _reads_floats(node: fx.Node, reached: dict[fx.Node, int]) -> bool:
    """Whether a gradient is combined with a value of the forward that may be infinite or NaN."""
    if _packet(node) in _MOVE or viewed(node) is not None:
        return False
    return not _finite_numbers(node) or any(_is_float(x) for x in node.all_input_nodes if not reached[x])


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


def _finite_numbers(node: fx.Node) -> bool:
    """Whether the numbers among a node's arguments are known to be finite, and not zero if it divides by them."""
    numbers = [x for x in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(x, float | torch.SymFloat)]
    if not all(isinstance(x, float) and math.isfinite(x) for x in numbers):
        return False
    divisor = node.args[1] if _packet(node) in _QUOTIENTS else 1
    return not isinstance(divisor, int | float) or divisor != 0


def _zero_at_zero(node: fx.Node, reached: dict[fx.Node, int]) -> bool:
    """Whether an operator is known to give zeros where all gradients among its operands are zero and the other operands
    are finite."""
    packet, tensors = _packet(node), [x for x in node.args if isinstance(x, fx.Node)]
    if packet in _SUMS:
        return len(tensors) == 2 and all(reached[x] for x in tensors)  # noqa: PLR2004
    if packet in _CHOICES:  # masks may be anything
        chosen = node.args[1:] if packet is aten.where else (node.args[0], *node.args[2:])
        return all(bool(reached[x]) if isinstance(x, fx.Node) else x in (0, 0.0) for x in chosen)
    if packet is aten.constant_pad_nd:
        return len(node.args) < 3 or node.args[2] in (0, 0.0)  # noqa: PLR2004
    if packet in _QUOTIENTS:
        return isinstance(node.args[0], fx.Node) and bool(reached[node.args[0]])
    if viewed(node) is not None:
        return True
    if packet in (aten.cat, aten.stack):
        return all(reached[x] for x in node.all_input_nodes)
    return packet in _ZERO_AT_ZERO
