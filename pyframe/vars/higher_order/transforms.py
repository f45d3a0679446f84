"""Models functions that wrap a function: `torch.func.vmap`, `grad` and `grad_and_value`, and activation checkpointing.

The first three become one graph node that applies the transform to a subgraph. A checkpointed function is traced
inline, because the compiler decides what is saved for the backward pass. `derivatives` has the other ways to
differentiate, from `vjp` and `jvp` to `torch.autograd.grad`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch._functorch import eager_transforms, vmap

from inductor.eager.transforms import GradAndValue, Vmapped
from inductor.overlap import memory_of

from ... import _C
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, SequenceVar, TupleVar
from ..numbers.symint import is_number
from ..objects.functions import FunctionVar
from ..objects.instances import InstanceVar
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar
from ..protocol.opaque import OpaqueVar
from ..registry import register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer
from .nested_graphs import Body, Restored, check_auxiliary, code_of, tensors_of


@register(vmap.vmap_impl, overridable=False)  # modes see what the function calls
def _vmap(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    fn, in_dims, out_dims, randomness, chunk, *operands = args
    try:
        dims, to, mode, size = (v.plain() for v in (in_dims, out_dims, randomness, chunk))
    except NotConstant:
        return tx.graph_break("unsupported-object", "torch.vmap with in_dims or out_dims that are not constants")
    if isinstance(dims, int):
        dims = (dims,) * len(operands)
    if not isinstance(dims, tuple) or len(dims) != len(operands):
        return tx.graph_break(
            "unsupported-object", "torch.vmap with in_dims that are not a tuple with one item per argument"
        )
    spread = _dims_of(tx, dims, TupleVar(operands))
    tensors = tensors_of(tx, TupleVar(operands), "arguments")[0]
    if not any(dim is not None for dim in spread):
        return tx.graph_break("unsupported-object", "torch.vmap without a batched argument")
    if not _fit(tensors, spread):
        return tx.graph_break("exception-in-traced-code", "torch.vmap with in_dims that the arguments do not have")
    with tx.graph.fake_mode:
        fakes = [t.fake.detach() if d is None else _one_of(t.fake.detach(), d) for t, d in zip(tensors, spread)]
    body = Body(tx, fn, operands, kwargs, fakes)  # keyword arguments are not batched
    every = (*spread, *[None] * len(body.lifted))
    if isinstance(body.result, TensorVar) and isinstance(to, tuple) and len(to) == 1:
        to = to[0]
    apply = Vmapped(body.gm, every, _dims_of(tx, to, body.result), mode, size)
    return body.node(tx, apply, "vmapped", body.restore)


def _fit(tensors: Sequence[TensorVar], dims: Sequence[int | None]) -> bool:
    """Whether each tensor has its dimension, and all known sizes of these dimensions are equal."""
    ranks = [(t.fake.shape, dim) for t, dim in zip(tensors, dims, strict=True) if dim is not None]
    if not all(-len(shape) <= dim < len(shape) for shape, dim in ranks):
        return False
    return len({shape[dim] for shape, dim in ranks if type(shape[dim]) is int}) <= 1


def _one_of(batch: torch.Tensor, dim: int) -> torch.Tensor:
    """One item of a batch, as the function sees it; the batch may be empty."""
    if batch.shape[dim] == 0:
        return batch.movedim(dim, 0).new_empty(batch.movedim(dim, 0).shape[1:])
    return batch.select(dim, 0)


def _dims_of(tx: Tracer, dims: Any, value: Var) -> list[int | None]:
    """The dimension for each tensor in `value`; `dims` is one for all, or has the structure of `value`."""
    if dims is None or type(dims) is int:
        return [dims] * len(tensors_of(tx, value, "arguments")[0])
    parts = value.items if isinstance(value, ListVar | TupleVar) else []
    if isinstance(dims, list | tuple) and not isinstance(value, DictVar) and len(dims) == len(parts):
        return [dim for each, item in zip(dims, parts, strict=True) for dim in _dims_of(tx, each, item)]
    if isinstance(dims, dict) and isinstance(value, DictVar) and dims.keys() == value.items.keys():
        return [dim for key, item in value.items.items() for dim in _dims_of(tx, dims[key], item)]
    return tx.graph_break(
        "exception-in-traced-code", "torch.vmap with in_dims or out_dims that do not match the arguments"
    )


@register(eager_transforms.grad_and_value_impl)
def _grad_and_value(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """Returns `(gradients, value)`, or `(gradients, (value, aux))`."""
    fn, argnums, has_aux, operands, named = (*args, *kwargs.values())
    items = operands.unpack(tx)
    numbers, aux = argnums.constant(), has_aux.truth(tx)
    wanted = (numbers,) if isinstance(numbers, int) else numbers
    if not isinstance(named, DictVar) or not all(-len(items) <= n < len(items) for n in wanted):
        return tx.graph_break("unsupported-object", "torch.func.grad of a call with other arguments")
    wanted = tuple(n % len(items) for n in wanted)
    fakes: list[Any] = []
    places: list[int] = []
    counts: list[tuple[int, Restored]] = []
    with tx.graph.fake_mode:
        for number, item in enumerate(items):
            tensors, restore = tensors_of(tx, item, "arguments")
            if number in wanted:
                places += range(len(fakes), len(fakes) + len(tensors))
            counts.append((len(tensors), restore))
            fakes += [t.fake.detach().requires_grad_(number in wanted and t.fake.is_floating_point()) for t in tensors]
    with_grad = torch.is_grad_enabled()
    body = Body(tx, fn, items, {str(name): value for name, value in named.items.items()}, fakes)
    loss = body.result.items[0] if aux and isinstance(body.result, SequenceVar) else body.result
    if not isinstance(loss, TensorVar) or loss.fake.dim() != 0 or not with_grad:
        return tx.graph_break(
            "exception-in-traced-code", "torch.func.grad of a function that does not return a 0-d tensor"
        )
    if aux:
        for rest in body.result.unpack(tx)[1:]:
            check_auxiliary(tx, rest)

    def output(found: Sequence[Var]) -> Var:
        gradients, taken = {}, 0
        for number in sorted(wanted):
            count, restore = counts[number]
            gradients[number] = restore(found[taken : taken + count])
            taken += count
        value = body.restore(found[taken:])
        chosen = gradients[wanted[0]] if isinstance(numbers, int) else TupleVar([gradients[n] for n in wanted])
        return TupleVar([chosen, value])

    return body.node(tx, GradAndValue(body.gm, places), "grad_and_value", output)


@register(eager_transforms.grad_impl)
def _grad(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    result = _grad_and_value(tx, args, kwargs)
    assert isinstance(result, TupleVar)
    gradients, value = result.items
    return TupleVar([gradients, value.unpack(tx)[1]]) if args[2].truth(tx) else gradients


# ---- functionalization ----
@register(code_of(eager_transforms.functionalize, "wrapped"))
def _functionalized(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """A call of the function that `torch.func.functionalize` returns: the same as a call of the original, except that
    results do not share memory as they do there if something is written, or views are replaced by copies."""
    closure, *args = args
    assert isinstance(closure, FunctionVar)
    content = {name: cell.content for name, cell in zip(closure.code.co_freevars, closure.cells(tx), strict=True)}
    function, keeps_views = content["func"], content["reapply_views"]
    assert function is not None and keeps_views is not None
    given = tensors_of(tx, TupleVar([*args, *kwargs.values()]), "arguments")[0]
    nodes = set(tx.graph.graph.nodes)
    result = tx.call(function, args, kwargs)
    found = tensors_of(tx, result, "result")[0]
    written = any(tx.graph.writes(node) for node in tx.graph.graph.nodes if node not in nodes)
    if written or not keeps_views.truth(tx):
        memory = [memory_of(tensor.fake) for tensor in found]
        if len(set(memory)) < len(memory) or not {memory_of(tensor.fake) for tensor in given}.isdisjoint(memory):
            return tx.graph_break("unsupported-object", "torch.func.functionalize with results that share memory")
    return result


# ---- checkpoints ----
@register(torch.utils.checkpoint.checkpoint)
def _checkpoint(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """Call the function directly: the compiler decides what is saved for the backward pass."""
    options = {name: kwargs.pop(name) for name in list(kwargs) if name in _CHECKPOINT_OPTIONS}
    reentrant = slots.constant_or(options.get("use_reentrant", ConstVar(None)), None)
    if reentrant is None:  # torch warns, or raises, and decides; it ends with a call of `reentrant_checkpoint`
        return tx.inline(inspect.unwrap(torch.utils.checkpoint.checkpoint), args, {**kwargs, **options})
    special = [name for name in ("context_fn", "debug") if name in options]
    # `debug` only adds to the message of an error in the recomputation, which does not take place
    if special and (reentrant is not False or special != ["debug"] and not _is_selective(tx, options["context_fn"])):
        tx.graph_break("unknown-c-function", f"torch.utils.checkpoint with this {' or '.join(special)}")
    if len(special) == 2 and slots.constant_or(options["debug"], True):
        tx.graph_break("unknown-c-function", "torch.utils.checkpoint with context_fn and debug")
    if reentrant is False or not torch.is_grad_enabled():
        return tx.call(args[0], args[1:], kwargs)
    return _reentrant(tx, args[0], args[1:], kwargs)


def reentrant_checkpoint(tx: Tracer, fn: Var, args: list[Var]) -> Var:
    """`CheckpointFunction.apply(fn, preserve_rng_state, *args)`."""
    return _reentrant(tx, fn, args, {}) if torch.is_grad_enabled() else tx.call(fn, args, {})


def _reentrant(tx: Tracer, fn: Var, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """A reentrant checkpoint, if a direct call of `fn` records the same gradients: an argument requires a gradient, all
    tensors that do are arguments of their own, and each result is computed from one."""
    why = "a reentrant torch.utils.checkpoint"
    direct = [arg for arg in args if isinstance(arg, TensorVar)]
    if kwargs or not any(arg.fake.requires_grad for arg in direct):
        tx.graph_break("unknown-c-function", f"{why} without a tensor argument that requires a gradient")
    if not all(isinstance(arg, TensorVar) or is_number(arg) or arg.is_constant() for arg in args):
        tx.graph_break("unknown-c-function", f"{why} with containers as arguments")
    result = tx.call(fn, args, kwargs)
    for each in result.items if isinstance(result, TupleVar) else [result]:
        is_input = any(each is arg for arg in direct)
        if not isinstance(each, TensorVar) or is_input or each.fake.requires_grad != _differentiable(each.fake):
            tx.graph_break("unknown-c-function", f"{why} with a result that does not depend on its arguments")
    return result


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_SELECTIVE = object()  # the result of create_selective_checkpoint_contexts while `_is_selective` calls a context_fn
_context_fns: list[Var] = []  # the context_fn that is being called; one thread at a time traces


def _is_selective(tx: Tracer, context_fn: Var) -> bool:
    """Whether `context_fn` changes no result: its contexts only select what eager saves for the backward pass, or do
    nothing."""
    _context_fns.append(context_fn)
    try:
        contexts = tx.call(context_fn, [], {})
    finally:
        _context_fns.pop()
    if isinstance(contexts, TupleVar) and len(contexts.items) == 2:
        return all(isinstance(each, InstanceVar) and each.cls is contextlib.nullcontext for each in contexts.items)
    return isinstance(contexts, OpaqueVar) and contexts.value is _SELECTIVE


@register(torch.utils.checkpoint.create_selective_checkpoint_contexts)
def _selective_contexts(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    if not _context_fns:
        return tx.graph_break("unknown-c-function", "create_selective_checkpoint_contexts outside of a checkpoint")
    return OpaqueVar(_SELECTIVE)


# torch.utils.checkpoint is not captured when it runs after a graph break: its function is called again in eager mode
# during the backward pass, and must save the same tensors as the first time.
_C.skip_code(inspect.unwrap(torch.utils.checkpoint.checkpoint).__code__, recursive=True)

_CHECKPOINT_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
register(vmap.lazy_load_decompositions)(lambda tx, args, kwargs: ConstVar(None))
