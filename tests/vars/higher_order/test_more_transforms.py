"""Forward-mode AD, `linearize`, `functionalize`, functions of vjp in transforms, keyword arguments of transformed
functions, and contexts of saved tensors."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.autograd import forward_ad
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu
from torch.func import functionalize, grad, linearize, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from util import alike

import pyframe
from pyframe.metrics import counters

LAYER = torch.nn.Linear(3, 3)


def tangent(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        primal, along = forward_ad.unpack_dual(LAYER(dual).relu())
        none = forward_ad.unpack_dual(x).tangent
    return primal * 2, along.cos(), none


def dual_outlives_its_level(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x.cos()).exp()
    return dual, x + 1


def break_in_a_level(x):
    y = x + 1
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, torch.ones_like(x)) * y
        print(end="")
        return forward_ad.unpack_dual(dual * 2)[1]


def linear(x):
    x = x.detach()
    result, along = linearize(lambda a, b: (a * b, {"sine": a.sin()}), x, x + 1)
    return result, along(torch.ones_like(x), x)


def linear_in_a_batch(x):
    x = x.detach()
    return vmap(linearize(torch.sin, x)[1])(torch.stack([x, x * 2]))


def linear_at_what_is_written(x):
    y = x.detach().cos()
    result, along = linearize(lambda a: a * y, x.detach())
    y.add_(1)
    return result, along(x.detach())


def functional(x):
    def writes(a):
        b = a.clone()
        b[0].add_(1)
        return b * 2

    # torch's own gradient of the last one is wrong: it adds that of the write to a view
    batch = vmap(functionalize(writes))(x.detach()[:, :, None])
    return functionalize(writes)(x), functionalize(writes, remove="mutations_and_views")(x), batch


def functional_writes_to_its_argument(x):
    y = x * 2
    result = functionalize(lambda a: a.mul_(3) + 1)(y)
    return result, y


def functional_returns_what_it_wrote(x):
    y = x * 2
    result = functionalize(lambda a: a.mul_(3))(y)
    result.add_(1)
    return result, y


def functional_copies_a_view(x):
    y = x * 2
    result = functionalize(lambda a: a.view(-1), remove="mutations_and_views")(y)
    result.add_(1)
    return result, y


def pullback_in_a_batch(x):
    result, pullback = vjp(lambda a, b: a * b.sum(), x[0], x[1])
    return result, vmap(pullback)(torch.eye(3)), grad(lambda v: pullback(v)[0].sum())(x[0])


def keywords(x):
    y = x * 2
    gradient = grad(lambda a, *, scale, power=2: (a**power * scale).sum())(x, scale=y)
    return gradient, vmap(lambda a, *, scale, shift: a * scale + shift)(x, scale=y[0], shift=3)


def saved_on_the_cpu(x):
    with save_on_cpu(), torch.no_grad():
        z = x * 2
    with save_on_cpu(pin_memory=False):
        y = x.sin() * x
    return y.cos() + z


def on_an_exit_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(save_on_cpu())
        stack.enter_context(forward_ad.dual_level())
        y = forward_ad.unpack_dual(forward_ad.make_dual(x, x.cos()).exp())[1]
    return y.sin()


def no_hooks(x):
    with disable_saved_tensors_hooks("none here"):
        y = x.sin() * x
    return y.cos()


def checkpoint_without_use_reentrant(x):
    with torch.no_grad():
        y = checkpoint(LAYER, x)
    return y, checkpoint(LAYER, x), checkpoint_sequential(torch.nn.Sequential(LAYER, torch.nn.ReLU()), 2, x)


# function, breaks
PROGRAMS: list[tuple[Callable[..., Any], int]] = [
    (tangent, 0), (dual_outlives_its_level, 0), (break_in_a_level, 2),
    (linear, 0), (linear_in_a_batch, 0), (linear_at_what_is_written, 1),
    (functional, 0), (functional_writes_to_its_argument, 0), (functional_returns_what_it_wrote, 1),
    (functional_copies_a_view, 1), (pullback_in_a_batch, 0), (keywords, 0), (saved_on_the_cpu, 0),
    (on_an_exit_stack, 0), (no_hooks, 0),
]  # fmt: skip


def run(fn: Callable[..., Any]) -> Any:
    """The results of a call, the argument afterwards, and its gradient."""
    x = (torch.arange(12.0).reshape(4, 3) / 10).requires_grad_()
    result = fn(x)
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if any(leaf.requires_grad for leaf in leaves):
        sum(leaf.sum() for leaf in leaves).backward()
    return torch.utils._pytree.tree_leaves((result, x.detach(), x.grad))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("fn", "breaks"), PROGRAMS, ids=[fn.__name__ for fn, _ in PROGRAMS])
def test_as_in_eager(fn, breaks, backend):
    want = run(fn)
    compiled = pyframe.compile(fn, backend=backend)
    before = sum(counters["graph_breaks"].values())
    for _ in range(2):
        alike(run(compiled), want)
    assert sum(counters["graph_breaks"].values()) - before == breaks


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_checkpoints_that_warn(backend):
    """torch warns if use_reentrant is not given. The graph breaks there, as pytest records warnings."""
    with warnings.catch_warnings(record=True) as wanted:
        want = run(checkpoint_without_use_reentrant)
    with warnings.catch_warnings(record=True) as found:
        alike(run(pyframe.compile(checkpoint_without_use_reentrant, backend=backend)), want)
    assert len(found) == len(wanted)


def test_contexts_of_saved_tensors_are_entered_by_the_graph():
    """Where the graph runs them, the operators see hooks, or that there may be none; afterwards all is as before."""
    native = torch._C._autograd
    seen: dict[str, Any] = {}

    class Looking(fx.Interpreter):
        def run_node(self, node):
            hooks = native._top_saved_tensors_default_hooks(True) is not None
            seen[node.name] = hooks, native._saved_tensors_hooks_get_disabled_error_message()
            return super().run_node(node)

    def program(x):
        with save_on_cpu():
            y = x.sin()
        with disable_saved_tensors_hooks("none here"):
            return y.cos()

    x = torch.ones(3, requires_grad=True)
    pyframe.compile(program, backend=lambda gm, _: Looking(gm).run)(x)
    assert seen["sin"] == (True, None)
    assert seen["cos"] == (False, "none here")
    assert seen["output"] == (False, None)
