"""Runs a function eagerly and compiled for training on copies of the same inputs, and compares all that can be seen."""

from __future__ import annotations

import warnings

import torch
from torch import fx
from torch.utils import _pytree as pytree

from inductor.aot.autograd import compile_training
from inductor.aot.functionalize import NotFunctional
from inductor.aot.results import RecordedWrites
from inductor.graph_split import cut_around


def plain(gm):
    """A compiler that runs the ATen graph unchanged, and asserts that no gradients are recorded."""

    def run(*args):
        assert not torch.is_grad_enabled()
        return gm.forward(*args)

    return run


def record(like, target, *args):
    """A call without tensor arguments, noted in the graph while fx traces `like`."""
    if isinstance(like, fx.Proxy):
        return like.tracer.create_proxy("call_function", target, args, {})
    return target(*args)


def set_grad(like, mode):
    record(like, torch._C._set_grad_enabled, mode)


def make(kind, seed, shape=(3, 4)):
    """`leaf` and `mid` (not a leaf) require gradients, `data` does not, `view` is part of a larger `mid`."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if kind == "data":
        return [values], values
    if kind == "int":
        values = (values * 10).long()
        return [values], values
    if kind == "view":
        leaf = torch.cat([values, values + 1]).requires_grad_()
        return [leaf], (leaf * 1.0)[1 : 1 + shape[0]]
    leaf = values.requires_grad_()
    return [leaf], leaf if kind == "leaf" else leaf * 1.0


def run_eager(fn, inputs):
    return fn


def run_compiled(fn, inputs):
    return compiled(fx.symbolic_trace(fn), inputs)


def compiled(gm, inputs):
    """The graph compiled, in pieces where it has to be cut, or as it is."""
    try:
        return compile_training(gm, inputs, plain)
    except RecordedWrites as found:
        return cut_around(gm, compiled, found)
    except NotFunctional:
        return gm.forward


def observe(runner, fn, kinds, after=None):
    """Everything that a caller can see of a call and of the backward after it."""
    leaves, inputs = zip(*(make(kind, seed) for seed, kind in enumerate(kinds)))
    leaves = sum(leaves, [])
    call = runner(fn, inputs)
    versions = [x._version for x in inputs]
    seen = {}
    try:
        torch.manual_seed(7)
        result = call(*inputs)
        values = pytree.tree_leaves(result)
        tensors = [x for x in values if isinstance(x, torch.Tensor)]
        seen["constants"] = [x for x in values if not isinstance(x, torch.Tensor)]
        seen["values"] = [x.detach().clone() for x in tensors]
        seen["inputs"] = [x.detach().clone() for x in inputs]
        seen["written"] = [x._version != v for x, v in zip(inputs, versions)]
        everything = [*inputs, *tensors]
        seen["flags"] = [(x.requires_grad, x.is_leaf, x.stride(), x.dtype) for x in everything]
        seen["same"] = [[a is b for b in everything] for a in everything]
        where = lambda x: x.untyped_storage().data_ptr()
        seen["shared"] = [[where(a) == where(b) for b in everything] for a in everything]
        first = lambda x: (where(x), x.data_ptr() - where(x))
        origin = {where(x): first(x)[1] for x in reversed(everything)}
        seen["offsets"] = [first(x)[1] - origin[where(x)] for x in everything]
        if after is not None:
            seen["after"] = pytree.tree_map(lambda x: x.detach().clone(), after(inputs, tensors))
        goals = [x for x in everything if x.requires_grad]
        if goals:
            weight = torch.Generator().manual_seed(9)
            loss = sum((x * torch.randn(x.shape, generator=weight)).sum() for x in goals)
            loss.backward()
        seen["grads"] = [x.grad for x in leaves]
    except RuntimeError as error:
        seen["error"] = (type(error), str(error))
    return seen


EAGERS_OWN = ("modified by an inplace", "returns multiple views")


def check(fn, kinds, after=None):
    """Compares eager and compiled; returns what was seen.

    With `after`, an action on inputs and results before the backward, eager may refuse what works compiled: it saves
    more. Gradients are then those of a call without `after`, which must not be differentiable.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, got = observe(run_eager, fn, kinds, after), observe(run_compiled, fn, kinds, after)
        if after is not None and "error" not in got and any(x in want.get("error", ("", ""))[1] for x in EAGERS_OWN):
            if "no_grad" in after.__name__:
                want = observe(run_eager, fn, kinds)
                torch.testing.assert_close(got["grads"], want["grads"])
            return got
    error = (got.get("error"), want.get("error"))
    if None in error:
        assert error == (None, None), error
    for key in want.keys() & got.keys():
        if key in ("values", "inputs", "grads", "after"):
            torch.testing.assert_close(got[key], want[key], msg=lambda m: f"{key}: {m}")
        elif key == "error":
            saved = "modified by an inplace operation: ["
            assert got[key][0] is want[key][0] and (saved not in want[key][1] or saved in got[key][1]), (got, want)
        else:
            assert got[key] == want[key], (key, got[key], want[key])
    return want


def compiles(fn, kinds):
    """Whether the compiler takes the function, in pieces or whole, rather than leaving it to eager."""
    inputs = [make(kind, seed)[1] for seed, kind in enumerate(kinds)]
    try:
        compile_training(fx.symbolic_trace(fn), inputs, plain)
    except NotFunctional as error:
        return isinstance(error, RecordedWrites)
    return True
