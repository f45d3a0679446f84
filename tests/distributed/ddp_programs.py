"""Programs with DistributedDataParallel. Each runs on every rank; see `compare`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from compare import STEPS, Compile, Record, batches, compare, finish, loss_of, own, record_step, take_steps
from distributed_models import WIDTH, Blocks, SometimesUnused, WithNorms, mlp
from ranks import Rank
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

import pyframe

Wrap = Callable[[nn.Module, Compile], nn.Module]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def trained(
    wrap: Wrap, forward: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None
) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
    """A training of the wrapped model with one step per batch."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        wrapped, record = wrap(model, compile), Record()
        optimizer = sgd(wrapped)
        for x in data:
            y = wrapped(x) if forward is None else forward(wrapped, x)
            loss = loss_of(y)
            optimizer.zero_grad()
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
        return finish(record, model)

    return train


alone = trained(lambda model, compile: model)


def check(me: Rank, make: Callable[[], nn.Module], wrap: Wrap, **more: Any) -> None:
    compare(me, make, trained(wrap), WIDTH, single=alone, **more)


def ddp_of_compiled(me: Rank) -> None:
    check(me, mlp, lambda model, compile: DDP(compile(model)))


def compiled_ddp(me: Rank) -> None:
    check(me, mlp, lambda model, compile: compile(DDP(model)))


def blocks_compiled_inside(me: Rank) -> None:
    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = compile(block)
        return DDP(model)

    check(me, Blocks, wrap)


def small_buckets(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: DDP(compile(model), bucket_cap_mb=0.002))


def small_buckets_outside(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: compile(DDP(model, bucket_cap_mb=0.002)))


def gradients_as_views(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: DDP(compile(model), gradient_as_bucket_view=True, bucket_cap_mb=0.002))


