"""Hooks of tensors read what cells, containers and attributes hold when the backward pass runs, not what they held when
the hook was registered."""

from __future__ import annotations

import functools
import types

import pytest
import torch

import pyframe
from pyframe.metrics import counters


class Settings:
    factor = 1.0


SETTINGS = Settings()


def cell(x):
    factor = 1.0
    y = x * 2
    y.register_hook(lambda g: g * factor)
    factor = 5.0
    return y.sum()


def item_of_a_list(x):
    factors, y = [1.0], x * 2
    y.register_hook(lambda g: g * factors[0])
    factors[0] = 3.0
    return y.sum()


def attribute(x):
    y = x * 2
    y.register_hook(lambda g: g * SETTINGS.factor)
    SETTINGS.factor = 4.0
    return y.sum()


def two_hooks_one_removed(x):
    factor, y = 1.0, x * 2
    handle = y.register_hook(lambda g: g * factor)
    y.register_hook(lambda g: g + factor)
    factor = 5.0
    handle.remove()
    return y.sum()


def tensor_computed_later(x):
    y = x * 2
    y.register_hook(lambda g: g * z)
    z = x.detach().sin()
    return y.sum()


def pass_before_the_change(x):
    factor, y = 1.0, x * 2
    y.register_hook(lambda g: g * factor)
    gradient = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    factor = 5.0
    return (y * gradient.detach()).sum()


def changed_after_a_break(x):
    factors, y = [1.0], x * 2
    y.register_hook(lambda g: g * factors[0])
    pyframe.graph_break()
    factors[0] = 3.0
    return y.sum()


def gradient_of(fn):
    SETTINGS.factor = 1.0
    x = torch.arange(1.0, 4.0, requires_grad=True)
    fn(x).backward()
    return x.grad


ONE_GRAPH = (cell, item_of_a_list, two_hooks_one_removed)


@pytest.mark.parametrize(
    "fn", (*ONE_GRAPH, attribute, tensor_computed_later, pass_before_the_change, changed_after_a_break)
)
def test_gradients_are_those_of_eager(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(gradient_of(compiled), gradient_of(fn))
    if fn in ONE_GRAPH:
        assert not counters["graph_breaks"]


def test_the_caller_changes_what_the_hook_reads():
    def fn(x):
        factors, y = [1.0], x * 2
        y.register_hook(lambda g: g * factors[0])
        return y.sum(), factors

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        total, factors = compiled(x)
        factors[0] = 7.0
        total.backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 14.0))


def test_the_caller_changes_a_container_that_existed_before():
    def fn(x, settings):
        y = x * 3
        y.register_hook(lambda g: g * settings["factor"])
        return y.sum()

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        x, settings = torch.ones(3, requires_grad=True), {"factor": 2.0}
        total = compiled(x, settings)
        settings["factor"] = 5.0
        total.backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 15.0))


class Holder:
    factor, hidden = 1.0, 1.0
    table: dict[str, float]

    @property
    def doubled(self):
        return 2 * self.hidden

    def hook(self, gradient):
        return gradient * self.factor

    def __call__(self, gradient):
        return gradient * self.factor


class Slotted:
    __slots__ = ("factor",)


FACTOR = 1.0


def _set_global(value):
    global FACTOR
    FACTOR = value


def of_an_attribute():
    holder = Holder()
    return (lambda gradient: gradient * holder.factor), functools.partial(setattr, holder, "factor")


def of_a_method():
    holder = Holder()
    return holder.hook, functools.partial(setattr, holder, "factor")


def of_a_callable():
    holder = Holder()
    return holder, functools.partial(setattr, holder, "factor")


def of_a_class():
    class Local:
        factor = 1.0

    return (lambda gradient: gradient * Local.factor), functools.partial(setattr, Local, "factor")


def of_a_property():
    holder = Holder()
    return (lambda gradient: gradient * holder.doubled), functools.partial(setattr, holder, "hidden")


def of_a_slot():
    slotted = Slotted()
    slotted.factor = 1.0
    return (lambda gradient: gradient * slotted.factor), functools.partial(setattr, slotted, "factor")


def of_a_dict_in_an_attribute():
    holder = Holder()
    holder.table = {"factor": 1.0}
    return (lambda gradient: gradient * holder.table["factor"]), lambda value: holder.table.update(factor=value)


def of_a_global():
    return (lambda gradient: gradient * FACTOR), _set_global


def of_a_module():
    module = types.ModuleType("settings")
    module.__file__, module.factor = "settings.py", 1.0
    return (lambda gradient: gradient * module.factor), functools.partial(setattr, module, "factor")


def of_a_function():
    def hook(gradient):
        return gradient * hook.factor

    hook.factor = 1.0
    return hook, functools.partial(setattr, hook, "factor")


def of_a_default():
    factors = [1.0]
    return (lambda gradient, each=factors: gradient * each[0]), lambda value: factors.__setitem__(0, value)


def of_a_gradient():
    leaf = torch.ones(3, requires_grad=True)
    leaf.grad = torch.ones(3)
    return (lambda gradient: gradient * leaf.grad), lambda value: setattr(leaf, "grad", torch.full((3,), value))


def of_a_nonlocal():
    factor = 1.0

    def change(value):
        nonlocal factor
        factor = value

    return (lambda gradient: gradient * factor), change


