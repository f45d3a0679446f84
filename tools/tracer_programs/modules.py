"""Programs about modules, their containers and state."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .programs import program, x


@program
def module_dict_and_lists() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
            self.table = nn.ModuleDict({"a": nn.Linear(4, 4)})
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(4))])
            self.named = nn.ParameterDict({"b": nn.Parameter(torch.ones(4))})

        def forward(self, a: Any) -> Any:
            for layer in self.layers[:2]:
                a = layer(a)
            for name, layer in self.table.items():
                a = layer(a) + len(name)
            return a * self.weights[0] + self.named["b"] + len(list(self.named_parameters()))

    return Model(), [(x(2, 4),)]


@program
def module_state_changes() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.calls = 0
            self.cache: Any = None

        def forward(self, a: Any) -> Any:
            self.calls += 1
            self.count += 1
            if self.cache is None:
                self.cache = a * 2
            return a + self.cache * self.count

    model = Model()
    return model, [(x(),), (x(),), (x(),)], lambda: (model.calls, model.count, model.cache)


@program
def module_training_mode() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))

    def f(a: Any) -> Any:
        model.eval()
        b = model(a)
        model.train()
        return b, model.training

    return f, [(x(3, 4),)], lambda: model[2].running_mean


@program
def module_made_inside() -> Any:
    def f(a: Any) -> Any:
        layer = nn.Linear(4, 4)
        nn.init.ones_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer(a)

    return f, [(x(2, 4),)]


@program
def module_apply_and_children() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU()))

    def f(a: Any) -> Any:
        n = sum(1 for _ in model.modules()) + len(dict(model.named_children()))
        for p in model.parameters():
            a = a + p.sum() * 0
        return model(a) + n, model.get_submodule("1.0").__class__.__name__

    return f, [(x(2, 4),)]


@program
def module_call_patched() -> Any:
    layer = nn.Linear(4, 4)
    layer.forward = lambda a: F.linear(a, layer.weight) * 2  # type: ignore[method-assign]
    return (lambda a: layer(a)), [(x(2, 4),)]


@program
def module_state_dict() -> Any:
    model = nn.Linear(4, 4)

    def f(a: Any) -> Any:
        return a @ model.state_dict()["weight"] + sum(p.numel() for p in model.parameters() if p.requires_grad)

    return f, [(x(2, 4),)]


@program
def module_buffers_registered() -> Any:
    class Model(nn.Module):
        def forward(self, a: Any) -> Any:
            if not hasattr(self, "mask"):
                self.register_buffer("mask", torch.ones(4), persistent=False)
            return a * self.mask

    return Model(), [(x(),), (x(),)]


@program
def functional_call() -> Any:
    model = nn.Linear(4, 4)

    def f(a: Any, w: Any) -> Any:
        return torch.func.functional_call(model, {"weight": w}, (a,)) + model(a)

    return f, [(x(2, 4), x(4, 4))]


@program
def stateful_rnn() -> Any:
    rnn = nn.GRU(4, 3, batch_first=True)

    def f(a: Any) -> Any:
        out, h = rnn(a)
        return out * 2, h

    return f, [(x(2, 5, 4),)]


@program
def transformer_layer() -> Any:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    return layer, [(x(2, 3, 4),)]


@program
def multihead_attention() -> Any:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def f(a: Any) -> Any:
        out, weights = layer(a, a, a, need_weights=True)
        return out, weights

    return f, [(x(2, 3, 4),)]


@program
def attention_functions() -> Any:
    def f(q: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    return f, [(x(1, 2, 3, 4),)]