def step_function(me: Rank) -> None:
    """The whole step is compiled: forward, loss, backward and optimizer."""

    def train_with(distributed: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            wrapped = DDP(model) if distributed else model
            optimizer, record = sgd(wrapped), Record()

            @compile
            def step(x: torch.Tensor) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(wrapped(x))
                loss.backward()
                return loss

            for x in data:
                record_step(record, model, step(x))
                optimizer.step()
            return finish(record, model)

        return train

    compare(me, mlp, train_with(True), WIDTH, single=train_with(False))


def compiled_optimizer(me: Rank) -> None:
    """The optimizer's step is compiled as well as the model."""

    def train_with(distributed: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            wrapped = DDP(compile(model)) if distributed else model
            optimizer, record = torch.optim.AdamW(wrapped.parameters(), lr=0.01), Record()
            update = compile(optimizer.step)
            return take_steps(record, model, wrapped, optimizer, data, update)

        return train

    # Adam divides by the size of the gradient, which enlarges rounding errors of small ones
    compare(me, mlp, train_with(True), WIDTH, single=train_with(False), tolerance=(1e-3, 1e-4), graphs=2)


def accumulation(me: Rank) -> None:
    """`no_sync`: gradients of two parts of a batch are accumulated, and reduced with the second."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        wrapped, record = DDP(compile(model)), Record()
        optimizer = sgd(wrapped)
        for x in data:
            first, second = x.chunk(2)
            with wrapped.no_sync():
                (loss_of(wrapped(first)) / 2).backward()
            loss = loss_of(wrapped(second)) / 2
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
            optimizer.zero_grad()
        return finish(record, model)

    compare(me, mlp, train, WIDTH, single=None)


def static_graph(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: DDP(compile(model), static_graph=True, bucket_cap_mb=0.002))


def static_graph_outside(me: Rank) -> None:
    check(me, mlp, lambda model, compile: compile(DDP(model, static_graph=True)))


def _alternating(wrap: Wrap) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        wrapped, record = wrap(model, compile), Record()
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        for i, x in enumerate(data):
            model.branch = i % 2
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(wrapped(x))
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
        return finish(record, model)

    return train


def unused_parameters(me: Rank) -> None:
    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        return DDP(compile(model), find_unused_parameters=True)

    compare(me, SometimesUnused, _alternating(wrap), WIDTH, single=_alternating(lambda model, compile: model), graphs=2)


def unused_parameters_outside(me: Rank) -> None:
    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        return compile(DDP(model, find_unused_parameters=True))

    compare(me, SometimesUnused, _alternating(wrap), WIDTH, single=_alternating(lambda model, compile: model))


def batch_norm(me: Rank) -> None:
    """Batch norm of each rank's own part, with the buffers of rank 0 sent to all before each forward."""
    train = trained(lambda model, compile: DDP(compile(model)))
    compare(me, WithNorms, train, WIDTH, single=None)


def batch_norm_in_stages(me: Rank) -> None:
    train = trained(lambda model, compile: DDP(compile(model), bucket_cap_mb=0.0001))
    compare(me, WithNorms, train, WIDTH, single=None)


def batch_norm_outside(me: Rank) -> None:
    train = trained(lambda model, compile: compile(DDP(model)))
    compare(me, WithNorms, train, WIDTH, single=None)


def sync_batch_norm(me: Rank) -> None:
    """Batch norm over the parts of all ranks, which equals batch norm of the whole batch. Needs GPUs."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return trained(lambda model, compile: DDP(compile(model)))(model, compile, data)

    compare(me, WithNorms, train, WIDTH, single=alone, tolerance=(1e-3, 1e-4))


def autocast(me: Rank) -> None:
    def forward(wrapped: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(me.device_type, torch.bfloat16):
            return wrapped(x)

    train = trained(lambda model, compile: DDP(compile(model)), forward)
    single = trained(lambda model, compile: model, forward)
    compare(me, mlp, train, WIDTH, single=single, tolerance=(5e-2, 2e-2))


def communication_hook(me: Rank) -> None:
    """A communication hook; on GPUs one that sends gradients in bfloat16."""
    hook = default_hooks.bf16_compress_hook if me.device_type == "cuda" else default_hooks.allreduce_hook

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        wrapped = DDP(compile(model))
        wrapped.register_comm_hook(None, hook)
        return wrapped

    check(me, mlp, wrap, tolerance=(2e-2, 1e-2) if me.device_type == "cuda" else (1e-4, 1e-5))


class Checkpointed(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def gradient_checkpointing(me: Rank) -> None:
    check(me, Checkpointed, lambda model, compile: DDP(compile(model), bucket_cap_mb=0.002))


def gradient_checkpointing_outside(me: Rank) -> None:
    check(me, Checkpointed, lambda model, compile: compile(DDP(model)))


def retained_graph(me: Rank) -> None:
    """A second backward pass through the same graph without communication between, and one for a part of the parameters."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        wrapped, record = DDP(compile(model), bucket_cap_mb=0.002), Record()
        for x in data:
            wrapped.zero_grad()
            with wrapped.no_sync():
                loss = loss_of(wrapped(x))
                loss.backward(retain_graph=True)
                loss.backward(retain_graph=True)
                loss.backward(inputs=[model.head.weight, model.blocks[0].up.weight], retain_graph=True)
                found = torch.autograd.grad(loss, [model.blocks[1].up.bias, model.head.bias])
            record.losses.extend(x.detach().clone() for x in found)
            record_step(record, model, loss)
        return finish(record, model)

    compare(me, Blocks, train, WIDTH, single=None)


def varying_sizes(me: Rank) -> None:
    """Batches of different sizes, for which one capture with symbolic sizes serves from the third on."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        wrapped, record = DDP(compile(model), bucket_cap_mb=0.002), Record()
        optimizer = sgd(wrapped)
        for rows, x in zip((4, 3, 5, 7, 6), data * 2):
            optimizer.zero_grad()
            loss = loss_of(wrapped(x.repeat(2, 1)[:rows]))
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
        return finish(record, model)

    compare(me, Blocks, train, WIDTH, single=None, graphs=2)


class Shared(Blocks):
    """One weight is used in two places, and gradients of two parameters are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1].up.weight = self.blocks[0].up.weight
        self.shift = nn.Parameter(torch.randn(4, WIDTH))
        self.shift2 = nn.Parameter(torch.randn(4, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x + self.shift) + self.shift2
        return self.head(x)


def shared_memory_of_gradients(me: Rank) -> None:
    """Gradients that are one tensor in eager; DDP writes to one while the backward still needs the other."""
    train = trained(lambda model, compile: DDP(compile(model), bucket_cap_mb=0.0001))
    compare(me, Shared, train, WIDTH, single=None)


def several_results(me: Rank) -> None:
    """Two results, whose losses are differentiated together and one alone."""

    class Two(Blocks):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            for block in self.blocks[:-1]:
                x = block(x)
            return self.head(self.blocks[-1](x)), x.square()

    def train_with(distributed: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            more = {"bucket_cap_mb": 0.002, "find_unused_parameters": True}
            wrapped, record = DDP(compile(model), **more) if distributed else model, Record()
            optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
            for i, x in enumerate(data):
                optimizer.zero_grad()
                first, second = wrapped(x)
                loss = loss_of(first) + loss_of(second) if i != 1 else loss_of(second)
                loss.backward()
                record_step(record, model, loss)
                optimizer.step()
            return finish(record, model)

        return train

    compare(me, Two, train_with(True), WIDTH, single=train_with(False))


def clipped_gradients(me: Rank) -> None:
    """Gradients are clipped between backward and step."""

    def train_with(distributed: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            wrapped = DDP(compile(model)) if distributed else model
            optimizer, record = sgd(wrapped), Record()
            for x in data:
                optimizer.zero_grad()
                loss = loss_of(wrapped(x))
                loss.backward()
                nn.utils.clip_grad_norm_(wrapped.parameters(), 0.01)
                record_step(record, model, loss)
                optimizer.step()
            return finish(record, model)

        return train

    compare(me, mlp, train_with(True), WIDTH, single=train_with(False))


def saved_and_loaded(me: Rank) -> None:
    """Parameters and the optimizer's state are saved after the first step and loaded into new objects."""

    def train_with(distributed: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            def wrapped_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
                wrapped = DDP(compile(model)) if distributed else model
                return wrapped, sgd(wrapped)

            record = Record()
            wrapped, optimizer = wrapped_and_optimizer()
            for i, x in enumerate(data):
                if i == 1:
                    saved = wrapped.state_dict(), optimizer.state_dict()
                    model = Blocks().to(x.device)
                    wrapped, optimizer = wrapped_and_optimizer()
                    wrapped.load_state_dict(saved[0])
                    optimizer.load_state_dict(saved[1])
                optimizer.zero_grad()
                loss = loss_of(wrapped(x))
                loss.backward()
                record_step(record, model, loss)
                optimizer.step()
            return finish(record, model)

        return train

    compare(me, Blocks, train_with(True), WIDTH, single=train_with(False))


def evaluation_between_steps(me: Rank) -> None:
    """The wrapped model is evaluated without gradients between steps, directly and through DDP."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        compiled = compile(model)
        wrapped, record = DDP(compiled), Record()
        optimizer = sgd(wrapped)
        for x in data:
            optimizer.zero_grad()
            loss = loss_of(wrapped(x))
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
            wrapped.eval()
            with torch.no_grad():
                record.losses += [loss_of(wrapped(x)), loss_of(compiled(x))]
            wrapped.train()
        return finish(record, model)

    compare(me, WithNorms, train, WIDTH, single=None)


def compiled_before_ddp(me: Rank) -> None:
    """The compiled model has run, with its backward, before DDP wraps it."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        compiled = compile(model)
        loss_of(compiled(data[0])).backward()
        model.zero_grad(set_to_none=True)
        return trained(lambda model, compile: DDP(compiled, bucket_cap_mb=0.002))(model, compile, data)

    compare(me, Blocks, train, WIDTH, single=alone)


assert STEPS >= 3  # DDP rebuilds its buckets after the first step, and the third runs with the rebuilt ones


def overlap(me: Rank, how: str) -> list[str]:
    """The order of events in the backward pass of the third step: the stages of the compiled backward, and the calls of
    DDP's communication hook, which starts to send a bucket. `how`: DDP is "outside" or "inside" of what is compiled, or
    the compiled model has run "before" DDP wraps it."""
    torch.manual_seed(3)
    compile = pyframe.compile
    model = Blocks(depth=6).to(me.device)
    outside, x = how == "outside", own(me, batches(me, WIDTH)[0])
    inside = model if outside else compile(model)
    if how == "before":
        loss_of(inside(x)).backward()
    wrapped = DDP(inside, bucket_cap_mb=BLOCK_BYTES / 2**20)

    def hook(_, bucket):  # DDP refuses annotations that are strings
        with torch.profiler.record_function(f"bucket {bucket.index()}"):
            return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

    wrapped.register_comm_hook(None, hook)
    called = compile(wrapped) if outside else wrapped
    for _ in range(2):
        loss_of(called(x)).backward()
    loss = loss_of(called(x))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss.backward()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    found = [re.match(r"compiled backward, (stage \d+)|(bucket \d+)", event.name) for event in events]
    return [each[1] or each[2] for each in found if each]


BLOCK_BYTES = sum(x.numel() for x in Blocks(depth=1).blocks.parameters()) * 4
