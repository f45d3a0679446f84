"""Programs about hooks of modules, lazy and parametrized modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from .programs import program, x


@program
def full_backward_hook() -> Any:
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))

    def f(a: Any) -> Any:
        return layer(a.sin()).cos()

    return f, [(x(2, 4, grad=True),)], lambda: layer.weight.grad


@program
def full_backward_hook_that_records() -> Any:
    layer = nn.Linear(4, 4)
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].shape))

    def f(a: Any) -> Any:
        return layer(a.sin()).cos()

    return f, [(x(2, 4, grad=True),)], lambda: list(seen)


@program
def full_backward_pre_hook() -> Any:
    layer = nn.Linear(4, 4)
    layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))

    def f(a: Any) -> Any:
        return layer(a.sin()).cos()

    return f, [(x(2, 4, grad=True),)]


@program
def forward_hooks_of_all_kinds() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    model[0].register_forward_hook(lambda m, args, kwargs, out: out * 2, with_kwargs=True)
    model.register_forward_hook(lambda m, args, out: out + 1, always_call=True)

    return model, [(x(2, 4),)]


@program
def hook_registered_inside() -> Any:
    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        handle = layer.register_forward_hook(lambda m, args, out: out * 2)
        b = layer(a)
        handle.remove()
        return b + layer(a)

    return f, [(x(2, 4),)], lambda: len(layer._forward_hooks)


@program
def lazy_linear() -> Any:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())

    def f(a: Any) -> Any:
        torch.manual_seed(1)
        return model(a)

    return f, [(x(2, 4),), (x(2, 4),)], lambda: type(model[0]).__name__


@program
def lazy_batch_norm() -> Any:
    model = nn.Sequential(nn.LazyBatchNorm1d())
    return model, [(x(5, 4),), (x(5, 4),)], lambda: (type(model[0]).__name__, dict(model.state_dict()))


@program
def lazy_module_of_the_program() -> Any:
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, a: Any) -> None:
            with torch.no_grad():
                self.weight.materialize((a.shape[-1],))
                self.weight.fill_(2.0)

        def forward(self, a: Any) -> Any:
            return a * self.weight

    return Scale(), [(x(2, 4),), (x(2, 4),)]


@program
def parametrized_module() -> Any:
    class Symmetric(nn.Module):
        def forward(self, w: Any) -> Any:
            return w.triu() + w.triu(1).t()

    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer, [(x(2, 4),)]


@program
def parametrizing_inside() -> Any:
    class Twice(nn.Module):
        def forward(self, w: Any) -> Any:
            return w * 2

    layer = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        parametrize.register_parametrization(layer, "weight", Twice())
        b = layer(a)
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
        return b + layer(a)

    return f, [(x(2, 4),)], lambda: type(layer).__name__


@program
def parametrizations_cached() -> Any:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def f(a: Any) -> Any:
        with parametrize.cached():
            return layer(a) + layer(a * 2)

    return f, [(x(2, 4),)]


@program
def old_weight_norm() -> Any:
    layer = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    return layer, [(x(2, 4),), (x(2, 4),)]


@program
def pruned_module() -> Any:
    import torch.nn.utils.prune as prune

    layer = prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5)
    return layer, [(x(2, 4),)]
