"""Traces forward and backward of a graph on traceable wrapper subclasses into one joint ATen graph on inner tensors.

Autograd runs on the instances themselves, as in eager, and so decides which inputs have a gradient and of which class
it is. Both passes run through `__torch_dispatch__` while they are traced. The trace is then functionalized like any
other graph and can be partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from ..aot.calls import call
from ..aot.functionalize import NotFunctional, storage_of, to_aten
from ..aot.joint import JointGraph
from ..aot.memory import ancestors, is_random, roots
from ..aot.results import dense
from ..fx_utils.arguments import node_at, output_of, results_of
from ..fx_utils.dead_code import remove_unused
from .functionalize import NodeRun, Part, Result, check_inputs, fake_trace, taken_apart, traced
from .wrapper_tensors import Form, built, flattening, is_wrapper, tangent_like

_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
_TAG, _BACKWARD = "partitioner_tag", "is_backward"  # a key of node.meta that a second trace keeps
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)


class NoGradients(NotFunctional):
    """No result of the graph requires a gradient."""


@dataclass(frozen=True)
class Tangent:
    """The gradient of result `leaf`, with its form; `layouts`: its plain tensors as the backward expects them."""

    leaf: int
    form: Form | None
    layouts: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class InnerGradient:
    """The gradient of argument number `place`, which depends on the tangents with these numbers."""

    place: int
    form: Form | None
    tangents: frozenset[int]


@dataclass(frozen=True)
class InnerJoint:
    """`joint.graph(*flat inputs, *attributes, *flat tangents)` returns the flat results and the flat gradients.
    `forms`, `results` and `structure`: as in `InnerGraph`."""

    joint: JointGraph
    forms: tuple[Form | None, ...]
    results: tuple[Result, ...]
    structure: pytree.TreeSpec
    tangents: tuple[Tangent, ...]
    gradients: tuple[InnerGradient, ...]


@dataclass(frozen=True)
class State:
    """Whether an argument requires a gradient, and whether it is a leaf."""

    requires_grad: bool
    is_leaf: bool

    @staticmethod
    def of(x: Any) -> State:
        return State(x.requires_grad, x.is_leaf) if isinstance(x, torch.Tensor) else State(False, True)


def to_inner_joint(
    gm: torch.fx.GraphModule, forms: Sequence[Form | None], fakes: Sequence[Any], mode: Any,
    states: Sequence[State], decompositions: Mapping[Any, Callable[..., Any]],
) -> InnerJoint:
    """Trace `gm` and its gradients on instances of these forms around the fake tensors `fakes` of this mode.
    NotFunctional if the graph cannot be compiled."""
    forward = _Forward(gm, forms, states)
    tangents = _tangents(forward, fakes, mode)
    table = {op: fn for op, fn in decompositions.items() if not is_random(op)}
    layouts = [x for tangent in tangents for x in tangent.layouts]
    trace = _Joint(forward, tangents, len(fakes))
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        graph = traced(trace, [*fakes, *layouts], mode, gm)
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.name not in trace.early:
            node.meta[_TAG] = _BACKWARD
    with fake_trace(mode):
        aten = to_aten(graph, [*fakes, *layouts], table, mode if mode.shape_env is not None else None)
    writes = _writes_apart(aten.graph, aten.mutated, len(fakes))
    parameters = [state.is_leaf and state.requires_grad or form is not None for state, form in zip(states, forms)]
    permanent = [stays for stays, form in zip(parameters, forms) for _ in range(1 if form is None else form.count())]
    count = trace.count
    _arrange(aten.graph, len(fakes), len(layouts), count, writes)
    joint = JointGraph(
        graph=aten.graph, attributes=aten.attributes, names={},
        permanent=(*permanent, *(True for _ in aten.attributes)), tangents=tuple(layouts), writes=tuple(writes),
        conjugated=frozenset(), results=(), origins=tuple(None for _ in range(count)),
        structure=aten.structure,
    )  # fmt: skip
    gradients = _hanging(joint, trace.gradients, tangents)
    return InnerJoint(joint, tuple(forms), tuple(forward.results), forward.structure, tuple(tangents), gradients)


class _Forward:
    """Runs the captured graph on instances built from plain tensors, which require gradients if the arguments do."""

    structure: pytree.TreeSpec

    def __init__(self, gm: torch.fx.GraphModule, forms: Sequence[Form | None], states: Sequence[State]) -> None:
        self.gm, self.forms, self.states = gm, forms, states
        self.results: list[Result] = []

    def run(self, flat: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Run it; returns the arguments, the results, and the plain tensors in the results."""
        args = built(flat, self.forms)
        for i, state in enumerate(self.states):
            if state.requires_grad:
                if self.forms[i] is None:
                    args[i] = args[i].detach()
                args[i].requires_grad_()
        leaves, self.structure = pytree.tree_flatten(NodeRun(self.gm).run(*args))
        for x, state in zip(args, self.states):
            if isinstance(x, torch.Tensor) and x.requires_grad != state.requires_grad:
                raise NotFunctional("requires_grad of an input is changed")
        wrappers = [form for form in self.forms if form is not None]
        held = [x for x, form in zip(args, self.forms) if form is not None]
        given = iter(flat)
        inner = [x for form in self.forms for x in [next(given) for _ in range(1 if form is None else form.count())]
                 if form is not None]  # fmt: skip
        check_inputs(held, wrappers, inner)
        self.results, found = taken_apart(leaves, args)
        return args, leaves, [x.detach() for x in found]


