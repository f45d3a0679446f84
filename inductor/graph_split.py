"""Splits a graph at operators that cannot be compiled ahead of time, and compiles the subgraphs between them.

A graph is split at:
- operators whose results have data-dependent sizes, and reads of numbers from tensors (`item`, `tolist`);
- control flow on tensors (`cond`, `while_loop`, `scan`), and entering or leaving inference mode;
- calls that must run in order: settings of the process, and whatever draws from, reads or writes a generator that the
  program holds;
- tensors created with `requires_grad=True`;
- operators of other libraries that write to their arguments, or that have no autograd kernel and take a tensor that
  requires a gradient: autograd records what their kernels do;
- operators on sparse, nested or quantized tensors, and operators with a sparse gradient.

Three more kinds are found only when the graph is traced: writes to inputs that autograd records, in-place changes of an
input's size, strides or `requires_grad`, and tensors in the place of a number (`torch.full(sizes, x)`), of which torch
reads the number. Each subgraph is compiled at its first call, as are
branches and loop bodies. A small outer graph calls the subgraphs and runs the operators between them with ATen.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .aot.functionalize import RunsBetween, attributes_of, mutable
from .dynamic.dispatch import is_symbolic
from .eager.higher_order import RUNNERS
from .errors import Unsupported
from .fx_utils.arguments import output_of
from .fx_utils.writes import writes_first
from .modes import AS_RECORDED, ENTER_AUTOCAST, ENTER_DUAL, EXIT_AUTOCAST, EXIT_DUAL, SET_GRAD, graph_module
from .process.compile_lock import make_once

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
_MODES = {SET_GRAD, ENTER_AUTOCAST, EXIT_AUTOCAST, *AS_RECORDED}
_READS = {"item", "tolist"}
_SIZES = {"size", "numel", "stride", "dim", "storage_offset"}
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (*_SYMBOLIC, int, float)
_MAX_CUTS = 16  # a graph is split at no more writes that autograd records
# For functions that can have a sparse gradient: position and name of the argument that asks for it.
_aten = torch.ops.aten
_EMBEDDING, _EMBEDDING_BAG, _GATHER = (4, "sparse"), (5, "sparse"), (3, "sparse_grad")
_SPARSE: dict[Any, tuple[int, str]] = {
    torch.nn.functional.embedding: (6, "sparse"), torch.nn.functional.embedding_bag: (7, "sparse"),
    **dict.fromkeys((torch.embedding, _aten.embedding, _aten.embedding.default), _EMBEDDING),
    **dict.fromkeys((torch.embedding_bag, _aten.embedding_bag, _aten.embedding_bag.default), _EMBEDDING_BAG),
    **dict.fromkeys((torch.gather, torch.Tensor.gather, "gather", _aten.gather, _aten.gather.default), _GATHER),
}  # fmt: skip


def needs_split(gm: fx.GraphModule) -> bool:
    """Whether an operator must run outside of compiled subgraphs, or only a part records gradients."""
    return first_cut(gm) is not None or _enables_grad(gm)


def first_cut(gm: fx.GraphModule) -> fx.Node | None:
    """The first operator that must run outside of compiled subgraphs."""
    recording = _Recording(gm)
    return next((node for node in gm.graph.nodes if _cuts(node, recording)), None)


def _enables_grad(gm: fx.GraphModule) -> bool:
    """Whether the graph, called with gradients disabled, enables them. In inference mode nothing is recorded."""
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return False
    return any(node.target is SET_GRAD and node.args == (True,) for node in gm.graph.nodes)


class _Recording:
    """Whether autograd may record anything while a graph runs. Found out when it is first asked."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm

    @functools.cached_property
    def possible(self) -> bool:
        if not torch.is_grad_enabled() and not _enables_grad(self.gm):
            return False
        values = map(value_of, self.gm.graph.nodes)
        given = (x for _, x in attributes_of(self.gm))
        return any(isinstance(x, torch.Tensor) and x.requires_grad for x in (*values, *given))