OUTSIDE = (
    of_an_attribute, of_a_method, of_a_callable, of_a_class, of_a_property, of_a_slot, of_a_dict_in_an_attribute,
    of_a_global, of_a_module, of_a_function, of_a_default, of_a_gradient, of_a_nonlocal,
)  # fmt: skip


@pytest.mark.parametrize("make", OUTSIDE)
def test_what_existed_before_changes_between_the_call_and_the_backward(make):
    gradients = []
    for compiles in (False, True):
        _set_global(1.0)
        hook, change = make()

        def fn(x, hook=hook):
            y = x * 3
            y.register_hook(hook)
            return y.sum()

        called = pyframe.compile(fn, backend="eager") if compiles else fn
        for value in (2.0, 5.0):
            x = torch.ones(3, requires_grad=True)
            total = called(x)
            change(value)
            total.backward()
            gradients.append(x.grad)
    assert torch.equal(torch.stack(gradients[:2]), torch.stack(gradients[2:]))
    assert not torch.equal(gradients[0], gradients[1])


def scaled(gradient):
    return torch.clamp(gradient, -1, 1).to(torch.float32) * len("three")


def test_functions_and_attributes_of_libraries_do_not_break_the_graph():
    def fn(x):
        y = x * 3
        y.register_hook(lambda gradient: scaled(gradient) * torch.nn.functional.relu(gradient))
        return y.sum()

    x, reference = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    fn(reference).backward()
    pyframe.compile(fn, backend="eager", fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, reference.grad)


def appends():
    seen = []
    return (lambda gradient: seen.append(gradient.sum().item())), lambda: seen


def sets_an_attribute():
    holder = Holder()

    def save(gradient):
        holder.factor = gradient.sum().item()

    return save, lambda: holder.factor


def counts():
    count = 0

    def hook(gradient):
        nonlocal count
        count += 1
        return gradient * count

    return hook, lambda: count


def branches_on_data():
    return (lambda gradient: gradient * 2 if gradient.sum() > 0 else None), lambda: None


def writes_to_the_gradient():
    return (lambda gradient: gradient.mul_(2)), lambda: None


@pytest.mark.parametrize("backend", ("eager", "inductor"))
@pytest.mark.parametrize("make", (appends, sets_an_attribute, counts, branches_on_data, writes_to_the_gradient))
def test_hooks_that_do_more_than_compute(make, backend):
    results = []
    for compiles in (False, True):
        hook, state = make()

        def fn(x, hook=hook):
            mask = (x > 1).float()
            y = x * 3
            y.register_hook(lambda gradient: hook(gradient * mask))
            return y.sum()

        called = pyframe.compile(fn, backend=backend, fullgraph=True) if compiles else fn
        for _ in range(3):
            x = torch.arange(3.0, requires_grad=True)
            called(x).backward()
            results.append((x.grad.tolist(), repr(state())))
    assert results[:3] == results[3:]


def test_a_pass_in_the_same_graph_calls_the_hook_once():
    def fn(x, seen):
        y = x * 2
        y.register_hook(lambda gradient: seen.append("hook"))
        gradient = torch.autograd.grad(y.sum(), x)[0]
        seen.append("after")
        return gradient

    for called in (fn, pyframe.compile(fn, backend="eager")):
        seen = []
        for _ in range(2):
            called(torch.ones(3, requires_grad=True), seen)
        assert seen == ["hook", "after"] * 2


def test_new_objects_in_each_call_do_not_recompile_for_ever():
    def fn(x, seen):
        y = x * 2
        y.register_hook(lambda gradient: seen.append(len(seen)))
        return y.sum()

    compiled, kept = pyframe.compile(fn, backend="eager"), []
    for _ in range(8):
        kept.append([])
        compiled(torch.ones(3, requires_grad=True), kept[-1]).backward()
    assert kept == [[0]] * 8
    assert counters["graphs"] < 8


def test_a_handle_from_before_is_removed_beside_a_new_hook():
    def fn(x):
        y = x * 2
        handle = y.register_hook(lambda gradient: gradient * 5)
        pyframe.graph_break()
        y.register_hook(lambda gradient: gradient * 3)
        handle.remove()
        return y.sum()

    x = torch.ones(3, requires_grad=True)
    pyframe.compile(fn, backend="eager")(x).backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0))


def test_activations_and_gradients_are_kept_in_one_graph():
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        kept = {}

        def save(name, kept=kept):
            def hook(module, inputs, output):
                kept[name] = output.detach()
                output.register_hook(lambda gradient: kept.__setitem__(name + ".grad", gradient.clone()))

            return hook

        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        for name, layer in model.named_children():
            layer.register_forward_hook(save(name))
        called = pyframe.compile(model, backend="eager", fullgraph=True) if compiles else model
        for _ in range(2):
            called(torch.arange(4.0)).sum().backward()
        results.append(kept)
    assert list(results[0]) == list(results[1])
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


def test_a_hook_that_fills_a_list_of_its_own_is_traced():
    def fn(x):
        y = x * 2

        def hook(gradient):
            parts = []
            for number in range(2):
                parts.append(gradient * number)
            return sum(parts)

        y.register_hook(hook)
        return torch.autograd.grad((y * y).sum(), x)[0]

    x = torch.arange(3.0, requires_grad=True)
    torch.testing.assert_close(pyframe.compile(fn, backend="eager", fullgraph=True)(x), fn(x))
