"""Calls with arguments that a function of torch does not take raise what they raise in eager, and handlers in the
program see it: also calls that the trace answers itself."""

from __future__ import annotations

import heapq
import math

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel
from torch.utils import hooks
from util import check

X = torch.arange(6.0).reshape(2, 3)


def _caught(call, text=str):
    def program(x):
        y = x + 1
        try:
            found = call(x)
        except Exception as error:  # noqa: BLE001  compared with eager's
            found = type(error).__name__, text(error)
        return y * 2, found

    return program


def _no_text(error):
    """CPython names `Tensor` or `TensorBase` in the message, depending on the instruction."""
    return ""


METHODS = {
    "__deepcopy__": [(), ({}, 1)],
    "__iter__": [(1,)],
    "__setitem__": [(0,), (0, 1, 2)],
    "detach_": [(1,)],
    "dim": [(1,)],
    "equal": [(), (X, X)],
    "is_contiguous": [(1,)],
    "item": [(1,)],
    "register_hook": [(), (1, 2)],
    "retain_grad": [(1,)],
    "size": [(1, 2), (5,), ("a",), (None,)],
    "stride": [(1, 2), (5,), (None,)],
    "tolist": [(1,)],
    "type": [(int,)],
}


@pytest.mark.parametrize(("name", "args"), [(name, args) for name in METHODS for args in METHODS[name]])
def test_methods_of_tensors(name, args):
    check(_caught(lambda x: getattr(x, name)(*args), _no_text), X)


@pytest.mark.parametrize("name", ["__deepcopy__", "register_hook", "size", "stride", "tolist"])
def test_a_keyword_that_a_method_does_not_have(name):
    check(_caught(lambda x: getattr(x, name)(nonsense=1), _no_text), X)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.is_tensor(1, 2),
        lambda x: torch.compiler.is_compiling(1),
        lambda x: torch.jit.is_scripting(1),
        lambda x: torch.is_grad_enabled(1),
        lambda x: torch.get_default_dtype(1),
        lambda x: torch.func.vjp(),
        lambda x: torch.func.vjp(1, k=1),
        lambda x: torch.autograd.grad(),
        lambda x: torch.profiler.record_function("a", k=1),
        lambda x: sdpa_kernel(),
        lambda x: hooks.BackwardHook(),
        lambda x: hooks.BackwardHook(1, 2),
        lambda x: F.silu(x, object),
        lambda x: heapq.heapify({1}),
        lambda x: heapq.heappop([]),
        lambda x: heapq.heappushpop((1,), 0),
        lambda x: dict(a=1, **{"a": 2}),
        lambda x: math.log(),
        lambda x: math.log(2.0, k=1),
        lambda x: x.shape.numel(1),
        lambda x: x.shape[9],
        lambda x: x.shape["a"],
    ],
)
def test_functions(call):
    check(_caught(call), X)
