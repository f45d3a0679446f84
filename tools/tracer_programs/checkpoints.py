"""Programs about checkpoints and constant results."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

from .programs import program, x


@program
def checkpoint_plain() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        return checkpoint(layer, a, use_reentrant=False).sin()

    return f, [(x(2, 4, grad=True),)], lambda: layer.weight.grad


@program
def checkpoint_reentrant() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        return checkpoint(layer, a, use_reentrant=True).sin()

    return f, [(x(2, 4, grad=True),)], lambda: layer.weight.grad


@program
def checkpoint_reentrant_without_gradients() -> Any:
    def f(a: Any) -> Any:
        return checkpoint(torch.sin, a, use_reentrant=True) * 2

    return f, [(x(2, 4),)]


@program
def checkpoint_with_debug() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        return checkpoint(layer, a, use_reentrant=False, debug=True).sin()

    return f, [(x(2, 4, grad=True),)]


@program
def checkpoint_with_contexts() -> Any:
    import contextlib

    layer = nn.Linear(4, 4)

    def contexts() -> Any:
        return contextlib.nullcontext(), contextlib.nullcontext()

    def f(a: Any) -> Any:
        return checkpoint(layer, a, use_reentrant=False, context_fn=contexts).sin()

    return f, [(x(2, 4, grad=True),)]


@program
def checkpoint_selective() -> Any:
    layer = nn.Linear(4, 4)
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])

    def f(a: Any) -> Any:
        return checkpoint(layer, a, use_reentrant=False, context_fn=contexts).sin()

    return f, [(x(2, 4, grad=True),)]


@program
def checkpoint_with_keywords_and_dropout() -> Any:
    def block(a: Any, *, p: float) -> Any:
        return F.dropout(a, p).sin(), p

    def f(a: Any) -> Any:
        out, p = checkpoint(block, a, use_reentrant=False, preserve_rng_state=True, determinism_check="none", p=0.5)
        return out * p

    return f, [(x(2, 4, grad=True),)]


@program
def checkpoints_in_sequence() -> Any:
    layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def f(a: Any) -> Any:
        return checkpoint_sequential(layers, 2, a, use_reentrant=False)

    return f, [(x(2, 4, grad=True),)]


@torch.compiler.assume_constant_result
def _constant(n: int) -> int:
    return n + 1


@torch.compiler.assume_constant_result
def _shape_of(a: Any) -> Any:
    return int(a.shape[0])


@torch.compiler.assume_constant_result
def _table(a: Any) -> Any:
    return torch.ones(4) * 3


@program
def assume_constant_result() -> Any:
    def f(a: Any) -> Any:
        return a * _constant(3)

    return f, [(x(),)]


@program
def assume_constant_result_of_a_tensor() -> Any:
    def f(a: Any) -> Any:
        return a * _shape_of(a)

    return f, [(x(),)]


@program
def assume_constant_result_that_is_a_tensor() -> Any:
    def f(a: Any) -> Any:
        return a * _table(a)

    return f, [(x(),)]


@program
def checkpoint_with_debug_and_a_layer() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        return checkpoint(layer, a * 2, use_reentrant=False, debug=True).sin()

    return f, [(x(2, 4, grad=True),)]
