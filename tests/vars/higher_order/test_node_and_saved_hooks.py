"""Hooks of autograd nodes (`grad_fn.register_hook`) and of saved tensors are part of one graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import pyframe
from pyframe.metrics import counters


def sees_gradients(x, seen):
    y = (x * 2).sin()
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    return y.exp() + y


def changes_gradients(x, seen):
    y = (x * 2).relu_()
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 3,))
    z = y @ y
    z.grad_fn.register_hook(lambda inputs, outputs: tuple(each and each * 2 for each in inputs) if seen else None)
    return z + 1


def with_a_hook_of_the_tensor(x, seen):
    y = (x * 2).sin()
    y.register_hook(lambda gradient: seen.append("tensor"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))
    return y.exp()


def removed(x, seen):
    y = x.sin()
    handle = y.grad_fn.register_hook(lambda inputs, outputs: seen.append("first"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("second"))
    handle.remove()
    return y + 1


def halves(tensor):
    return tensor / 2


def doubles(tensor):
    return tensor * 2


class Scaled(saved_tensors_hooks):
    def __init__(self):
        super().__init__(halves, doubles)


SCALED = Scaled()


class InHalf:
    dtype = torch.bfloat16

    def pack(self, tensor):
        return (tensor.dtype, tensor.to(self.dtype)) if tensor.is_floating_point() else tensor

    def unpack(self, packed):
        return packed[1].to(packed[0]) if isinstance(packed, tuple) else packed


IN_HALF = InHalf()


def packed(x, seen):
    with saved_tensors_hooks(lambda tensor: tensor / 2, lambda tensor: tensor * 3):
        y = x.sin().exp()
    return y.cos()


def packed_by_a_subclass(x, seen):
    with Scaled():
        return x.sin().exp()


def packed_by_an_object_from_before(x, seen):
    with SCALED:
        return x.sin().exp()


def packed_by_methods(x, seen):
    with saved_tensors_hooks(IN_HALF.pack, IN_HALF.unpack):
        return x.sin().exp()


def packed_in_two_blocks(x, seen):
    with saved_tensors_hooks(lambda tensor: tensor / 2, lambda tensor: tensor * 3):
        y = x.sin()
        with saved_tensors_hooks(lambda tensor: tensor / 4, lambda tensor: tensor * 5):
            y = y.exp()
        return y.cos()


def packed_and_raised(x, seen):
    try:
        with saved_tensors_hooks(halves, doubles):
            y = x.sin().exp()
            raise ValueError
    except ValueError:
        return y.cos()


def gradient_inside(x, seen):
    with saved_tensors_hooks(halves, doubles):
        return torch.autograd.grad((x.sin() * x).sum(), x)[0]


ONE_GRAPH = (
    sees_gradients, changes_gradients, with_a_hook_of_the_tensor, removed, packed, packed_by_a_subclass, packed_by_an_object_from_before,
    packed_by_methods, packed_in_two_blocks, packed_and_raised, gradient_inside,
)  # fmt: skip


def pack_counts(x, seen):
    with saved_tensors_hooks(lambda tensor: (seen.append("packed"), tensor)[1], lambda tensor: tensor):
        y = x.sin().exp()
    seen.append("after")
    return y


def broken_inside(x, seen):
    with saved_tensors_hooks(halves, doubles):
        y = x.sin()
        pyframe.graph_break()
        y = y.exp()
    return y.cos()


def hooked_from_outside(x, seen):
    a, b = (x * 2)[:2].unbind()
    a.grad_fn.register_hook(lambda inputs, outputs: seen.append(1))
    return a + b


def hook_before_a_pass(x, seen):
    y = x.sin()
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("hook"))
    gradient = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    seen.append("after")
    return y * gradient


def handle_returned(x, seen):
    y = x.sin()
    handle = y.grad_fn.register_hook(lambda inputs, outputs: seen.append("hook"))
    return y + bool(handle)


def results(fn):
    found, seen = [], []
    for _ in range(2):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        y = fn(x, seen)
        if y.requires_grad:
            y.sum().backward()
        found += [y.detach(), x.grad]
    return found, seen


def agree(fn, backend):
    (want, kept), (got, seen) = results(fn), results(pyframe.compile(fn, backend=backend))
    assert repr(kept) == repr(seen)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ("eager", "inductor"))
@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn, backend):
    agree(fn, backend)
    assert not counters["graph_breaks"]


@pytest.mark.parametrize("fn", (pack_counts, broken_inside, hooked_from_outside, hook_before_a_pass, handle_returned))
def test_right(fn):
    agree(fn, "eager")
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_the_frame_changes_what_the_pack_hook_reads():
    def fn(x):
        factor = 1.0
        with saved_tensors_hooks(lambda tensor: tensor * factor, lambda tensor: tensor):
            y = x.sin()
            factor = 2.0
        return y * factor

    with pytest.raises(pyframe.Unsupported):
        pyframe.compile(fn, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))
