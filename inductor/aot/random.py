"""Rewrites random operators on a GPU so that kernels draw the numbers where they use them.

One ATen call per device draws the seeds of a graph from torch's generator, one seed for each tensor of random bits.
Each number depends only on the seed and its position, so a backward can recompute it, and eager execution of the graph
gives the same numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ..fx_utils.arguments import getitem_key
from ..ir import philox
from ..ir.nodes import dense_order
from .calls import call

aten = torch.ops.aten
Node = torch.fx.Node

_LIBRARY = torch.library.Library("pyframe", "FRAGMENT")
_LIBRARY.define("random_bits(Tensor seeds, int which, SymInt[] size) -> Tensor")


def _bits(seeds: torch.Tensor, which: int, size: Sequence[int]) -> torch.Tensor:
    """A contiguous tensor of 32 random bits per element; an element's position is its Philox counter."""
    seed = seeds[which]
    counter = torch.arange(math.prod(size), device=seeds.device).to(torch.int32)
    return philox.random_bits(seed.to(torch.int32), (seed >> 32).to(torch.int32), counter).view(size)


def _bits_fake(seeds: torch.Tensor, which: int, size: Sequence[int]) -> torch.Tensor:
    return seeds.new_empty(size, dtype=torch.int32)


_LIBRARY.impl("random_bits", _bits, "CompositeExplicitAutograd")
torch.library.register_fake("pyframe::random_bits", _bits_fake, lib=_LIBRARY)
RANDOM_BITS = torch.ops.pyframe.random_bits.default

_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_MOST = 2**32  # counters have 32 bits


def seeded(gm: torch.fx.GraphModule, devices: Sequence[str] = ("cuda",)) -> None:
    """Rewrite the random operators of an ATen graph on these types of devices, in place.

    Operators with a generator of their own, or without a rewrite here, stay.
    """
    seeds: dict[torch.device, _Seeds] = {}
    for node in list(gm.graph.nodes):
        rewrite = _REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is None or node.kwargs.get("generator") is not None:
            continue
        vals = node.meta["val"] if isinstance(node.meta["val"], tuple | list) else (node.meta["val"],)
        order = _order(vals[0])
        if vals[0].device.type not in devices or order is None or not 0 < vals[0].numel() < _MOST:
            continue
        source = seeds.setdefault(vals[0].device, _Seeds(gm.graph, vals[0].device))
        draw = _Draw(gm.graph, source, vals[0], order)
        with gm.graph.inserting_before(node), vals[0].fake_mode:
            rewritten = rewrite(draw, *node.args, **node.kwargs)
        if rewritten is None:
            continue
        results = (rewritten,) if isinstance(rewritten, Node) else rewritten
        if any(x.meta["val"].stride() != val.stride() for x, val in zip(results, vals, strict=True)):
            draw.undo()
            continue
        for x in draw.new:
            x.meta = {**node.meta, "val": x.meta["val"]}
        _replace(node, rewritten)
    for source in seeds.values():
        source.finish()
    if seeds:
        gm.graph.lint()
        gm.recompile()


def _order(val: torch.Tensor) -> list[int] | None:
    """The dimensions of a dense tensor, outermost first. Those of size 1 stay where they are if the tensor is
    contiguous, so that their strides do, too."""
    return list(range(val.dim())) if val.is_contiguous() else dense_order(val.shape, val.stride())


def draws_in_kernels(graph: torch.fx.Graph) -> bool:
    """Whether the graph draws random numbers in kernels, which differ from eager's numbers."""
    return any(node.target is RANDOM_BITS for node in graph.nodes)


def _replace(node: Node, result: Node | tuple[Node, ...]) -> None:
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(result[getitem_key(user)])
            node.graph.erase_node(user)
    node.graph.erase_node(node)


class _Seeds:
    """The seeds of one device: one `randint` node at the start of the graph, with as many elements as are needed once
    it is finished."""

    def __init__(self, graph: torch.fx.Graph, device: torch.device) -> None:
        self.graph, self.device, self.count = graph, device, 0
        self.node: Node | None = None

    def take(self) -> tuple[Node, int]:
        """The node, and the index of an unused seed in it."""
        if self.node is None:
            first = next(node for node in self.graph.nodes if node.op != "placeholder")
            with self.graph.inserting_before(first):
                self.node = self.graph.call_function(aten.randint.default)
            self.node.meta = {"backward": False}
            self._resize(1)
        self.count += 1
        return self.node, self.count - 1

    def finish(self) -> None:
        """Give the node its size, or remove it if no seed is used."""
        if self.node is not None and not self.node.users:
            self.graph.erase_node(self.node)
        elif self.node is not None:
            with self.node.meta["val"].fake_mode:
                self._resize(self.count)

    def _resize(self, count: int) -> None:
        assert self.node is not None
        self.node.args = (2**63 - 1, [count])
        self.node.kwargs = {"dtype": torch.int64, "device": self.device, "pin_memory": False}
        self.node.meta["val"] = aten.randint.default(*self.node.args, **self.node.kwargs)