def _cuts(node: fx.Node, recording: _Recording) -> bool:
    if node.op == "call_method" and node.target in _READS:
        return True
    if node.op == "call_function" and (node.target in RUNNERS or node.target in AS_RECORDED or _in_order(node)):
        return True
    if node.kwargs.get("requires_grad") is True:  # creates a leaf, which must be an input of the subgraphs after it
        return True
    if node.op.startswith("call") and any(map(_is_special, (node, *node.all_input_nodes))):
        return True
    if _has_sparse_gradient(node) or _resizes_observers(node):
        return True
    if _writes_as_custom(node, recording) or _recorded_inside(node, recording):
        return True
    if any(isinstance(value_of(arg), torch.Generator) for arg in node.all_input_nodes) and node.op != "output":
        return True
    return node.op.startswith("call") and bool(_symbols(node) - _symbols(*node.all_input_nodes))


def _in_order(node: fx.Node) -> bool:
    """Whether a node must run in order: it may raise, and everything before it must have happened by then."""
    return getattr(node.target, "in_order", False)


def _is_function(node: fx.Node) -> bool:
    """Whether a node's value is a function that another node returned beside tensors."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and getattr(source.target, "gives_function", False) and value_of(node) is None


def _may_wait(node: fx.Node) -> bool:
    """Whether a node that must run in order may run after those that follow, up to the next that must."""
    return getattr(node.target, "may_wait", False) and not node.users


def _is_special(node: fx.Node) -> bool:
    """Whether a node's value is not a strided tensor: sparse, nested, quantized, or in oneDNN's own layout."""
    value = value_of(node)
    return isinstance(value, torch.Tensor) and (
        value.layout != torch.strided or value.is_nested or value.is_quantized
    )


def _resizes_observers(node: fx.Node) -> bool:
    """Whether a node is an observer of channels in its first call, which resizes empty buffers; its fake tensors do not
    say so."""
    if node.op != "call_function" or node.target is not torch.fused_moving_avg_obs_fake_quant:
        return False
    lowest = node.args[3] if len(node.args) > 3 else node.kwargs.get("running_min")
    value = value_of(lowest) if isinstance(lowest, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.numel() == 0


def _has_sparse_gradient(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or node.target not in _SPARSE:
        return False
    place, name = _SPARSE[node.target]
    return bool(node.args[place] if len(node.args) > place else node.kwargs.get(name))


def _writes_as_custom(node: fx.Node, recording: _Recording) -> bool:
    """Whether a node is an operator of another library that writes to arguments; these have no functional form.

    False if gradients are recorded and an argument requires one or is a view. A subgraph that returns a view of a
    tensor it creates does not share the version counter of the view's base, where autograd looks for writes.
    """
    if not any(op._schema.is_mutable for op in _library_overloads(node.target)):
        return False
    given = [x for x in map(value_of, node.all_input_nodes) if isinstance(x, torch.Tensor)]
    return not any(x.requires_grad or x._is_view() for x in given) or not recording.possible


def _recorded_inside(node: fx.Node, recording: _Recording) -> bool:
    """Whether a node is an operator of another library without an autograd kernel, for which autograd records the
    operators that its kernel calls; a graph traced on fake tensors shows only what its fake kernel does."""
    if not any(map(_lacks_autograd, _library_overloads(node.target))):
        return False
    given = [x for x in map(value_of, node.all_input_nodes) if isinstance(x, torch.Tensor)]
    return any(x.requires_grad for x in given) and recording.possible


def _library_overloads(target: Any) -> list[torch._ops.OpOverload]:
    """The overloads that a call of `target` may choose; none if it is not an operator, or one of ATen or prims."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    else:
        overloads = [target] if isinstance(target, torch._ops.OpOverload) else []
    return [each for each in overloads if each.namespace not in ("aten", "prims")]


_AUTOGRAD_KERNELS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def _lacks_autograd(op: torch._ops.OpOverload) -> bool:
    return not any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in _AUTOGRAD_KERNELS)


def _symbols(*nodes: fx.Node) -> set[Any]:
    """The unbacked (data-dependent) symbols in the values of nodes."""
    found: set[Any] = set()
    for node in nodes:
        value = value_of(node)
        if value is None:  # a tuple: use the items taken out of it
            found |= _symbols(*(user for user in node.users if user.target is operator.getitem))
        symbolic = [n for n in value.shape if not isinstance(n, int)] if isinstance(value, torch.Tensor) else [value]
        for number in symbolic:
            if isinstance(number, _SYMBOLIC):
                found |= _unbacked(number)
    return found


