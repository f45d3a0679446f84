"""Results that share memory, with one another or with an input, are related as in eager: `_base`, version counters,
errors and gradients after writes to one of them."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
from torch.utils import _pytree as pytree

import pyframe
from tests.aot.shared_memory_programs import PROGRAMS


def made(kind):
    """A leaf, and the input of the program: that leaf, or a tensor computed from it."""
    leaf = torch.linspace(-1, 2, 12).view(3, 4).clone().requires_grad_(kind != "data")
    return leaf, leaf * 1.0 if kind == "mid" else leaf


def called(call, kind, mode):
    """The leaf, and the input and results of a call."""
    leaf, x = made(kind)
    with mode():
        result = call(x)
    return leaf, [x, *(y for y in pytree.tree_leaves(result) if isinstance(y, torch.Tensor))]


def error_of(fn):
    """What kind of error a call raises; None if it raises none."""
    try:
        fn()
    except RuntimeError as error:
        return re.sub(r"Output \d+ of \w+|version \d+|-?\d+", "", str(error).partition("\n")[0])[:50]
    return None


def counters(tensors):
    """For each pair of tensors, whether they share a version counter."""
    rows = []
    for x in tensors:
        before = [None if y.is_inference() else y._version for y in tensors]
        if not x.is_inference():
            torch.autograd.graph.increment_version(x)
        rows.append([None if y.is_inference() else y._version != n for y, n in zip(tensors, before)])
    return rows


def facts(call, kind, mode):
    """What can be seen of the results without changing them."""
    _, tensors = called(call, kind, mode)
    values = [x.detach().clone() for x in tensors]
    memory = [x.untyped_storage()._cdata for x in tensors]
    # a view of a tensor that is not returned, alone in its memory, may be a tensor of its own
    alone = [sum(m == n and y is not x for y, n in zip(tensors, memory)) == 0 for x, m in zip(tensors, memory)]
    bases = [None if single else x._base for x, single in zip(tensors, alone)]
    return values, {
        "same": [[x is y for y in tensors] for x in tensors],
        "memory": [[m == n for n in memory] for m in memory],
        "bases": [[x is y for y in tensors] for x in bases],
        "one base": [[x is y for y in bases] for x in bases],
        "views": [not single and x._is_view() for x, single in zip(tensors, alone)],
        "leaves": [(x.is_leaf, x.requires_grad, x.grad_fn is None, x.is_inference()) for x in tensors],
        "counters": counters(tensors),
    }


def after_write(call, kind, mode, place, write):
    """The values, the gradients and the errors after a write to one of the tensors."""
    leaf, tensors = called(call, kind, mode)
    factor = torch.full((), 2.0, requires_grad=True)
    seen = {"write": error_of(lambda: WRITES[write](tensors[place], factor))}
    values = [x.detach().clone() for x in tensors]
    flags = []

    def backward():
        flags.extend((x.requires_grad, x.is_leaf) for x in tensors)  # an error for views that are not valid any more
        each = [x for x in tensors if x.requires_grad and x.is_floating_point()]
        if each:
            sum((x * torch.linspace(1, 2, x.numel()).view(x.shape)).sum() for x in each).backward()

    return values, {**seen, "backward": error_of(backward), "flags": flags}, [leaf.grad, factor.grad]


def under_no_grad(x, _):
    with torch.no_grad():
        x.mul_(2)


WRITES = {
    "recorded": lambda x, _: x.mul_(2),
    "under no_grad": under_no_grad,
    "of a tensor with gradients": lambda x, factor: x.mul_(factor),
    "through detach": lambda x, _: x.detach().mul_(2),
}


def saved_before_write(call, kind, mode, place):
    """For each tensor, the error of a backward that needs it after a write to the tensor at `place`."""
    _, tensors = called(call, kind, mode)
    weights = [torch.ones(x.shape, requires_grad=True) for x in tensors]
    losses = [None if x.is_inference() else (x * w).sum() for x, w in zip(tensors, weights)]
    failed = error_of(lambda: under_no_grad(tensors[place], None))
    given = [(y, w) for y, w in zip(losses, weights) if y is not None]
    return failed, [error_of(lambda y=y, w=w: torch.autograd.grad(y, w, retain_graph=True)) for y, w in given]


# in a caller's no_grad, an only view of a tensor that is not returned may be a tensor of its own, which accepts writes
ALONE = {"view", "one view twice", "no_grad: view"}


@pytest.mark.parametrize("kind, mode", [
    ("data", contextlib.nullcontext), ("leaf", contextlib.nullcontext), ("mid", contextlib.nullcontext),
    ("mid", torch.no_grad), ("data", torch.inference_mode),
])  # fmt: skip
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, kind, mode):
    program = PROGRAMS[name]
    fast = pyframe.compile(program)
    refused = error_of(lambda: called(program, kind, mode))
    assert error_of(lambda: called(fast, kind, mode)) == refused
    if refused:
        return
    (values, want), (got_values, got) = facts(program, kind, mode), facts(fast, kind, mode)
    torch.testing.assert_close(got_values, values, equal_nan=True)
    assert got == want
    for place in range(len(values)):
        for write in WRITES:
            if name in ALONE and mode is torch.no_grad and write == "of a tensor with gradients":
                continue
            values, want, gradients = after_write(program, kind, mode, place, write)
            got_values, got, got_gradients = after_write(fast, kind, mode, place, write)
            assert got == want, (place, write)
            torch.testing.assert_close(got_values, values, equal_nan=True)
            torch.testing.assert_close(got_gradients, gradients, equal_nan=True)
        assert saved_before_write(fast, kind, mode, place) == saved_before_write(program, kind, mode, place)
