"""Programs about steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

from .programs import program, x


def steps(make: Callable[[Any], Any], count: int = 3) -> Any:
    """A program that steps an optimizer `count` times with new gradients."""
    params = [nn.Parameter(x(3)), nn.Parameter(x(2, 3))]
    opt = make(params)

    def f(p: Any, q: Any) -> None:
        params[0].grad, params[1].grad = p, q
        opt.step()

    def state() -> Any:
        values = [{k: v for k, v in opt.state[p].items()} for p in params]
        return [p.detach() for p in params], values

    return f, [(x(3), x(2, 3)) for _ in range(count)], state


@program
def radam_step() -> Any:
    return steps(lambda p: torch.optim.RAdam(p, lr=0.1), 7)


@program
def radam_step_foreach() -> Any:
    return steps(lambda p: torch.optim.RAdam(p, lr=0.1, foreach=True), 7)


@program
def radam_step_with_weight_decay() -> Any:
    return steps(lambda p: torch.optim.RAdam(p, lr=0.1, decoupled_weight_decay=True, weight_decay=0.1))


@program
def asgd_step() -> Any:
    return steps(lambda p: torch.optim.ASGD(p, lr=0.1, t0=1))


@program
def asgd_step_foreach() -> Any:
    return steps(lambda p: torch.optim.ASGD(p, lr=0.1, t0=1, foreach=True))


@program
def adafactor_step() -> Any:
    return steps(lambda p: torch.optim.Adafactor(p, lr=0.1))


@program
def adafactor_step_foreach() -> Any:
    return steps(lambda p: torch.optim.Adafactor(p, lr=0.1, foreach=True))


@program
def rprop_step() -> Any:
    return steps(lambda p: torch.optim.Rprop(p, lr=0.1))


@program
def rprop_step_foreach() -> Any:
    return steps(lambda p: torch.optim.Rprop(p, lr=0.1, foreach=True))


@program
def adam_step() -> Any:
    return steps(lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True))


@program
def adam_step_with_tensor_rate() -> Any:
    return steps(lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), foreach=False))


@program
def adamw_step_fused() -> Any:
    return steps(lambda p: torch.optim.AdamW(p, lr=0.1, fused=True))


@program
def nadam_step() -> Any:
    return steps(lambda p: torch.optim.NAdam(p, lr=0.1))


@program
def adamax_step() -> Any:
    return steps(lambda p: torch.optim.Adamax(p, lr=0.1))


@program
def adagrad_step() -> Any:
    return steps(lambda p: torch.optim.Adagrad(p, lr=0.1))


@program
def adadelta_step() -> Any:
    return steps(lambda p: torch.optim.Adadelta(p, lr=0.1))


@program
def rmsprop_step() -> Any:
    return steps(lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True))


@program
def sgd_step() -> Any:
    return steps(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1))


@program
def lbfgs_step() -> Any:
    w = nn.Parameter(torch.tensor([1.0, 2.0]))
    opt = torch.optim.LBFGS([w], max_iter=4)

    def closure() -> Any:
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    def f() -> Any:
        return opt.step(closure).detach()

    return f, [()], lambda: w.detach()


@program
def sparse_adam_step() -> Any:
    emb = nn.Embedding(5, 3, sparse=True)
    opt = torch.optim.SparseAdam(list(emb.parameters()), lr=0.1)

    def f(i: Any) -> None:
        opt.zero_grad()
        emb(i).sum().backward()
        opt.step()

    return f, [(torch.tensor([1, 2]),)] * 2, lambda: emb.weight.detach()


@program
def step_of_a_schedule() -> Any:
    w = nn.Parameter(x())
    opt = torch.optim.SGD([w], lr=0.1)
    schedule = StepLR(opt, 2, 0.5)

    def f(g: Any) -> None:
        w.grad = g
        opt.step()
        schedule.step()

    return f, [(x(),) for _ in range(4)], lambda: (w.detach(), schedule.get_last_lr())


@program
def step_of_a_cosine_schedule() -> Any:
    w = nn.Parameter(x())
    opt = torch.optim.Adam([w], lr=0.1)
    schedule = CosineAnnealingLR(opt, 10)

    def f(g: Any) -> None:
        w.grad = g
        opt.step()
        schedule.step()

    return f, [(x(),) for _ in range(4)], lambda: (w.detach(), schedule.get_last_lr())


@program
def step_of_a_one_cycle_schedule() -> Any:
    w = nn.Parameter(x())
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = OneCycleLR(opt, 0.5, 20)

    def f(g: Any) -> None:
        w.grad = g
        opt.step()
        schedule.step()

    return f, [(x(),) for _ in range(4)], lambda: (w.detach(), schedule.get_last_lr())


@program
def weights_averaged() -> Any:
    model = nn.Linear(3, 2)
    average = torch.optim.swa_utils.AveragedModel(model)

    def f(a: Any) -> Any:
        average.update_parameters(model)
        return average(a)

    return f, [(x(2, 3),)] * 2, lambda: (average.n_averaged, average.module.weight.detach())


@program
def gradients_scaled() -> Any:
    w = nn.Parameter(x())
    opt = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def f(a: Any) -> None:
        opt.zero_grad()
        scaler.scale((w * a).sum()).backward()
        scaler.step(opt)
        scaler.update()

    return f, [(x(),), (x(),)], lambda: (w.detach(), scaler.get_scale())
