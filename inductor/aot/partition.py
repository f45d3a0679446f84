"""Partitions a joint graph into forward and backward with a minimum cut over the bytes saved between them.

The backward recomputes what is cheap, including random bits from a saved seed. It never recomputes matrix products,
convolutions, attention, reductions, or operators that draw from a generator.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule  # nothing runs its Python code

from ..fx_utils.arguments import joint_results, node_at, output_of
from .calls import call, copied, device_of
from .functionalize import NotFunctional
from .joint import JointGraph
from .maxflow import INFINITE, Network
from .memory import ancestors, is_random, roots, viewed
from .random import RANDOM_BITS
from .results import dense

aten = torch.ops.aten
Node = torch.fx.Node

_CHEAP = {
    getattr(aten, name)
    for name in (
        "_to_copy arange clone copy empty empty_like empty_strided eye full full_like lift_fresh_copy masked_fill "
        "new_empty new_full new_ones new_zeros ones ones_like scalar_tensor tril triu where zeros zeros_like"
    ).split()
}
_IN_KERNELS = {  # never recomputed, but their kernels may compute what they read
    getattr(aten, name)
    for name in (
        "sum mean amax amin max min argmax argmin prod any all var std var_mean native_layer_norm gather index_select"
    ).split()
}
_EQUALITIES = (aten.eq.Tensor, aten.ne.Tensor)
_FARTHEST = 64
_SMALL = 1 << 16  # bytes; an input up to this size may be copied in order to save the copy
_COPY_COST = 32 << 20  # bytes that such a copy must save to be worth a kernel of its own
_WRITTEN = 8  # saving a value that is not written otherwise costs 1/8 of its bytes more
_MAX_READS = 2  # a recomputation may read at most this many tensors of about the size of its result
_MAX_SOURCES = 64  # ... and at most this many tensors of any size


@dataclass(frozen=True)
class Saved:
    """What the forward saves for the backward, in this order: inputs by number, returned tensors by number, and `kept`
    more tensors that the forward graph returns after the others. `users[k]`: the tangents whose gradients are computed
    from returned tensor number `returned[k]`."""

    inputs: tuple[int, ...]
    returned: tuple[int, ...]
    kept: int
    users: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Halves:
    """`forward(*inputs, *attributes)` returns [*returned, *kept] and ends with one `copy_` into each written input.

    `backward(*saved, *tangents)` returns the gradients that are not None.
    """

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    saved: Saved


def partition(joint: JointGraph) -> Halves:
    """Partition a joint graph, modifying it. NotFunctional if the backward needs an input that the graph overwrites.

    A tensor that the caller can access is saved only if autograd saved it too, so that a write to it is an error
    exactly when it is one in eager.
    """
    plan = _Plan(joint)
    saved = plan.cut()
    position = plan.position
    place = {node: k for k, node in enumerate(plan.returned)}
    inputs = [node for node in saved if node in position]
    returned = [node for node in saved if node in place]
    kept = [node for node in saved if node not in position and node not in place]
    backward = _backward(joint, plan, [*inputs, *returned, *kept], plan.placeholders[len(plan.inputs) :])
    given = list(backward.graph.find_nodes(op="placeholder"))
    users = _users(backward.graph, given[len(inputs) :][: len(returned)], given[len(saved) :])
    return Halves(
        _forward(joint, plan, kept),
        backward,
        Saved(tuple(position[x] for x in inputs), tuple(place[x] for x in returned), len(kept), users),
    )


def _users(graph: torch.fx.Graph, saved: list[Node], tangents: list[Node]) -> tuple[tuple[int, ...], ...]:
    """For each saved tensor, the numbers of the tangents that are combined with it or with values computed from it
    alone. All tangents if a gradient is computed from it and no tangent."""
    every = frozenset(range(len(tangents)))
    reached: dict[Node, frozenset[int]] = {x: frozenset([k]) for k, x in enumerate(tangents)}
    sources: dict[Node, frozenset[Node]] = {x: frozenset([x]) for x in saved}
    users: dict[Node, frozenset[int]] = dict.fromkeys(saved, frozenset())
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        reached[node] = frozenset().union(*(reached.get(x, frozenset()) for x in node.all_input_nodes))
        met = frozenset().union(*(sources.get(x, frozenset()) for x in node.all_input_nodes))
        if not reached[node] and node.op != "output":
            sources[node] = met
            continue
        for x in met:
            users[x] |= every if node.op == "output" else reached[node]
    return tuple(tuple(sorted(users[x])) for x in saved)


class _Plan:
    """A joint graph, the dependencies in it, and which of its values may be saved."""

    def __init__(self, joint: JointGraph) -> None:
        self.joint = joint
        self.graph = joint.graph.graph
        self.placeholders = list(self.graph.find_nodes(op="placeholder"))
        self.inputs = self.placeholders[: len(self.placeholders) - len(joint.tangents)]
        self.position = {x: i for i, x in enumerate(self.inputs)}
        self.overwritten = {self.inputs[i] for i in joint.writes}
        self.copies: set[Node] = set()
        self.escaping: set[Node] = set()  # nodes whose memory the caller gets
        self.returned, self.written, gradients, _ = joint_results(self.graph)
        self.gradients = [x for x in gradients if x is not None]
        ends = [*self.gradients, *(x for x in self.graph.nodes if communicates(x) and x.meta.get("backward"))]
        needed = ancestors(ends)
        self.root = roots(self.graph)
        users = {x: [u for u in x.users if u in needed and _reads_saved(u)] for x in self.graph.nodes}
        self.seen = {self.root[x] for x in self.graph.nodes if not x.meta.get("backward") and users[x]}
        self.seen |= {self.root[x] for x in self.gradients if not x.meta.get("backward")}
        for k, node in enumerate(self.returned):
            if node is not self.root[node] and self.root[node] in self.seen:
                self._anchor(k, node)
        self._copy_small_inputs(needed)
        self.root = roots(self.graph)
        self.needed = ancestors(ends)
        self.late = _descendants(self.graph, self.placeholders[len(self.inputs) :])

    def _anchor(self, k: int, node: Node) -> None:
        """Make the returned view `node` the value to save: other uses of its memory are rewritten as views of it."""
        root = self.root[node]
        chain = [node]
        while (base := viewed(chain[-1])) is not None:
            chain.append(base)
        own = node.meta["val"]
        if own.numel() != root.meta["val"].numel() or not dense(own.shape, own.stride()):
            copy = self._own_copy(node, chain)
            self.returned = [copy if i == k else x for i, x in enumerate(self.returned)]
            output_of(self.graph).args = ([self.returned, *joint_results(self.graph)[1:3]],)
            return
        last = root
        for view in reversed(chain[:-1]):
            last.append(view)
            last = view
        for x in chain[1:]:
            others = [user for user in x.users if user not in chain]
            if others:
                val = x.meta["val"]
                with self.graph.inserting_after(last):
                    if val.is_contiguous() and own.is_contiguous():
                        last = call(self.graph, aten.view.default, node, list(val.shape))
                    else:
                        layout = (list(val.shape), list(val.stride()), val.storage_offset())
                        last = call(self.graph, aten.as_strided.default, node, *layout)
                for user in others:
                    user.replace_input_with(x, last)

    def _own_copy(self, node: Node, chain: list[Node]) -> Node:
        """A copy of the view `node` in memory that nothing else uses, with the strides of `node`: the view of a copy of
        its root, if the strides have gaps. `chain`: `node`, what it is a view of, and so on to the root."""
        own, whole = node.meta["val"], chain[-1].meta["val"]
        if dense(own.shape, own.stride()) or not dense(whole.shape, whole.stride()):
            with self.graph.inserting_after(node):
                return call(self.graph, aten.clone.default, node)
        with self.graph.inserting_after(node):
            base = call(self.graph, aten.clone.default, chain[-1])
        for view, source in reversed(list(itertools.pairwise(chain))):
            inputs = {x: base if x is source else x for x in view.all_input_nodes}
            with self.graph.inserting_after(base):
                base = self.graph.node_copy(view, inputs.__getitem__)
        return base

    def _copy_small_inputs(self, needed: set[Node]) -> None:
        """Copy small inputs such as biases. Autograd does not save them, but a copy may be saved, so that the backward
        can recompute what they are added to."""
        first = next(n for n in self.graph.nodes if n.op != "placeholder")
        for x in self.inputs:
            if self.root[x] in self.seen or x in self.overwritten or not 0 < _bytes(x) <= _SMALL:
                continue
            users = [u for u in x.users if u in needed and not u.meta.get("backward") and recomputable(u)]
            if any(device_of(u) != device_of(x) for u in users):
                continue  # a number on the CPU that is copied to the GPU
            # views of x become views of the copy, but were traced with the strides and the offset of x
            same_layout = dense(x.meta["val"].shape, x.meta["val"].stride()) and not x.meta["val"].storage_offset()
            if users and same_layout:
                with self.graph.inserting_before(first):
                    copy = call(self.graph, aten.clone.default, x)
                self.copies.add(copy)
                for user in users:
                    user.replace_input_with(x, copy)

    def cut(self) -> list[Node]:
        """The nodes to save, in graph order, by a minimum cut."""
        early = [x for x in self.graph.nodes if x in self.needed and x not in self.late]
        number = {x: 2 * i + 2 for i, x in enumerate(early)}
        gradients = set(self.gradients)
        self.escaping = {self.root[y] for y in self.returned}
        ends = {x for x in early if x in gradients or any(u in self.late and u in self.needed for u in x.users)}
        distance = _distances(early, ends)
        kept = _too_wide(early) | {x for x in _compared(self.needed) if self._savable(x)}
        # autograd saved these results, and raises an error if they are written: so they are saved, not recomputed
        kept |= {x for x in early if x in self.returned and self._savable(x)}
        net = Network(2 * len(early) + 2)
        for x in early:
            inner, outer = number[x], number[x] + 1
            net.edge(inner, outer, self._cost(x) * (_FARTHEST + distance[x]) if self._savable(x) else INFINITE)
            if x in kept or not (recomputable(x) or x.meta.get("backward")):
                net.edge(0, inner, INFINITE)
            for source in x.all_input_nodes:
                net.edge(number[source] + 1, inner, INFINITE)
            if x in ends:
                net.edge(outer, 1, INFINITE)
        flow, side = net.cut(0, 1)
        if flow >= INFINITE:
            raise NotFunctional("the backward needs the value that an input had before the graph mutated it")
        return [x for x in early if number[x] in side and number[x] + 1 not in side]

    def _savable(self, x: Node) -> bool:
        if not isinstance(x.meta.get("val"), torch.Tensor) or x.op == "get_attr":
            return False
        visible = x.op == "placeholder" or x in self.returned
        if x in self.overwritten:
            return False
        return self.root[x] in self.seen if visible else self.root[x] is x and x not in self.escaping

    def _cost(self, x: Node) -> int:
        if x.op == "placeholder" and self.joint.permanent[self.position[x]]:
            return 1  # a parameter stays in memory anyway
        if x in self.copies:
            return _COPY_COST
        # saving a value of the backward would move its computation into the forward
        cost = max(1, _bytes(x)) * (2 if x.meta.get("backward") else 1)
        return cost if self._in_memory(x) else cost + cost // _WRITTEN

    def _in_memory(self, x: Node) -> bool:
        """Whether the forward writes the value to memory anyway, because another kernel reads it."""
        if not recomputable(x) or x in self.returned:
            return True
        later = [u for u in x.users if u.op == "call_function" and u not in self.late and not u.meta.get("backward")]
        return any(viewed(u) is None and not recomputable(u) and not _in_kernel(u) for u in later)


def _reads_saved(node: Node) -> bool:
    """Whether autograd saved what the node reads: the node is in the backward, or is a copy that a pass made for it."""
    return bool(node.meta.get("backward") or node.meta.get("saved"))


def recomputable(node: Node) -> bool:
    """Whether the backward may recompute the value: it is cheap and always the same."""
    if node.op == "get_attr" or viewed(node) is not None:
        return True
    if node.op != "call_function" or is_random(node.target):
        return False
    if node.target is operator.getitem:
        return recomputable(node_at(node))
    return isinstance(node.target, torch._ops.OpOverload) and _is_cheap(node.target)


@functools.cache
def _is_cheap(op: torch._ops.OpOverload) -> bool:
    """Whether an operator that draws no random numbers from a generator may be computed twice."""
    return (
        torch.Tag.pointwise in op.tags
        or op.overloadpacket in _CHEAP
        or op is RANDOM_BITS
        or (op is torch.ops.prims.convert_element_type.default)
    )


def _in_kernel(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.overloadpacket in _IN_KERNELS


def _descendants(graph: torch.fx.Graph, nodes: Iterable[Node]) -> set[Node]:
    found = set(nodes)
    for node in graph.nodes:
        if node.op != "output" and any(x in found for x in node.all_input_nodes):
            found.add(node)
    return found


def _distances(early: list[Node], ends: set[Node]) -> dict[Node, int]:
    """For each node, the number of nodes from it to the nearest use in the backward, at most _FARTHEST."""
    distance = dict.fromkeys(early, _FARTHEST)
    for x in reversed(early):
        if x in ends:
            distance[x] = 0
        for source in x.all_input_nodes:
            distance[source] = min(distance[source], distance[x] + 1)
    return distance


def _compared(needed: Iterable[Node]) -> set[Node]:
    """Values that autograd saved to compare for equality in the backward, such as a maximum for its gradient.
    Recomputed, they could be rounded differently, and no element would be equal."""
    stack = [x for x in needed if x.meta.get("backward") and x.target in _EQUALITIES]
    seen = set(stack)
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                if source.meta.get("backward"):
                    stack.append(source)
    return {x for x in seen if not x.meta.get("backward")}


def _too_wide(early: list[Node]) -> set[Node]:
    """Values that must not be recomputed because that would read too much, such as a sum over many layers, which the
    forward has in memory at some point."""
    found: set[Node] = set()
    reads: dict[Node, set[Node]] = {}
    for x in early:
        reads[x] = set().union(*(reads[source] for source in x.all_input_nodes)) if recomputable(x) else {x}
        if viewed(x) is None and (
            len(reads[x]) > _MAX_SOURCES or sum(_bytes(y) >= _bytes(x) // 2 for y in reads[x]) > _MAX_READS
        ):
            found.add(x)
            reads[x] = {x}
    return found


def _bytes(x: Node) -> int:
    """The size of a value in bytes; with symbolic sizes, for the sizes of the example inputs."""
    val = x.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return 0
    count = val.numel()
    return (count.node.hint if isinstance(count, torch.SymInt) else count) * val.element_size()


def _forward(joint: JointGraph, plan: _Plan, kept: list[Node]) -> torch.fx.GraphModule:
    written = [(plan.inputs[i], x) for i, x in zip(joint.writes, plan.written) if x is not plan.inputs[i]]
    effects = [x for x in plan.graph.nodes if (is_random(x.target) or _only_raises(x)) and x not in plan.late]
    effects += [x for x in plan.graph.nodes if communicates(x) and not x.meta.get("backward")]
    wanted = ancestors([*plan.returned, *(x for _, x in written), *kept, *effects])
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in plan.graph.nodes:
        if node in plan.position or (node in wanted and node.op != "output"):
            copies[node] = copied(graph, node, copies.__getitem__)
    for target, value in written:
        call(graph, aten.copy_.default, copies[target], copies[value])
    graph.output([copies[x] for x in (*plan.returned, *kept)])
    return _LazyGraphModule(joint.graph, graph)


def _backward(joint: JointGraph, plan: _Plan, saved: list[Node], tangents: list[Node]) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in (*saved, *tangents):
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in plan.graph.nodes:  # a value is recomputed right before its first use, so that it does not live longer
        if node in plan.needed and node in plan.late:
            _emit(graph, node, copies)
        elif node in plan.late and _only_raises(node) and all(x in copies for x in node.all_input_nodes):
            _emit(graph, node, copies)
    gradients = []
    for x in plan.gradients:
        _emit(graph, x, copies)
        # memory of the forward must not become the memory of a .grad
        gradients.append(copies[x] if x in plan.late else call(graph, aten.clone.default, copies[x]))
    graph.output(gradients)
    return _LazyGraphModule(joint.graph, graph)


def communicates(node: Node) -> bool:
    """Whether a node is a collective, or waits for one. It runs even if nothing uses its result, because other
    processes take part in it."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "_c10d_functional"


def _only_raises(node: Node) -> bool:
    """Whether a node is a check: it returns nothing and only raises an exception."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    return not target._schema.returns and node.is_impure()


def _emit(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> None:
    stack = [node]
    while stack:
        missing = [x for x in stack[-1].all_input_nodes if x not in copies]
        if stack[-1] in copies or not missing:
            last = stack.pop()
            if last not in copies:
                copies[last] = copied(graph, last, copies.__getitem__)
        else:
            stack.extend(missing)