class _Draw:
    """Creates the nodes that replace one random operator, whose (first) result is like `val`."""

    def __init__(self, graph: torch.fx.Graph, seeds: _Seeds, val: torch.Tensor, order: list[int]) -> None:
        self.graph, self.seeds, self.val, self.order = graph, seeds, val, order
        self.new: list[Node] = []

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add a node."""
        self.new.append(call(self.graph, target, *args, **kwargs))
        return self.new[-1]

    def undo(self) -> None:
        """Erase the nodes added so far."""
        for node in reversed(self.new):
            self.graph.erase_node(node)

    def bits(self) -> Node:
        """A node of random int32 values with the strides of `val`."""
        drawn = self.call(RANDOM_BITS, *self.seeds.take(), [self.val.shape[d] for d in self.order])
        if self.order == list(range(self.val.dim())):
            return drawn
        return self.call(aten.permute.default, drawn, sorted(range(len(self.order)), key=self.order.__getitem__))

    def uniform(self, dtype: torch.dtype, start: int = 0) -> Node:
        """Random multiples of 2^-digits in [0, 1), or in (0, 1] with start=1; exact in `dtype`."""
        digits = _DIGITS[dtype]
        top = self.call(aten.bitwise_right_shift.Tensor_Scalar, self.bits(), 32 - digits)
        top = self.call(aten.bitwise_and.Scalar, top, 2**digits - 1)
        if start:
            top = self.call(aten.add.Tensor, top, start)
        return self.call(aten.mul.Tensor, self.call(aten._to_copy.default, top, dtype=dtype), 2.0**-digits)

    def cast(self, x: Node) -> Node:
        """`x` in the dtype of the result."""
        return x if x.meta["val"].dtype == self.val.dtype else self.call(aten._to_copy.default, x, dtype=self.val.dtype)


def _threshold(p: float) -> int:
    """The number below which random bits, as signed int32, lie with probability p < 1."""
    return min(int(p * 2**32), 2**32 - 1) - 2**31


def _native_dropout(draw: _Draw, x: Node, p: float, train: bool | None) -> tuple[Node, Node] | None:
    if train is False or not 0 <= p < 1 or draw.val.dtype not in _DIGITS:
        return None
    kept = draw.call(aten.ge.Scalar, draw.bits(), _threshold(p))
    return draw.call(aten.mul.Tensor, draw.call(aten.mul.Tensor, x, kept), 1.0 / (1.0 - p)), kept


def _native_dropout_backward(draw: _Draw, grad: Node, mask: Node, scale: float) -> Node | None:
    if draw.val.dtype not in _DIGITS:
        return None
    return draw.call(aten.mul.Tensor, draw.call(aten.mul.Tensor, grad, mask), scale)


def _rand(draw: _Draw, *args: Any, **kwargs: Any) -> Node | None:
    return draw.uniform(draw.val.dtype) if draw.val.dtype in _DIGITS else None


def _randn(draw: _Draw, *args: Any, **kwargs: Any) -> Node | None:
    """The Box-Muller transform."""
    if draw.val.dtype not in _DIGITS:
        return None
    log = draw.call(aten.log.default, draw.uniform(torch.float32, 1))
    radius = draw.call(aten.sqrt.default, draw.call(aten.mul.Tensor, log, -2.0))
    angle = draw.call(aten.mul.Tensor, draw.uniform(torch.float32), 2 * math.pi)
    return draw.cast(draw.call(aten.mul.Tensor, radius, draw.call(aten.cos.default, angle)))


def _bernoulli(draw: _Draw, x: Node, generator: None = None) -> Node | None:
    if x.meta["val"].dtype not in _DIGITS:
        return None
    chance = draw.call(aten._to_copy.default, x, dtype=torch.float32)
    return draw.cast(draw.call(aten.lt.Tensor, draw.uniform(torch.float32), chance))


def _bernoulli_p(draw: _Draw, x: Node, p: float = 0.5, generator: None = None) -> Node | None:
    return draw.cast(draw.call(aten.lt.Scalar, draw.bits(), _threshold(p))) if 0 <= p < 1 else None


def _uniform(draw: _Draw, x: Node, start: float = 0.0, end: float = 1.0, generator: None = None) -> Node | None:
    if draw.val.dtype not in _DIGITS or not start <= end or not math.isfinite(end - start):
        return None
    unit = draw.uniform(draw.val.dtype)
    if (start, end) == (0, 1):
        return unit
    scaled = draw.call(aten.add.Tensor, draw.call(aten.mul.Tensor, unit, end - start), start)
    # rounding may give `end`, which is not part of the interval
    inside = draw.call(aten.lt.Scalar, scaled, end)
    return draw.call(aten.where.self, inside, scaled, draw.call(aten.full_like.default, scaled, start))


def _exponential(draw: _Draw, x: Node, rate: float = 1.0, generator: None = None) -> Node | None:
    if draw.val.dtype not in _DIGITS or not rate > 0:
        return None
    drop = draw.call(aten.neg.default, draw.call(aten.log.default, draw.uniform(torch.float32, 1)))
    # never 0, because programs divide by it
    return draw.cast(draw.call(aten.div.Tensor, draw.call(aten.clamp_min.default, drop, 2.0**-25), rate))


_REWRITES: dict[Any, Callable[..., Node | tuple[Node, ...] | None]] = {
    aten.native_dropout.default: _native_dropout,
    aten.native_dropout_backward.default: _native_dropout_backward,
    aten.rand.default: _rand,
    aten.rand_like.default: _rand,
    aten.randn.default: _randn,
    aten.randn_like.default: _randn,
    aten.bernoulli.default: _bernoulli,
    aten.bernoulli.p: _bernoulli_p,
    aten.uniform.default: _uniform,
    aten.exponential.default: _exponential,
}
