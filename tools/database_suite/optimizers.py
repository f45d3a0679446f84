"""Runs torch's database of optimizers (`common_optimizers.optim_db`) in loops of a few training steps, and compares
results, parameters and the optimizer's state after each step.

Modes: `model` (the model is compiled), `step` (`optimizer.step` is compiled), `whole` (a function that does a whole
training step is compiled: forward, backward, step), `schedule` (`optimizer.step` is compiled, and a learning-rate
scheduler changes the rate between steps), `errors` (the inputs for which the database expects an exception).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db
from torch.utils import _pytree as pytree

from tools.database_suite.programs import Compile, Program, Step, run_programs

STEPS = 4
IMPLEMENTATIONS = ("foreach", "fused", "differentiable")


class Optimizers:
    """The database."""

    modes = ("model", "step", "whole", "schedule", "errors")

    def __init__(self) -> None:
        self.infos = {info.name: info for info in optim_db}

    def names(self) -> list[str]:
        """Names of classes."""
        return list(self.infos)

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs a unit: every configuration, with every implementation that the optimizer has."""
        info, mode = self.infos[name], request["mode"]
        programs = _error_programs(info) if mode == "errors" else _programs(info, mode, request["samples"])
        run_programs(programs, request, engine, tell)


def optimizers() -> Optimizers:
    """`optim_db`."""
    return Optimizers()


def _programs(info: Any, mode: str, most: int) -> Iterator[Program]:
    inputs = info.optim_inputs_func(device="cpu")
    if mode == "schedule":
        for index, makers in enumerate(info.scheduler_inputs):
            yield _program(info, mode, f"schedulers {index}", _few_arguments(inputs), list(makers))
        return
    chosen = inputs if most == 0 else [inputs[k * len(inputs) // most] for k in range(min(most, len(inputs)))]
    chosen = [each for each in inputs if each in chosen or "capturable" in each.kwargs]
    for given in chosen:
        for implementation in ("", *info.supported_impls):
            if implementation == "fused" and "cpu" not in info.supports_fused_on:
                continue
            flags = {implementation: True} if implementation else {}
            if not flags and "foreach" in info.supported_impls:
                flags = {"foreach": False}
            yield _program(info, mode, f"{given.desc}, {implementation or 'one by one'}", {**given.kwargs, **flags})


def _few_arguments(inputs: list[Any]) -> dict[str, Any]:
    """The arguments of the default configuration that schedulers need, with a learning rate chosen here."""
    return {} if not inputs else dict(inputs[0].kwargs)


def _numbers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments with tensors of their own."""
    return pytree.tree_map_only(torch.Tensor, torch.clone, copy.copy(kwargs))


def _program(info: Any, mode: str, name: str, kwargs: dict[str, Any], schedulers: list[Any] | None = None) -> Program:
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        return _Loop(info, mode, _numbers(kwargs), schedulers or [], compile, dtype).step

    return Program(name, make, calls=STEPS, compiling_calls=2 if mode == "model" else 3)


class _Loop:
    """A model, its optimizer, and a training step, of which the mode determines what is compiled."""

    def __init__(
        self, info: Any, mode: str, kwargs: dict[str, Any], schedulers: list[Any], compile: Compile, dtype: torch.dtype
    ) -> None:
        self.model = _model(info).to(dtype)
        self.dtype = dtype
        if "lr" not in kwargs and "lr" in inspect.signature(info.optim_cls).parameters and schedulers:
            kwargs["lr"] = 0.01
        if info.step_requires_closure:  # LBFGS: over its 20 iterations in each step, rounding errors multiply
            kwargs["max_iter"] = 2
        self.optimizer = info.optim_cls(self.model.parameters(), **kwargs)
        self.schedulers = [maker(self.optimizer) for maker in schedulers]
        self.differentiable = kwargs.get("differentiable", False)
        self.forward = compile(self.model) if mode == "model" else self.model
        optimizer = self.optimizer
        self.update = compile(lambda: optimizer.step()) if mode in ("step", "schedule") else self.optimizer.step
        self.closure = info.step_requires_closure
        self.train = compile(self._train) if mode == "whole" else self._train

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.forward(x).square().mean()
        loss.backward()
        return loss

    def _train(self, x: torch.Tensor) -> torch.Tensor:
        if self.closure:
            return self.optimizer.step(lambda: self._loss(x))
        loss = self._loss(x)
        if self.differentiable:
            with torch.no_grad():
                self.update()
        else:
            self.update()
        return loss

    def step(self, number: int) -> Any:
        """A training step; returns the state that it leaves."""
        x = _batch(self.model, self.dtype)
        loss = self.train(x).detach()
        for scheduler in self.schedulers:
            takes_loss = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(loss) if takes_loss else scheduler.step()
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        parameters = [parameter.detach() for parameter in self.model.parameters()]
        return loss, rates, parameters, [dict(self.optimizer.state[p]) for p in self.model.parameters()]


def _model(info: Any) -> torch.nn.Module:
    if info.only_supports_sparse_grads:
        return torch.nn.Embedding(10, 4, sparse=True)
    layers = [torch.nn.Linear(5, 7, bias=False), torch.nn.Tanh(), torch.nn.Linear(7, 3, bias=info.name != "Muon")]
    return torch.nn.Sequential(*layers)


def _batch(model: torch.nn.Module, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(model, torch.nn.Embedding):
        return torch.randint(0, 10, (6,))
    return torch.randn(4, 5, dtype=torch.float64).to(dtype)


def _error_programs(info: Any) -> Iterator[Program]:
    if info.optim_error_inputs_func is None:
        return
    for index, error in enumerate(info.optim_error_inputs_func("cpu", torch.float32)):
        if issubclass(error.error_type, Warning):
            continue
        given, steps = error.optimizer_error_input, error.error_on is OptimizerErrorEnum.STEP_ERROR

        def make(compile: Compile, dtype: torch.dtype, given: Any = given, steps: bool = steps) -> Step:
            parameters = given.params or [torch.nn.Parameter(torch.randn(1, 1))]

            def refused() -> None:
                optimizer = info.optim_cls(parameters, **given.kwargs)
                if steps:
                    optimizer.step()

            fast = compile(refused)
            return lambda number: fast()

        yield Program(f"error {index}: {given.desc}", make, calls=1)
