"""Models `tensor.backward()` and `torch.autograd.backward()` as one node of the graph, which a backend does not
compile.

The node runs the autograd engine on the real tensors, so that gradients are accumulated as in eager; it returns those
of the leaves that the pass reaches. All of these must be inputs or be created in the graph: the trace has to know which
`.grad` change. A pass that may run code of the program, such as hooks of modules or of leaves, breaks the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...core.in_order import PASSES, for_autograd, in_order
from ...core.source import AttrSource
from ..containers.sequence import SequenceVar, TupleVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..torch_objects.tensor import TensorVar
from ..torch_objects.tensor_subclass import TensorSubclassVar
from ..tracer import Tracer
from .module_hooks import make_backward_hook

_OF_TENSOR = ("tensor", "gradient", "retain_graph", "create_graph", "inputs")
_OF_TENSORS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
_OF_LEAF = ("_backward_hooks", "_post_accumulate_grad_hooks")


@for_autograd
@in_order
def backward(outputs: Any, gradients: Any, retain: Any, inputs: Any, leaves: Any, held: Any) -> tuple[Any, ...]:
    """Run a backward pass; returns the gradients of `leaves`. `held`: those that they have before, to which the pass
    adds."""
    PASSES.begun += 1
    torch.autograd.backward(outputs, gradients, retain_graph=retain, inputs=inputs)
    return tuple(leaf.grad for leaf in leaves)


backward.runs_backward = True  # type: ignore[attr-defined]


@register(torch.Tensor, method="backward")
def _of_tensor(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    given = dict(zip(_OF_TENSOR, args), **kwargs)
    if len(args) > len(_OF_TENSOR) or not set(given) <= set(_OF_TENSOR):
        return tx.graph_break("exception-in-traced-code", "backward() with other arguments")
    gradient = given.get("gradient", ConstVar(None))
    gradients = gradient if _is_none(gradient) else TupleVar([gradient])
    return _run(tx, TupleVar([given["tensor"]]), gradients, given)


@register(torch.autograd.backward)
def _of_tensors(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    given = dict(zip(_OF_TENSORS, args), **kwargs)
    fits = "tensors" in given and set(given) <= set(_OF_TENSORS) and _is_none(given.get("grad_variables"))
    if len(args) > len(_OF_TENSORS) or not fits:
        return tx.graph_break("unsupported-object", "torch.autograd.backward() with other arguments")
    tensors, gradients = given["tensors"], given.get("grad_tensors", ConstVar(None))
    if isinstance(tensors, TensorVar):
        tensors = TupleVar([tensors])
        gradients = gradients if _is_none(gradients) else TupleVar([gradients])
    return _run(tx, tensors, gradients, given)


def _is_none(value: Var | None) -> bool:
    return value is None or (isinstance(value, ConstVar) and not value.varies and value.constant() is None)


def _run(tx: Tracer, outputs: Var, gradients: Var, given: dict[str, Var]) -> Var:
    create, retain = given.get("create_graph", ConstVar(False)), given.get("retain_graph", ConstVar(None))
    inputs = given.get("inputs", ConstVar(None))
    if isinstance(inputs, TensorVar):
        inputs = TupleVar([inputs])
    known = all(isinstance(each, ConstVar) and not each.varies for each in (create, retain))
    if not known or create.constant() or not torch.is_grad_enabled():
        return _refuse(tx, "with create_graph, or with gradients disabled,")
    if tx.graph.stack.is_nested or tx.overrides.in_mode:
        return _refuse(tx, "in a nested graph or under a mode")
    if tx.graph.error_may_be_handled or tx.program_handles_errors:  # a frame that runs again adds gradients again
        return _refuse(tx, "in a graph whose errors the program handles")
    tensors = _plain_tensors(outputs)
    chosen = None if _is_none(inputs) else _plain_tensors(inputs)
    if not tensors or not (_is_none(gradients) or _plain_tensors(gradients)) or chosen == []:
        return _refuse(tx, "of something other than plain tensors")
    if not all(tensor.fake.requires_grad for tensor in tensors):
        return tx.graph_break("exception-in-traced-code", "backward() of a tensor that needs no gradient")
    if any(node.target is make_backward_hook for node in tx.graph.graph.nodes):  # they may change objects
        return _refuse(tx, "that runs backward hooks of modules")
    leaves = _leaves(tx, tensors) if chosen is None else chosen
    if not all(_accumulates_only(tx, leaf) for leaf in leaves):
        return _refuse(tx, "that reaches tensors with hooks, or that are not leaves")
    held = []
    for leaf in leaves:
        gradient = leaf.getattr_(tx, "grad")
        if isinstance(gradient, TensorVar):
            held.append(gradient)
        leaf.fake.grad = gradient.fake if isinstance(gradient, TensorVar) else None
    found = tx.graph.call(backward, [outputs, gradients, retain, inputs, TupleVar(leaves), TupleVar(held)], {})
    assert isinstance(found, SequenceVar)
    tx.graph.ran_backward = True
    for leaf, gradient in zip(leaves, found.items, strict=True):
        leaf.grad = gradient
        tx.rewritten[AttrSource(leaf.origin(), "grad")] = None
    return ConstVar(None)


def _refuse(tx: Tracer, what: str) -> Var:
    return tx.graph_break("unsupported-object", f"backward() {what}")


def _plain_tensors(value: Var) -> list[TensorVar]:
    """The items of a sequence of tensors that are not instances of subclasses; empty for anything else."""
    items = value.items if isinstance(value, SequenceVar) else []
    tensors = [each for each in items if isinstance(each, TensorVar) and not isinstance(each, TensorSubclassVar)]
    return tensors if len(tensors) == len(items) else []


def _leaves(tx: Tracer, outputs: Sequence[TensorVar]) -> list[TensorVar]:
    """The inputs that a backward pass of `outputs` reaches, in the order of the inputs. Breaks the graph if it reaches
    other leaves that existed before the graph."""
    reached = {id(leaf): leaf for leaf in _reached(outputs)}
    inputs = [tx.traced(original) for original in tx.graph.inputs.originals.values()]
    found = {id(var.fake): var for var in inputs if isinstance(var, TensorVar) and id(var.fake) in reached}
    created = {id(node.meta.get("val")) for node in tx.graph.graph.nodes if node.op != "placeholder"}
    if not reached.keys() <= found.keys() | created:
        _refuse(tx, "that reaches tensors which the graph does not use")
    return list(found.values())


def _reached(outputs: Sequence[TensorVar]) -> Iterator[torch.Tensor]:
    """The fake leaves that a backward pass reaches."""
    seen: set[Any] = set()
    stack: list[Any] = [output.fake.grad_fn or output.fake for output in outputs]
    while stack:
        each = stack.pop()
        if each in seen:
            continue
        seen.add(each)
        if isinstance(each, torch.Tensor):
            yield each
        elif (leaf := getattr(each, "variable", None)) is not None and not each.next_functions:
            yield leaf
        else:
            stack += [node for node, _ in each.next_functions if node is not None]


def _accumulates_only(tx: Tracer, leaf: TensorVar) -> bool:
    """Whether a backward pass only adds to the gradient of an input; guards that it has no hooks."""
    if leaf.source is None or isinstance(leaf, TensorSubclassVar) or not leaf.getattr_(tx, "is_leaf").constant():
        return False
    original = tx.graph.inputs.originals.get(leaf.source)
    if original is None or any(getattr(original, name) for name in _OF_LEAF):
        return False
    for name in _OF_LEAF:
        if getattr(original, name) is not None:
            tx.guard(AttrSource(leaf.source, name), "LEN", 0)
        else:
            tx.guard(AttrSource(leaf.source, name), "ID", None)
    return True
