"""Runs a frame eagerly when its graph raises an exception that the program handles, so that the program's own handlers
see it as in eager mode; when a check of the graph fails, so that the program raises its exception itself; and when an
operator raises after the program changed objects, which happens after the graph otherwise, and so not at all.

Before that, what the graph may already have changed is restored: inputs that it writes and the CPU generator's state.
Some changes of inputs cannot be undone: changes of sizes, and writes that autograd has recorded. A frame with such a
graph is not compiled at all if one of its operators may raise depending on tensor elements.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inductor.aot.calls import python_kernels
from inductor.aot.trace_memo import arguments_key
from inductor.eager.flex_attention import with_dense_attention
from inductor.overlap import memory_of

from ..core.symbolic import hint
from ..graph_retry import Undo
from .constant_eval import changes
from .raising import may_raise, node_may_raise

_MODULES = ("torch", "_operator", "math", "builtins")
MAX_COPIED = 1 << 20  # bytes that a call may copy only because the graph has checks
MAX_COPIED_FOR_EFFECTS = 1 << 14  # or only because an operator may raise after objects were changed


class _Permanent(Exception):
    """The graph draws from a generator whose state is not restored."""


class CannotUndo(Exception):
    """The graph changes an input in a way that cannot be undone, and one of its operators may raise."""


class _Watch(TorchDispatchMode):
    """Records which of `storages` operators write to, whether they draw random numbers, whether they may raise
    depending on tensor elements, and whether they do nothing else (`contained`)."""

    def __init__(self, storages: set[int]) -> None:
        super().__init__()
        self.storages = storages
        self.written: set[int] = set()
        self.draws = self.may_raise = self.resizes = False
        self.contained = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = dict(zip((arg.name for arg in func._schema.arguments), args, strict=False)) | kwargs
        self.may_raise = self.may_raise or may_raise(func, args)
        result = func(*args, **kwargs)
        self.contained = self.contained and _is_contained(func, result)
        if torch.Tag.nondeterministic_seeded in func.tags:
            if given.get("generator") is not None or _devices(result) - {"cpu"}:
                raise _Permanent
            self.draws = True
        written = [given.get(arg.name) for arg in func._schema.arguments if arg.alias_info and arg.alias_info.is_write]
        if given.get("training", True):  # written in place, although no schema says so
            written += [given.get("running_mean"), given.get("running_var")]
        for each in written:
            self._note(func, each if isinstance(each, list | tuple) else [each])
        return result

    def _note(self, func: Any, written: Sequence[Any]) -> None:
        for each in written:
            if isinstance(each, torch.Tensor) and memory_of(each) in self.storages:
                if torch.Tag.inplace_view in func.tags:  # changes sizes and strides, not elements
                    self.resizes = True
                self.written.add(memory_of(each))


def _devices(result: Any) -> set[str]:
    return {each.device.type for each in tree_leaves(result) if isinstance(each, torch.Tensor)}


def _is_contained(func: Any, result: Any) -> bool:
    """Whether an operator, whatever the elements of its operands, does nothing but compute on the CPU, draw, or raise.

    Operators of libraries may print or communicate. If elements determine sizes, a wrong one could exhaust memory,
    except for the sizes that masks select. On other devices, an index out of range ends the process.
    """
    tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    sized = func is not torch.ops.aten.index.Tensor and any(tag in func.tags for tag in tags)
    return func.namespace in ("aten", "prims", "prim") and _devices(result) <= {"cpu"} and not sized


def undo_of(gm: fx.GraphModule, fake_mode: Any, checked: bool, handled: bool = False) -> Undo | None:
    """What must be restored before the frame of a graph runs eagerly. `checked`: as in Undo. `handled`: whether the
    program handles an exception that an operator may raise.

    None if the frame cannot run again, or if something would have to be restored but no operator may raise, so that the
    copies would not pay off; with `checked` also if they would be large, or if the operators must not run with data
    that a check rejects. Raises CannotUndo if the frame must not be compiled.
    """
    unusual = [node for node in gm.graph.nodes if not _is_plain(node)]
    if unusual:
        if handled and any(getattr(node.target, "for_autograd", False) for node in unusual):
            raise CannotUndo("what the graph does in program order cannot be undone if an operator raises")
        return None
    if not checked:
        if all(map(_only_computes, gm.graph.nodes)):
            return Undo()
        if all(_only_computes(node) or _at_most_draws(node) for node in gm.graph.nodes):
            return _undo_of_draws(gm.graph, fake_mode)
    dense = _with_symbolic_truths(with_dense_attention(gm))
    if any(isinstance(node.target, HigherOrderOperator) for node in dense.graph.nodes):
        if checked:
            return None  # a loop may not end with data that a check rejects
        raise CannotUndo("what a control flow operator changes is not known")
    inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    fakes = [_as_recorded(x, fake_mode) if isinstance(x, torch.Tensor) else x for x in inputs]
    records = [x.grad_fn if isinstance(x, torch.Tensor) else None for x in fakes]
    storages = [memory_of(x) if isinstance(x, torch.Tensor) else 0 for x in fakes]
    watch = _Watch(set(storages) - {0})
    watch.may_raise = any(map(_checks_numbers, gm.graph.nodes))
    try:
        with fake_mode, torch.set_grad_enabled(torch.is_grad_enabled()), python_kernels(fake_mode), watch:
            dense(*fakes)
    except _Permanent:
        return None
    recorded = any(x.grad_fn is not was for x, was in zip(fakes, records) if isinstance(x, torch.Tensor))
    if checked and not watch.contained:
        return None
    if watch.resizes or recorded:
        if watch.may_raise and not checked:
            raise CannotUndo("an input is changed in a way that cannot be undone if an operator raises")
        return None
    written = tuple(i for i, storage in enumerate(storages) if storage in watch.written)
    if (written or watch.draws) and not (checked or watch.may_raise):
        return None
    if not all(_is_copied(inputs[i]) for i in written):
        return None
    if checked and sum(_bytes(inputs[i]) for i in written) > MAX_COPIED:
        return None
    return Undo(written, watch.draws, checked)


def _with_symbolic_truths(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, or a copy in which a bool that is read from a tensor is converted to an int without knowing it."""
    if not any(node.target is int for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.find_nodes(op="call_function", target=int):
        node.target = _as_int
    return fx.GraphModule(gm, graph)


def _as_int(truth: Any) -> Any:
    return torch.sym_ite(truth, 1, 0) if isinstance(truth, torch.SymBool) else int(truth)


def _undo_of_draws(graph: fx.Graph, fake_mode: Any) -> Undo | None:
    """`undo_of` for a graph that writes nothing and is not `checked`. What an operator draws, and whether it may raise,
    depends on the metadata of its operands, so that one of several equal calls is run."""
    watch = _Watch(set())
    watch.may_raise = any(map(_checks_numbers, graph.nodes))
    known: set[Any] = set()
    try:
        with fake_mode, torch.set_grad_enabled(torch.is_grad_enabled()), python_kernels(fake_mode), watch:
            for node in graph.nodes:
                if node.op.startswith("call") and not (_checks_numbers(node) or _takes_item(node)):
                    _run_once(node, known)
    except _Permanent:
        return None
    return None if watch.draws and not watch.may_raise else Undo((), watch.draws)


def _run_once(node: fx.Node, known: set[Any]) -> None:
    """Run a call on the fake tensors of the trace, unless an equal one is in `known`, to which it is added."""
    if node.target is int:  # the truth of a bool that is not known
        return
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    with torch._C.DisableTorchFunction():
        described = arguments_key(args, kwargs)
    if described is not None:
        if (node.target, described) in known:
            return
        known.add((node.target, described))
    if isinstance(node.target, str):
        getattr(args[0], node.target)(*args[1:], **kwargs)
    else:
        node.target(*args, **kwargs)


def _takes_item(node: fx.Node) -> bool:
    """Whether a node takes an item of a result that is no tensor."""
    return node.target is operator.getitem and "val" not in node.all_input_nodes[0].meta


def undo_if_cheap(gm: fx.GraphModule, fake_mode: Any) -> Undo | None:
    """What must be restored before the frame of a graph runs eagerly, if one of its operators may raise and calls would
    copy little for that; None otherwise."""
    forward = _before_backward(gm)
    gm = forward or gm
    if not any(map(node_may_raise, gm.graph.nodes)):
        return None
    try:
        undo = undo_of(gm, fake_mode, checked=False)
    except CannotUndo:
        return None
    inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    if undo is None or sum(_bytes(inputs[i]) for i in undo.written) > MAX_COPIED_FOR_EFFECTS:
        return None
    return undo if forward is None else replace(undo, until_backward=True)


def _before_backward(gm: fx.GraphModule) -> fx.GraphModule | None:
    """The part of a graph before its first backward pass. None if there is no pass, or if something before it cannot be
    undone either, or switches a mode that the pass may need."""
    last = next((node for node in gm.graph.nodes if not _is_plain(node)), None)
    if last is None or not getattr(last.target, "runs_backward", False):
        return None
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node is last:
            break
        if getattr(node.target, "switches_mode", False):
            return None
        copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(())
    return fx.GraphModule(gm, part)


def _bytes(value: torch.Tensor) -> int:
    """The memory that the elements of a tensor take, with the sizes of the first call."""
    return math.prod(map(hint, value.shape)) * value.element_size()


def _as_recorded(x: torch.Tensor, fake_mode: Any) -> torch.Tensor:
    """A tensor to run the graph on in place of input `x`. It is not a leaf, because autograd does not record writes to
    leaves."""
    with fake_mode, torch.enable_grad():
        return x.detach().requires_grad_().clone() if x.requires_grad else x.detach()


def _is_copied(value: torch.Tensor) -> bool:
    """Whether copying the elements of a tensor captures all of its state that operators change."""
    return type(value) is FakeTensor and value.layout == torch.strided and not value.is_quantized


def _is_plain(node: fx.Node) -> bool:
    """Whether a node is an operator of torch or Python, or restores a mode that it switches."""
    if node.op != "call_function":
        return node.op in ("placeholder", "call_method", "output", "get_attr")
    target: Any = node.target
    if getattr(target, "switches_mode", False) or _checks_numbers(node):
        return True
    module: str = getattr(target, "__module__", None) or "builtins"
    return not getattr(target, "in_order", False) and module.split(".")[0] in _MODULES


def _checks_numbers(node: fx.Node) -> bool:
    """Whether a node raises for some numbers, and does nothing else."""
    return getattr(node.target, "checks_numbers", False)


def _at_most_draws(node: fx.Node) -> bool:
    """Whether a node is known to do nothing but compute and draw random numbers, from its target alone."""
    if node.op not in ("call_function", "call_method") or changes(node):
        return False
    return node.target in _DROPOUTS or node.target is F.scaled_dot_product_attention


def _only_computes(node: fx.Node) -> bool:
    """Whether a node is known to write nothing and to draw no random numbers, from its target alone."""
    if node.op in ("placeholder", "output") or _checks_numbers(node):
        return True
    if node.op not in ("call_function", "call_method") or changes(node):
        return False
    name = node.target if isinstance(node.target, str) else node.target.__name__
    if node.target in _DROPOUTS:
        return _argument(node, 2, _DROPOUTS[node.target]) is False and _argument(node, 3, "inplace") in (None, False)
    if node.target is torch._C._log_api_usage_once:
        return True
    if name == "scaled_dot_product_attention":
        probability = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return type(probability) is float and probability == 0.0
    return _is_pure(node.target)


# Functions that only return their first argument if the one of this name, the third, is False.
_DROPOUTS: dict[Any, str] = {
    torch.dropout: "train",
    torch.alpha_dropout: "train",
    torch.feature_dropout: "train",
    F.dropout: "training",
    F.alpha_dropout: "training",
    F.dropout1d: "training",
    F.dropout2d: "training",
    F.dropout3d: "training",
    F.feature_alpha_dropout: "training",
}


def _argument(node: fx.Node, position: int, name: str) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)


# Methods of tensors that are not named after the operator that they call.
_CONVERSIONS = frozenset("float double half bfloat16 int long short bool cpu size stride dim numel".split())


@functools.cache
def _is_pure(target: Any) -> bool:
    """Whether an operator draws no random numbers and has no arguments that it writes although no schema says so."""
    if target in _CONVERSIONS or target is torch.nn.functional.cross_entropy:  # of aten.cross_entropy_loss
        return True
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "_operator":
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    known = isinstance(target, types.BuiltinFunctionType | types.MethodDescriptorType | str)
    if isinstance(target, types.FunctionType) and target.__module__ == "torch.nn.functional":
        known = not name.startswith("fractional")  # these draw numbers and pass them to their operators
    packet = getattr(torch.ops.aten, name, None) if known else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return not any(
        torch.Tag.nondeterministic_seeded in each.tags or any(a.name == "running_mean" for a in each._schema.arguments)
        for each in overloads
    )
