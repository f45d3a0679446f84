"""Calls of modules with full backward hooks are one graph; the hooks run in the backward pass and see what they see in
eager: gradients, their number, None for arguments without one, the order of the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.testing import CompileCounter
from tools.tracer_programs.comparison import equal

Log = list[Any]


class Recorder:
    """A hook that is an object."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __call__(self, module: nn.Module, grad_input: Any, grad_output: Any) -> None:
        self.log.append([None if g is None else g.clone() for g in (*grad_input, *grad_output)])

    def method(self, module: nn.Module, grad_output: Any) -> Any:
        self.log.append(("pre", type(module).__name__))
        return tuple(2 * g for g in grad_output)


class Two(nn.Module):
    def forward(self, a: torch.Tensor, scale: float, b: torch.Tensor) -> Any:
        return a * b, scale, a + b


def replaces_gradients(log: Log) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    model[1].register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 0.5,))
    return model


def records(log: Log) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    for layer in (model, *model):
        layer.register_full_backward_hook(Recorder(log))
        layer.register_full_backward_pre_hook(Recorder(log).method)
    return model


def called_twice(log: Log) -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_full_backward_hook(Recorder(log))
    return nn.Sequential(layer, nn.Tanh(), layer)


def several_tensors(log: Log) -> nn.Module:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()
            self.two.register_full_backward_hook(Recorder(log))
            self.two.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 3, None, grads[2]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p, scale, q = self.two(x.sin(), 2.0, x.detach())
            return p * q * scale

    return Outer()


def partly_without_gradients(log: Log) -> nn.Module:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.layer.register_full_backward_hook(Recorder(log))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = self.layer(x)
            return self.layer(x) * y

    return Outer()


def of_all_modules(log: Log) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    handle = nn.modules.module.register_module_full_backward_hook(Recorder(log))
    log.append(handle)
    return model


PROGRAMS = [replaces_gradients, records, called_twice, several_tensors, partly_without_gradients, of_all_modules]


def seen(make: Callable[[Log], nn.Module], needs: bool, compiled: Callable[..., Any]) -> list[Any]:
    """Results, gradients and what the hooks recorded, of three calls."""
    log: Log = []
    torch.manual_seed(0)
    model = make(log)
    handles = [each for each in log if hasattr(each, "remove")]
    log[:] = []
    call, found = compiled(model), []
    try:
        for _ in range(3):
            x = torch.randn(4, 3, requires_grad=needs)
            y = call(x)
            if y.requires_grad:
                y.square().sum().backward()
            found += [y, x.grad, [p.grad for p in model.parameters()]]
    finally:
        for handle in handles:
            handle.remove()
    return [*found, list(log)]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("needs", [True, False], ids=["input_with_gradient", "input_without"])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_one_graph(make: Callable[[Log], nn.Module], needs: bool, backend: str) -> None:
    want = seen(make, needs, lambda model: model)
    got = seen(make, needs, lambda model: pyframe.compile(model, backend=backend, fullgraph=True))
    assert equal(got, want) == ""


def test_hooks_that_change_between_calls() -> None:
    layer, log, x = nn.Linear(3, 3), [], torch.ones(2, 3, requires_grad=True)
    counter = CompileCounter()
    fn = pyframe.compile(layer, backend=counter, fullgraph=True)

    def called() -> list[str]:
        log.clear()
        fn(x).sum().backward()
        return list(log)

    assert called() == []
    first = layer.register_full_backward_hook(lambda *_: log.append("first"))
    assert called() == ["first"]
    layer.register_full_backward_hook(lambda *_: log.append("second"))
    assert called() == ["first", "second"]
    first.remove()
    assert called() == ["second"]
    assert called() == ["second"]
    assert counter.frame_count <= 4


def test_other_hooks_in_the_same_place_need_no_capture() -> None:
    counter, log = CompileCounter(), []
    layers = [nn.Linear(3, 3) for _ in range(3)]
    for i, layer in enumerate(layers):
        layer.register_full_backward_hook(lambda *_, i=i: log.append(i))
        layer._backward_hooks = type(layer._backward_hooks)(enumerate(layer._backward_hooks.values()))

    def f(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x).sin()

    fn = pyframe.compile(f, backend=counter)
    for layer in layers:
        fn(layer, torch.ones(2, 3, requires_grad=True)).sum().backward()
    assert log == [0, 1, 2] and counter.frame_count <= 1


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_hooks_that_the_graph_runs(backend: str) -> None:
    layer, log = nn.Linear(3, 3), []
    layer.register_full_backward_hook(lambda *_: log.append("ran"))

    def f(x: torch.Tensor) -> Any:
        (gradient,) = torch.autograd.grad(layer(x).sum(), [x])
        return gradient * len(log), len(log)

    x = torch.ones(2, 3, requires_grad=True)
    want = [f(x), f(x)]
    log.clear()
    fn = pyframe.compile(f, backend=backend)
    assert equal([fn(x), fn(x)], want) == ""


def test_in_place_on_what_a_hook_returned() -> None:
    layer = nn.Sequential(nn.Identity())
    layer[0].register_full_backward_hook(lambda *_: None)

    def f(x: torch.Tensor) -> torch.Tensor:
        return layer(x * 1).add_(1)

    x = torch.ones(3, requires_grad=True)
    for fn in (f, pyframe.compile(f, backend="eager")):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            fn(x)
