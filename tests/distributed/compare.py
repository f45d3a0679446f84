"""Trains a model three times: on one process with the whole batch, distributed in eager, and distributed and compiled.

The losses, all gradients of all steps, and the parameters and buffers at the end must agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from ranks import Rank
from torch import nn
from torch.distributed.tensor import DTensor

import pyframe
from pyframe.metrics import counters

Compile = Callable[[Any], Any]
STEPS = 3


def uncompiled(fn: Any) -> Any:
    """In the place of `pyframe.compile` in the eager runs."""
    return fn


@dataclass
class Record:
    """What a training computed. `grads`: of each step, by name of the parameter; None for an undefined gradient."""

    losses: list[torch.Tensor] = field(default_factory=list)
    grads: list[dict[str, torch.Tensor | None]] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)


def whole(x: torch.Tensor | None) -> torch.Tensor | None:
    """A copy of a tensor, gathered from all ranks if it is sharded."""
    if isinstance(x, DTensor):
        x = x.full_tensor()
    return None if x is None else x.detach().clone()


def names(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by the names that they have in the model itself, without what wrappers put in front."""
    return {_plain(name): x for name, x in model.named_parameters()}


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))


def record_step(record: Record, model: nn.Module, loss: torch.Tensor) -> None:
    """Note the loss and the gradients of a step."""
    record.losses.append(whole(loss))
    record.grads.append({name: whole(x.grad) for name, x in names(model).items()})


def finish(record: Record, model: nn.Module) -> Record:
    """Note parameters and buffers at the end of a training."""
    record.state = {_plain(name): whole(x) for name, x in model.state_dict().items()}
    return record


def batches(me: Rank, width: int, rows: int = 4, steps: int = STEPS) -> list[torch.Tensor]:
    """The whole batch of each step, equal on all ranks: (world * rows, width)."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(me.world * rows, width, generator=generator).to(me.device) for _ in range(steps)]


def own(me: Rank, batch: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return batch.chunk(me.world)[me.rank]


def mean_over_ranks(losses: list[torch.Tensor]) -> list[torch.Tensor]:
    found = []
    for loss in losses:
        total = loss.clone()
        dist.all_reduce(total)
        found.append(total / dist.get_world_size())
    return found


def close(got: Record, want: Record, rtol: float, atol: float) -> None:
    """Whether two trainings agree."""
    torch.testing.assert_close(got.losses, want.losses, rtol=rtol, atol=atol)
    assert len(got.grads) == len(want.grads)
    for step, (mine, theirs) in enumerate(zip(got.grads, want.grads)):
        assert mine.keys() == theirs.keys()
        for name, x in mine.items():
            y = theirs[name]
            assert (x is None) == (y is None), f"step {step}: the gradient of {name} is {x} instead of {y}"
            if x is not None:
                torch.testing.assert_close(x, y, rtol=rtol, atol=atol, msg=lambda m: f"step {step}, {name}: {m}")
    assert got.state.keys() == want.state.keys()
    for name, x in got.state.items():
        torch.testing.assert_close(x, want.state[name], rtol=rtol, atol=atol, msg=lambda m: f"{name}: {m}")


def loss_of(y: torch.Tensor) -> torch.Tensor:
    return (y.float() - 0.5).square().mean()


def take_steps(
    record: Record, model: nn.Module, called: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer,
    data: list[torch.Tensor], update: Callable[[], object] | None = None,
) -> Record:
    """Train `model` with one step per batch: `called` returns its output, `update` (by default the optimizer's step)
    follows each backward."""
    for x in data:
        optimizer.zero_grad()
        loss = loss_of(called(x))
        loss.backward()
        record_step(record, model, loss)
        (update or optimizer.step)()
    return finish(record, model)


def iterate(data: list[torch.Tensor], part: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[torch.Tensor]:
    yield from map(part, data)


Train = Callable[[nn.Module, Compile, list[torch.Tensor]], Record]


def compare(
    me: Rank, make: Callable[[], nn.Module], train: Train, width: int, *, single: Train | None,
    average: bool = True, tolerance: tuple[float, float] = (1e-4, 1e-5), graphs: int = 1, rows: int = 4,
    whole_graph: bool = False,
) -> None:
    """Run `train(model, compile, batches)` in eager and compiled on this rank's part of the batches, and `single` on
    the whole batches on this process alone; None: there is no such comparison. `average`: each rank has the loss of
    its own part, whose mean is that of the whole batch. `graphs`: how many graphs are captured at least;
    `whole_graph`: no break is allowed."""
    torch.manual_seed(3)
    model = make().to(me.device)
    data = batches(me, width, rows)
    parts = [own(me, x) for x in data] if average else data
    eager = train(copy.deepcopy(model), uncompiled, parts)
    before, broken = counters["graphs"], sum(counters["graph_breaks"].values())
    compiled = train(copy.deepcopy(model), pyframe.compile, parts)
    assert counters["graphs"] - before >= graphs, f"{counters['graphs'] - before} graphs were captured"
    assert not whole_graph or sum(counters["graph_breaks"].values()) == broken, counters["graph_breaks"]
    assert counters["fallbacks"] == 0
    close(compiled, eager, *tolerance)
    if single is not None:
        alone = single(copy.deepcopy(model), uncompiled, data)
        if average:
            compiled.losses = mean_over_ranks(compiled.losses)
        close(compiled, alone, *tolerance)
