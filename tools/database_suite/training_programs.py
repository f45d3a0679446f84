"""Training programs as tutorials write them: gradient clipping, parametrizations, autocast and loss scaling,
learning-rate schedulers, averaged models, checkpoints, data loaders, hooks.

Each consists of a small model and a compiled function that does one step. Losses, gradients, parameters and buffers are
compared after every step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    parameters_to_vector,
    parametrizations,
    parametrize,
    prune,
    rnn,
)
from torch.optim import lr_scheduler, swa_utils
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

from tools.database_suite.programs import Collection, Compile, Program, Step

_COLLECTION = Collection()
Train = Callable[[nn.Module, torch.optim.Optimizer, Tensor], Tensor]


def collection() -> Collection:
    """The programs."""
    return _COLLECTION


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


def _left(model: nn.Module) -> Any:
    """The state of a model after a step: parameters, gradients, buffers."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return parameters, gradients, dict(model.named_buffers())


def _rows(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape or (5, 6), dtype=torch.float64).to(dtype)


def training(make_model: Callable[[], nn.Module] = _model, **facts: Any) -> Callable[[Train], None]:
    """A program whose step `train(model, optimizer, x)` is compiled as a whole; the optimizer is SGD with momentum."""
    def added(train: Train) -> None:
        def make(compile: Compile, dtype: torch.dtype) -> Step:
            model = make_model().to(dtype)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            fast = compile(lambda x: train(model, optimizer, x))
            return lambda number: (fast(_rows(dtype)).detach(), _left(model))

        named = {"calls": 3, "compiling_calls": 2, **facts}
        _COLLECTION.programs[train.__name__] = Program(train.__name__, make, **named)

    return added


def module(name: str, make_model: Callable[[], nn.Module], *shape: int, **facts: Any) -> None:
    """A program that compiles a module: result, gradients, buffers; parameters are changed a little after each call."""
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        model = make_model().to(dtype)
        fast = compile(model)

        def step(number: int) -> Any:
            model.zero_grad()
            x = _rows(dtype, *shape).requires_grad_()
            out = fast(x)
            out.square().sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad
            return out, x.grad, _left(model)

        return step

    _COLLECTION.programs[name] = Program(name, make, **{"calls": 3, **facts})