def _unbacked(number: Any) -> set[Any]:
    """The unbacked symbols in the expression that the operator returned. Later operators, in the graph or not, may have
    specialized such a symbol to a number, so `expr` would not show it."""
    # imported here because it imports sympy
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    kinds = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
    return {s for s in number.node._expr.free_symbols if symbol_is_type(s, kinds)}


def _differentiated(gm: fx.GraphModule, ends: Sequence[fx.Node]) -> set[fx.Node]:
    """Nodes after which a subgraph has to end: tensors with respect to which `torch.autograd.grad` or the caller
    (`ends`) differentiates, and writes to them. Autograd sees a subgraph as one function, so whatever depends on such a
    tensor must be in another subgraph."""
    found: set[fx.Node] = set(ends)
    for node in gm.graph.nodes:
        if node.target is torch.autograd.grad:
            inputs = node.args[1] if len(node.args) > 1 else node.kwargs["inputs"]
            fx.map_arg(inputs, found.add)
        elif getattr(node.target, "runs_backward", False):
            found |= _spared(node)
    return found | {user for node in found for user in node.users if _writes(user, node)}


def _spared(backward: fx.Node) -> set[fx.Node]:
    """Tensors computed before a backward pass and used after it that the pass does not reach: it frees what the other
    tensors of a subgraph have saved, too."""
    reached: set[fx.Node] = set()
    stack = list(backward.all_input_nodes)
    while stack:
        node = stack.pop()
        value = value_of(node)
        if node not in reached and (value is None or isinstance(value, torch.Tensor) and value.requires_grad):
            reached.add(node)
            stack += node.all_input_nodes
    found: set[fx.Node] = set()
    for node in backward.graph.nodes:
        if node is backward:
            break
        value = value_of(node)
        if node not in reached and isinstance(value, torch.Tensor) and value.requires_grad:
            if node.op != "placeholder" and any(user > backward for user in node.users):
                found.add(node)
    return found


def _writes(node: fx.Node, tensor: fx.Node) -> bool:
    """Whether a node writes to `tensor`, its first argument."""
    return bool(node.args) and node.args[0] is tensor and writes_first(node)


def value_of(node: fx.Node) -> Any:
    """The value of a node as the capture recorded it: a fake tensor or a number."""
    return node.meta.get("val", node.meta.get("example_value"))


