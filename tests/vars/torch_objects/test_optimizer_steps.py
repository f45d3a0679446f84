"""Compiled steps of torch.optim's optimizers: one graph, parameters and state as in eager, and few captures while a
scheduler changes the learning rate."""

import copy
import sys
import weakref

import pytest
import torch

import pyframe
from inductor.dynamic.dispatch import DynamicShapeDispatcher
from pyframe.metrics import counters

optim = torch.optim
STEPS = {
    "adam": lambda params, **kwargs: optim.Adam(params, 1e-2, **kwargs),
    "adamw": lambda params, **kwargs: optim.AdamW(params, 1e-2, amsgrad=True, **kwargs),
    "adamax": lambda params, **kwargs: optim.Adamax(params, 1e-2, **kwargs),
    "nadam": lambda params, **kwargs: optim.NAdam(params, 1e-2, **kwargs),
    "adagrad": lambda params, **kwargs: optim.Adagrad(params, 1e-2, **kwargs),
    "adadelta": lambda params, **kwargs: optim.Adadelta(params, 1e-2, maximize=True, **kwargs),
    "rmsprop": lambda params, **kwargs: optim.RMSprop(params, 1e-2, momentum=0.9, **kwargs),
    "rprop": lambda params, **kwargs: optim.Rprop(params, 1e-2, **kwargs),
    "sgd": lambda params, **kwargs: optim.SGD(params, 1e-2, momentum=0.9, nesterov=True, weight_decay=0.1, **kwargs),
}
IMPLEMENTATIONS = {"single": {"foreach": False}, "foreach": {"foreach": True}}


def compare(make, captures, steps=6):
    """Compares parameters and state with eager's after each step, with a scheduler that changes the learning rate in
    each, and the state loaded again in the middle. `captures`: the most that may be made before that."""
    torch.manual_seed(0)
    given = [torch.randn(size) for size in ((4, 8), (5,), (1,), (4, 8))]
    mine, theirs = [[torch.nn.Parameter(x.clone()) for x in given] for _ in range(2)]
    a, b = make(mine), make(theirs)
    schedulers = [optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)) for o in (a, b)]
    compiled = pyframe.compile(a.step, fullgraph=True)
    for step in range(steps):
        for x, y in zip(mine, theirs, strict=True):
            x.grad = torch.randn_like(x)
            y.grad = x.grad.clone()
        compiled()
        b.step()
        for scheduler in schedulers:
            scheduler.step()
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close([a.state[x] for x in mine], [b.state[y] for y in theirs], rtol=1e-5, atol=1e-6)
        if step == steps // 2:
            assert counters["graphs"] <= captures
            for o in (a, b):
                o.load_state_dict(copy.deepcopy(o.state_dict()))
        a.zero_grad(set_to_none=True)
        b.zero_grad(set_to_none=True)
    assert counters["graphs"] <= captures + 1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", STEPS)
def test_a_scheduled_learning_rate(name, implementation):
    """The first capture creates the state and takes the learning rate as a constant; the second takes it as given."""
    compare(lambda params: STEPS[name](params, **IMPLEMENTATIONS[implementation]), 2)


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
def test_a_scheduled_learning_rate_of_fused_steps(name):
    compare(lambda params: STEPS[name](params, fused=True), 2)


def test_lists_of_tensors_as_scalars_raise_as_in_eager():
    """Only torch's optimizers pass them, while they are being compiled."""

    def program(x, scale):
        torch._foreach_addcdiv_([x], [x], [x], [scale])
        return x

    for fn in (program, pyframe.compile(program, backend="eager")):
        with pytest.raises(TypeError, match="_foreach_addcdiv_"):
            fn(torch.ones(3), torch.tensor(2.0))


@pytest.mark.parametrize("name", STEPS)
def test_parameters_without_dimensions(name):
    mine, theirs = [[torch.nn.Parameter(torch.tensor(float(k))) for k in range(3)] for _ in range(2)]
    a, b = STEPS[name](mine, foreach=True), STEPS[name](theirs, foreach=True)
    whole = name != "rprop"  # which writes to a tensor without dimensions where a mask says so
    compiled = pyframe.compile(a.step, fullgraph=whole)
    for _ in range(3):
        for x in (*mine, *theirs):
            x.grad = torch.tensor(0.5)
        compiled()
        b.step()
        torch.testing.assert_close(mine, theirs)


def test_fused_steps_after_torch_compile():
    """The first torch.compile of a process marks the functions of fused steps as disabled."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert hasattr(sys.modules["torch.optim.adam"]._fused_adam, "_torchdynamo_orig_callable")
    compare(lambda params: STEPS["adam"](params, fused=True), 2)


@pytest.mark.parametrize("name", ["adamw", "adadelta", "nadam", "sgd"])
def test_another_learning_rate_compiles_nothing(name, monkeypatch):
    compiled = []
    make = DynamicShapeDispatcher._make
    monkeypatch.setattr(DynamicShapeDispatcher, "_make", lambda self, *args: compiled.append(1) or make(self, *args))
    compare(lambda params: STEPS[name](params, foreach=True), 2, steps=8)
    assert len(compiled) <= 2  # the second is for the state that was loaded


def test_groups_with_other_learning_rates():
    compare(lambda p: optim.AdamW([{"params": p[:2], "lr": 0.02}, {"params": p[2:]}], foreach=True), 2)


def test_a_variable_that_gets_its_own_value_does_not_drop_it():
    """Schedulers wrap `step` in a function that reads the optimizer through a weak reference."""

    class Owner:
        scale = 3.0

    owner = Owner()
    reference = weakref.ref(owner)

    def scaled(held, x):
        held = (lambda value: value)(held)
        return x * held.scale

    def program(x):
        held = reference()
        return scaled(held, x)

    x = torch.randn(3)
    torch.testing.assert_close(pyframe.compile(program, fullgraph=True)(x), x * 3)