def _tangents(forward: _Forward, fakes: Sequence[Any], mode: Any) -> list[Tangent]:
    """The tangents of the results: of the form that the result's class gives them if the inner tensors are floats, else
    plain."""
    with torch.enable_grad(), fake_trace(mode):
        args, leaves, found = forward.run(fakes)
        memories = [storage_of(x) for x in found]
        if len(set(memories)) < len(memories) or set(memories) & {storage_of(x) for x in fakes}:
            raise NotFunctional("a result of a graph on subclasses that records gradients is a view")
        tangents: list[Tangent] = []
        for k, (leaf, result) in enumerate(zip(leaves, forward.results)):
            if not isinstance(result, Part) or not leaf.requires_grad:
                continue
            if leaf.is_leaf:
                raise NotFunctional("a leaf tensor that requires grad is created")
            example = tangent_like(leaf) if is_wrapper(leaf) else leaf
            form = Form.of(example) if is_wrapper(example) else None
            parts = [example] if form is None else flattening([form])([example])
            if any(x.dtype not in _FLOATS for x in parts):
                form, parts = None, [leaf]
            tangents.append(Tangent(k, form, tuple(map(_placeholder_like, parts))))
    if not tangents:
        raise NoGradients("no result of a graph on subclasses requires a gradient")
    return tangents


def _placeholder_like(x: torch.Tensor) -> torch.Tensor:
    """A placeholder for the gradient of x, with the strides of x if x has no gaps."""
    if dense(x.shape, x.stride()):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


class _Joint:
    """The function that make_fx traces: flat inputs and flat tangents -> flat results and flat gradients.

    It sets `gradients` (for each gradient its place, its form, and its number of plain tensors), `count` (the number of
    flat results) and `early` (the names of the forward's nodes).
    """

    def __init__(self, forward: _Forward, tangents: Sequence[Tangent], inputs: int) -> None:
        self.forward, self.tangents, self.inputs = forward, tangents, inputs
        self.gradients: list[tuple[int, Form | None, int]] = []
        self.count = 0
        self.early: set[str] = set()

    def __call__(self, *values: Any) -> list[Any]:
        args, leaves, found = self.forward.run(values[: self.inputs])
        self.count = len(found)
        mode = get_proxy_mode()
        assert mode is not None
        self.early = {node.name for node in mode.tracer.graph.nodes}
        given = built(values[self.inputs :], [tangent.form for tangent in self.tangents])
        wanted = [i for i, state in enumerate(self.forward.states) if state.requires_grad]
        with torch._C._DisableAutocast():  # as in eager, where backward() is called outside of the region
            outputs = [leaves[tangent.leaf] for tangent in self.tangents]
            gradients = _gradients(outputs, [args[i] for i in wanted], given)
        for i, x in zip(wanted, gradients):
            if x is not None:
                form = Form.of(x) if is_wrapper(x) else None
                parts = [x] if form is None else flattening([form])([x])
                self.gradients.append((i, form, len(parts)))
                found += parts
        return found


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
    """`torch.autograd.grad`, without calling `__torch_function__` of the classes for this call, which the program does
    not make. The program's backward functions see `__torch_function__`, as in eager."""
    engine: Any = torch.autograd.Variable._execution_engine
    with torch._C._EnableTorchFunction():
        return engine.run_backward(
            tuple(outputs), tuple(tangents), False, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
        )