# ---- gradients ----
@training()
def clipped_by_norm(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """`clip_grad_norm_` between backward and step."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    total = clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
    return loss + total


@training()
def clipped_by_value(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """`clip_grad_value_`."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    clip_grad_value_(model.parameters(), 0.01)
    optimizer.step()
    return loss


@training()
def clipped_without_foreach(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """`clip_grad_norm_` of the infinity norm, parameter by parameter."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    total = clip_grad_norm_(model.parameters(), 0.05, norm_type=float("inf"), foreach=False)
    optimizer.step()
    return loss + total


@training()
def accumulated(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """Gradients of several parts of a batch."""
    optimizer.zero_grad()
    total = torch.zeros((), dtype=x.dtype)
    for part in x.split(3):
        loss = model(part).square().mean() / 2
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


@training()
def frozen_layer(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """A layer whose parameters are not trained."""
    model[0].requires_grad_(False)  # type: ignore[index,operator]
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


@training()
def gradient_penalty(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """A second derivative, as in a critic's penalty."""
    optimizer.zero_grad()
    x = x.detach().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.square().mean() + (slope.norm(dim=1) - 1).square().mean()
    loss.backward()
    optimizer.step()
    return loss


@training()
def vector_of_parameters(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """`parameters_to_vector` as a penalty."""
    optimizer.zero_grad()
    loss = model(x).square().mean() + 0.01 * parameters_to_vector(model.parameters()).square().sum()
    loss.backward()
    optimizer.step()
    return loss


# ---- mixed precision ----
@training()
def autocast(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """bfloat16 around the forward pass."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.float32):
        out = model(x)
    loss = out.float().square().mean() if x.dtype == torch.float32 else out.square().mean()
    loss.backward()
    optimizer.step()
    return loss


@_COLLECTION.add(calls=4, compiling_calls=3)
def scaled_loss(compile: Compile, dtype: torch.dtype) -> Step:
    """GradScaler; the second step has a gradient that is not finite, so it is skipped."""
    model = _model().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    forward = compile(lambda x: model(x).square().mean())

    def step(number: int) -> Any:
        x = _rows(dtype)
        optimizer.zero_grad()
        loss = forward(x * float("inf") if number == 1 else x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), scaler.get_scale(), _left(model)[0]

    return step


@_COLLECTION.add(calls=4, compiling_calls=3)
def scaled_loss_in_compiled_step(compile: Compile, dtype: torch.dtype) -> Step:
    """GradScaler within the function that is compiled."""
    model = nn.Linear(6, 3).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    fast = compile(train)
    return lambda number: (fast(_rows(dtype)).detach(), scaler.get_scale(), _left(model))


# ---- schedulers ----
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=2),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5, power=2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=6),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
}


def _scheduled(name: str, tensor_rate: bool) -> None:
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        model = nn.Linear(6, 3).to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1) if tensor_rate else 0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)
        update = compile(lambda: optimizer.step())

        def step(number: int) -> Any:
            optimizer.zero_grad()
            loss = model(_rows(dtype)).square().mean()
            loss.backward()
            update()
            scheduler.step(number) if name == "ReduceLROnPlateau" else scheduler.step()
            return loss.detach(), float(optimizer.param_groups[0]["lr"]), _left(model)

        return step

    label = f"{name}_of_tensor" if tensor_rate else name
    _COLLECTION.programs[label] = Program(label, make, calls=5, compiling_calls=4)


for _name in SCHEDULERS:
    _scheduled(_name, False)
    if _name in ("StepLR", "ExponentialLR", "CosineAnnealingLR", "OneCycleLR"):
        _scheduled(_name, True)


# ---- averaged models ----
def _averaged(name: str, make_average: Callable[[nn.Module], swa_utils.AveragedModel]) -> None:
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        model = _model().to(dtype)
        averaged = make_average(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        forward, update = compile(model), compile(lambda: averaged.update_parameters(model))

        def step(number: int) -> Any:
            optimizer.zero_grad()
            loss = forward(_rows(dtype)).square().mean()
            loss.backward()
            optimizer.step()
            update()
            averaged.eval()
            return loss.detach(), _left(averaged)[0], dict(averaged.named_buffers()), averaged(_rows(dtype)).detach()

        return step

    _COLLECTION.programs[name] = Program(name, make, calls=4, compiling_calls=3)


_averaged("stochastic_weight_averaging", swa_utils.AveragedModel)
_averaged(
    "exponential_moving_average",
    lambda model: swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
)
_averaged(
    "exponential_moving_average_with_buffers",
    lambda model: swa_utils.AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.9), use_buffers=True),
)


# ---- parametrizations and hooks of layers ----
def _with_hooks() -> nn.Module:
    model = _model()
    model[0].register_forward_pre_hook(lambda layer, args: (args[0] * 2,))  # type: ignore[index]
    model[1].register_forward_hook(lambda layer, args, out: out + 1)  # type: ignore[index]
    return model


def _pruned() -> nn.Module:
    layer = nn.Linear(6, 4)
    prune.l1_unstructured(layer, "weight", 0.4)
    return layer


class _Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


def _symmetric() -> nn.Module:
    layer = nn.Linear(6, 6)
    parametrize.register_parametrization(layer, "weight", _Symmetric())
    return layer


class _Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.second = nn.Linear(6, 8), nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(lambda y: self.first(y).tanh(), x, use_reentrant=self.reentrant)
        return checkpoint(self.second, x, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


class _Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint_sequential(self.layers, 2, x, use_reentrant=False)  # type: ignore[no-any-return]


class _Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, torch.tensor([4, 2, 3]), batch_first=True, enforce_sorted=False)
        out, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return out


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))  # type: ignore[no-any-return]


module("weight_norm", lambda: parametrizations.weight_norm(nn.Linear(6, 4)))
module("weight_norm_deprecated", lambda: nn.utils.weight_norm(nn.Linear(6, 4)))
module("weight_norm_of_convolution", lambda: parametrizations.weight_norm(nn.Conv1d(3, 4, 2)), 2, 3, 6)
module("spectral_norm", lambda: parametrizations.spectral_norm(nn.Linear(6, 4)))
module("spectral_norm_deprecated", lambda: nn.utils.spectral_norm(nn.Linear(6, 4)))
module("spectral_norm_in_eval_mode", lambda: parametrizations.spectral_norm(nn.Linear(6, 4)).eval())
module("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(6, 6)))
module("orthogonal_cayley", lambda: parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"))
module("orthogonal_householder", lambda: parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="householder"))
module("parametrization_of_ones_own", _symmetric)
module("pruned", _pruned)
module("hooks_of_modules", _with_hooks)
module("checkpoint", lambda: _Checkpointed(False))
module("checkpoint_reentrant", lambda: _Checkpointed(True))
module("checkpoint_of_sequence", _Sequence)
module("packed_sequence", _Packed, 3, 4, 6)
module("tied_weights", _Tied)
module("copied_layers", lambda: nn.Sequential(*(copy.deepcopy(nn.Linear(6, 6)) for _ in range(3))))
module("fused_convolution_and_norm",
       lambda: nn.utils.fuse_conv_bn_eval(nn.Conv2d(3, 4, 3).eval(), nn.BatchNorm2d(4).eval()), 2, 3, 6, 6)  # fmt: skip


# ---- loops ----
@_COLLECTION.add(calls=3, compiling_calls=2)
def loop_over_loader(compile: Compile, dtype: torch.dtype) -> Step:
    """An epoch, its last batch smaller, then evaluation; the function of a batch is compiled."""
    model = _model().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = TensorDataset(_rows(dtype, 11, 6), torch.randint(0, 3, (11,)))

    def train(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss

    fast, evaluate = compile(train), compile(lambda x: model(x).argmax(1))

    def step(number: int) -> Any:
        model.train()
        losses = [fast(x, y).detach() for x, y in DataLoader(data, batch_size=4, shuffle=True)]
        model.eval()
        with torch.no_grad():
            found = [evaluate(x) for x, _ in DataLoader(data, batch_size=5)]
        return losses, found, _left(model)

    return step


@_COLLECTION.add(calls=3, compiling_calls=3)
def saved_and_loaded(compile: Compile, dtype: torch.dtype) -> Step:
    """State that is saved and loaded between steps."""
    model = _model().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept: dict[str, Any] = {}

    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    fast = compile(train)

    def step(number: int) -> Any:
        if number == 2:
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
        loss = fast(_rows(dtype)).detach()
        if number == 0:
            kept.update(copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
        return loss, _left(model)

    return step


@_COLLECTION.add(calls=3, compiling_calls=2)
def optimizer_in_backward(compile: Compile, dtype: torch.dtype) -> Step:
    """torch's tutorial: each parameter is updated by a hook as soon as its gradient is there."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(p: Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    fast = compile(lambda x: model(x).square().mean())

    def step(number: int) -> Any:
        loss = fast(_rows(dtype))
        loss.backward()
        return loss.detach(), _left(model)[0]

    return step