class Subgraph(torch.nn.Module):
    """A graph compiled at its first call, and again for inputs that differ in what no symbol describes."""

    gm: fx.GraphModule
    compile_graph: Compile

    def __init__(self, gm: fx.GraphModule, compile_graph: Compile) -> None:
        super().__init__()
        self.calls: dict[Any, Callable[..., Any]] = {}
        self.__dict__.update(gm=gm, compile_graph=compile_graph)  # bypasses __setattr__: the graph is not a submodule
        self.values = [value_of(node) for node in gm.graph.find_nodes(op="placeholder")]
        self.symbolic = is_symbolic(self.values)
        # a compiled subgraph returns plain memory where ATen returns a tensor with its conjugate or negative bit set
        tensors = [(i, x) for i, x in enumerate(self.values) if isinstance(x, torch.Tensor)]
        self.bits = [i for i, x in tensors if x.is_conj() or x.is_neg()]
        self.assumed = [(i, d, n) for i, x in tensors for d, n in _assumed_sizes(x)]

    def __call__(self, *args: Any) -> Any:  # skips the hooks of nn.Module, of which there are none
        if self.assumed and any(args[i].shape[d] != n for i, d, n in self.assumed):
            return self.gm(*args)  # with ATen, which raises the right error
        if self.symbolic:
            key: Any = tuple(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        else:
            key = tuple((x.requires_grad, x.shape, x.stride()) for x in args)
        if self.bits:
            key = key, *((args[i].is_conj(), args[i].is_neg()) for i in self.bits)
        call = self.calls.get(key)
        if call is None:
            call = make_once(id(self), lambda: self.calls.get(key), lambda: self._compile(key, args))
        return call(*args)

    def _compile(self, key: Any, args: Sequence[Any]) -> Callable[..., Any]:
        call = self.calls[key] = self.compile_graph(self.gm, self._examples(args))
        return call

    def _examples(self, args: Sequence[Any]) -> list[Any]:
        """The inputs to compile for: these, or the capture's symbolic values if sizes or numbers vary."""
        if not self.symbolic:
            return list(args)
        return [known if isinstance(known, _SYMBOLIC) else arg if not is_symbolic([known]) else _like(known, arg)
                for known, arg in zip(self.values, args)]  # fmt: skip


def _assumed_sizes(x: torch.Tensor) -> list[tuple[int, int]]:
    """The dimensions whose size depends on data but was specialized to a number by an operator that the capture traced,
    each with that number."""
    shape: Sequence[Any] = x.shape
    sizes = [(d, n.node) for d, n in enumerate(shape) if isinstance(n, torch.SymInt)]
    return [(d, int(node.expr)) for d, node in sizes if node.expr.is_number and not node._expr.is_number]  # type: ignore[attr-defined, unused-ignore]


def _like(known: Any, arg: Any) -> Any:
    """The fake tensor that the capture recorded, with `requires_grad` of the real one."""
    if isinstance(known, torch.Tensor) and known.requires_grad != arg.requires_grad:
        return known.detach().requires_grad_(arg.requires_grad)
    return arg if known is None else known


class _Cutter:
    """Builds the outer graph, which calls the subgraphs. `outside` maps nodes of `gm` to nodes of it."""

    def __init__(
        self, gm: fx.GraphModule, compile_graph: Compile, apart: frozenset[str], ends: Sequence[fx.Node] = ()
    ) -> None:
        self.gm, self.compile_graph, self.apart = gm, compile_graph, apart
        self.root = torch.nn.Module()
        self.graph = fx.Graph()
        self.outside: dict[fx.Node, fx.Node] = {}
        self.open: dict[fx.Node, None] = {}
        self.waiting: list[fx.Node] = []
        self.pieces = 0
        self.dual_levels = 0  # levels of forward-mode AD that the nodes so far have entered and not left
        self.differentiated = _differentiated(gm, ends)
        self.recording = _Recording(gm)

    def run(self) -> fx.GraphModule:
        """The outer graph: nodes that run with ATen are copied to it, the others are collected into subgraphs."""
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.outside[node] = self.graph.node_copy(node)
            elif node.op == "get_attr":
                continue  # copied when it is used
            elif node.op == "output":
                self._close()
                self._copy(node)
            elif _may_wait(node) and not self.dual_levels:
                self.waiting.append(node)
            elif self._runs_outside(node) or self.dual_levels:
                self.dual_levels += (node.target is ENTER_DUAL) - (node.target is EXIT_DUAL)
                any_time = self._is_number(node) and not _in_order(node)
                if not any_time or any(arg in self.open for arg in node.all_input_nodes):
                    self._close()
                self._copy(node)
            else:
                self.open[node] = None
                if node in self.differentiated:
                    self._close()
        return graph_module(self.root, self.graph, getattr(self.gm, "settings", ()))

    def _runs_outside(self, node: fx.Node) -> bool:
        """Whether a node runs in the outer graph instead of a compiled subgraph."""
        if node.name in self.apart:
            return True
        if _cuts(node, self.recording) or self._is_number(node):
            return True
        if node.target in _MODES or node.target is torch.autograd.grad:
            return True
        if getattr(node.target, "gives_function", False) or any(map(_is_function, node.all_input_nodes)):
            return True
        source = node.args[0] if node.target is operator.getitem else None
        return isinstance(source, fx.Node) and source in self.outside and not isinstance(value_of(source), torch.Tensor)

    def _is_number(self, node: fx.Node) -> bool:
        """Whether a node computes a number or checks one."""
        if isinstance(value_of(node), _NUMBERS) or (node.op == "call_method" and node.target in _SIZES):
            return True
        inputs = node.all_input_nodes
        return value_of(node) is None and bool(inputs) and all(isinstance(value_of(arg), _NUMBERS) for arg in inputs)

    def _close(self) -> None:
        """Make a subgraph of the open nodes and call it in the outer graph, then the functions that have waited."""
        body, self.open = list(self.open), {}
        if body:
            self._make_subgraph(body)
        waiting, self.waiting = self.waiting, []
        for node in waiting:
            self._copy(node)

    def _make_subgraph(self, body: Sequence[fx.Node]) -> None:
        inside = set(body)
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        given: list[fx.Node] = []
        for node in body:
            for arg in node.all_input_nodes:
                if arg not in inside and arg not in env and arg.op != "get_attr":
                    env[arg] = graph.placeholder(arg.name)
                    env[arg].meta = dict(arg.meta)
                    given.append(arg)
        for node in body:
            for arg in node.all_input_nodes:
                if arg.op == "get_attr" and arg not in env:
                    env[arg] = graph.node_copy(arg)
            env[node] = graph.node_copy(node, env.__getitem__)
        results = [node for node in body if any(user not in inside for user in node.users)]
        graph.output(tuple(env[node] for node in results))
        name = f"piece_{self.pieces}"
        self.pieces += 1
        setattr(self.root, name, Subgraph(fx.GraphModule(self.gm, graph), self.compile_graph))
        call = self.graph.call_module(name, tuple(self.outside[node] for node in given))
        for index, node in enumerate(results):
            self.outside[node] = self.graph.call_function(operator.getitem, (call, index))

    def _copy(self, node: fx.Node) -> None:
        for arg in node.all_input_nodes:
            if arg.op == "get_attr" and arg not in self.outside:
                self.outside[arg] = self._attribute(arg)
        copied = self.outside[node] = self.graph.node_copy(node, self.outside.__getitem__)
        if node.op == "call_function":
            called: Any = node.target
            copied.target = RUNNERS.get(called) or AS_RECORDED.get(called, called)

    def _attribute(self, node: fx.Node) -> fx.Node:
        """Copy a `get_attr` node: a tensor, or a branch, which becomes a subgraph."""
        name = str(node.target)
        value: Any = self.gm
        for part in name.split("."):
            value = getattr(value, part)
        if isinstance(value, fx.GraphModule):
            value = Subgraph(value, self.compile_graph)
        flat = name.replace(".", "_")
        if not hasattr(self.root, flat):
            setattr(self.root, flat, value)
        return self.graph.get_attr(flat)


def split_graph(gm: fx.GraphModule, compile_graph: Compile, apart: frozenset[str] = frozenset()) -> Callable[..., Any]:
    """A callable equivalent to `gm`; `compile_graph(subgraph, example_inputs)` compiles the subgraphs. `apart`: names
    of additional nodes that run outside of subgraphs."""
    return _Cutter(gm, compile_graph, apart).run().forward


def cut_around(gm: fx.GraphModule, compile_graph: Compile, found: RunsBetween) -> Callable[..., Any]:
    """Split a graph at nodes that have to run in eager: writes to its inputs that autograd records, so that later
    computations use the written input, for autograd too, and operators that read a number from a tensor. Unsupported if
    there are more than `_MAX_CUTS`, or if one is not a node of the graph itself."""
    if len(found.nodes) > _MAX_CUTS:
        raise Unsupported(f"more than {_MAX_CUTS} operators: {found}")
    if not found.nodes <= {node.name for node in gm.graph.nodes}:
        raise Unsupported(str(found))
    return split_graph(gm, compile_graph, found.nodes)


def cut_after(
    gm: fx.GraphModule, compile_graph: Compile, results: Sequence[int], count: int
) -> Callable[..., Any] | None:
    """Split a graph after the flat results with the numbers `results`, so that autograd can give gradients with respect
    to them although the graph computes other results from them. `count`: the number of flat results. None if the
    graph's output has another number of leaves."""
    leaves = pytree.tree_leaves(mutable(output_of(gm.graph).args[0]))
    if len(leaves) != count:
        return None
    return _Cutter(gm, compile_graph, frozenset(), [leaves[i] for i in results]).run().forward