def _writes_apart(gm: torch.fx.GraphModule, mutated: Sequence[int], inputs: int) -> dict[int, torch.fx.Node]:
    """Remove the final writes from a graph; returns what the forward writes, by the number of the flat input."""
    places = list(gm.graph.find_nodes(op="placeholder"))
    found: dict[int, torch.fx.Node] = {}
    for node in list(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)):
        index = places.index(node_at(node))
        value = node_at(node, 1)
        if index >= inputs or value.meta.get(_TAG) == _BACKWARD:
            raise NotFunctional("a backward that writes to an input")
        found[index] = value
        node.replace_all_uses_with(value)
        gm.graph.erase_node(node)
    if sorted(found) != sorted(mutated):
        raise NotFunctional("a graph on subclasses that records gradients mutates an input other than by a last copy_")
    return found


def _arrange(
    gm: torch.fx.GraphModule, inputs: int, tangents: int, count: int, writes: Mapping[int, torch.fx.Node]
) -> None:
    """Move tangents behind the module's tensors, set `meta["backward"]` of each node, and arrange the results as the
    three lists of a joint graph."""
    graph = gm.graph
    places = list(graph.find_nodes(op="placeholder"))
    for node in places[inputs : inputs + tangents]:
        places[-1].append(node)
        places = [*places[:-1], places[-1]] if node is places[-1] else [*(x for x in places if x is not node), node]
    late = set(places[len(places) - tangents :])
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _SAME:
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)
            continue
        if any(x in late for x in node.all_input_nodes):
            late.add(node)
        node.meta["backward"] = node in late or node.meta.get(_TAG) == _BACKWARD
    results = list(results_of(graph))
    written = list(writes.values())
    if any(x.meta["backward"] for x in written):
        raise NotFunctional("a backward that writes to an input")
    _own_memory(graph, results, count)
    output_of(graph).args = ([results[:count], written, results[count:]],)
    remove_unused(graph)
    gm.recompile()


def _own_memory(graph: torch.fx.Graph, results: list[Any], count: int) -> None:
    """Copy results that are inputs, or that occur twice, in the traced graph only. On the instances, all results had
    memory of their own; otherwise the graph would have been split."""
    root = roots(graph)
    taken: set[torch.fx.Node] = set()
    for k, x in enumerate(results[:count]):
        if root[x] in taken or root[x].op != "call_function":
            with graph.inserting_before(output_of(graph)):
                results[k] = call(graph, torch.ops.aten.clone.default, x)
            results[k].meta["backward"] = False
        taken.add(root[x])


def _hanging(
    joint: JointGraph, found: Sequence[tuple[int, Form | None, int]], tangents: Sequence[Tangent]
) -> tuple[InnerGradient, ...]:
    """Which tangents each gradient depends on."""
    graph = joint.graph.graph
    places = list(graph.find_nodes(op="placeholder"))
    given = iter(places[len(places) - len(joint.tangents) :])
    owner = {next(given): k for k, tangent in enumerate(tangents) for _ in tangent.layouts}
    results: Any = output_of(graph).args[0]
    nodes = iter(results[2])
    gradients = []
    for place, form, count in found:
        sources = ancestors([next(nodes) for _ in range(count)])
        gradients.append(InnerGradient(place, form, frozenset(owner[x] for x in sources if x in owner)))
    return tuple(gradients)
