"""Empty tensors that are created to receive a result: `out = torch.empty(0); torch.add(a, b, out=out)`, and
`torch.empty(0).resize_(n)`.

Eager resizes such a tensor. If the graph created it, nothing else has seen it without elements, so it is replaced by a
tensor of the final size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..protocol.base import Var
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .overrides import leaves_of
from .tensor import TensorVar, tensor_and_args


def is_unused(tx: Tracer, tensor: Var | None) -> bool:
    """Whether a Var is a tensor without elements that the graph created and no operator has used."""
    if not isinstance(tensor, TensorVar) or tx.graph.stack.is_nested or not tensor.is_replaceable():
        return False
    fake = tensor.fake
    plain = fake.layout is torch.strided and not fake.requires_grad and not fake._is_view() and not tensor.node.users
    return plain and tuple(fake.shape) == (0,)


def fill(tx: Tracer, function: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """`function(*args, **kwargs)` with an unused empty tensor as `out`; None for any other call."""
    out = kwargs.get("out")
    if not is_unused(tx, out) or any(leaf is out for leaf in leaves_of((*args, *_others(kwargs).values()))):
        return None
    assert isinstance(out, TensorVar)
    if torch.is_autocast_enabled(out.fake.device.type):
        return None
    result = tx.graph.call(function, args, _others(kwargs))
    if not isinstance(result, TensorVar) or result.node is out.node:
        return tx.graph_break("unsupported-torch-op", f"{function.__name__} of an empty out tensor")
    found = result.fake
    if (found.dtype, found.device) != (out.fake.dtype, out.fake.device) or found.requires_grad or found._is_view():
        return tx.graph_break("exception-in-traced-code", f"{function.__name__} converts its result to an out tensor")
    out.node, out.fake = result.node, result.fake
    return out


def _others(kwargs: Mapping[str, Var]) -> dict[str, Var]:
    return {name: value for name, value in kwargs.items() if name != "out"}


def _resized(name: str) -> Handler:
    """The model of `tensor.resize_(sizes)` or `tensor.resize_as_(other)`."""

    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        tensor, sizes = tensor_and_args(args)
        fits = is_unused(tx, tensor) and bool(sizes) and not kwargs
        if name == "resize_as_" and fits:
            fits = len(sizes) == 1 and isinstance(sizes[0], TensorVar) and sizes[0].fake.is_contiguous()
            sizes = [sizes[0].call_method(tx, "size", [], {})] if fits else sizes
        if not fits:
            return tx.graph_break("unsupported-object", f".{name}() changes what kind of tensor {tensor.describe()} is")
        new = tx.graph.call_method("new_empty", [tensor, *sizes], {})
        assert isinstance(new, TensorVar)
        tensor.node, tensor.fake = new.node, new.fake
        return tensor

    return run


for _name in ("resize_", "resize_as_"):
    register(torch.Tensor, method=_name)(_resized(_name))
