"""Programs with FSDP2 (`fully_shard`). Each runs on every rank; see `compare`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from compare import Compile, Record, batches, compare, finish, loss_of, own, record_step, take_steps
from ddp_programs import alone
from distributed_models import WIDTH, Blocks, WithNorms, mlp
from ranks import Rank
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import pyframe

Wrap = Callable[[nn.Module, Compile], nn.Module]


def mesh_of(me: Rank) -> DeviceMesh:
    return init_device_mesh(me.device_type, (me.world,))


def trained(wrap: Wrap, steps: int = 1) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        called, record = wrap(model, compile), Record()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return take_steps(record, model, called, optimizer, data)

    return train


def check(me: Rank, make: Callable[[], nn.Module], wrap: Wrap, **more: object) -> None:
    compare(me, make, trained(wrap), WIDTH, single=alone, **more)


def whole_then_compiled(me: Rank) -> None:
    """The whole model is one unit of FSDP, and is compiled after it was sharded."""
    check(me, mlp, lambda model, compile: compile(fully_shard(model, mesh=mesh_of(me))))


def compiled_then_whole(me: Rank) -> None:
    check(me, mlp, lambda model, compile: fully_shard(compile(model), mesh=mesh_of(me)))


def whole_user_module(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: compile(fully_shard(model, mesh=mesh_of(me))))


def _per_block(me: Rank, model: nn.Module, **more: object) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh_of(me), **more)
    return fully_shard(model, mesh=mesh_of(me), **more)


def per_block_then_compiled(me: Rank) -> None:
    """Each block is a unit of FSDP; the sharded model is compiled as a whole."""
    check(me, Blocks, lambda model, compile: compile(_per_block(me, model)), graphs=2)


def compiled_blocks_then_sharded(me: Rank) -> None:
    """Each block is compiled, and then sharded."""

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = compile(block)
        return _per_block(me, model)

    check(me, Blocks, wrap, graphs=2)


def sharded_blocks_then_compiled(me: Rank) -> None:
    """Each block is sharded, and then compiled in place."""

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        _per_block(me, model)
        for i, block in enumerate(model.blocks):
            model.blocks[i] = compile(block)
        return model

    check(me, Blocks, wrap, graphs=2)


def many_blocks(me: Rank) -> None:
    """More blocks than the recompile limit has captures: blocks share theirs."""
    check(me, lambda: Blocks(depth=12), lambda model, compile: compile(_per_block(me, model)), graphs=2)


def not_resharded(me: Rank) -> None:
    check(me, Blocks, lambda model, compile: compile(_per_block(me, model, reshard_after_forward=False)), graphs=2)


def mixed_precision(me: Rank) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        return compile(_per_block(me, model, mp_policy=policy))

    compare(me, Blocks, trained(wrap), WIDTH, single=None, tolerance=(5e-2, 2e-2), graphs=2)


def batch_norm(me: Rank) -> None:
    train = trained(lambda model, compile: compile(fully_shard(model, mesh=mesh_of(me))))
    compare(me, WithNorms, train, WIDTH, single=None)


class Checkpointed(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def gradient_checkpointing(me: Rank) -> None:
    check(me, Checkpointed, lambda model, compile: compile(_per_block(me, model)))


def accumulation(me: Rank) -> None:
    """Gradients of two parts of a batch are accumulated unreduced, and reduced with the second."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        called, record = compile(_per_block(me, model)), Record()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            first, second = x.chunk(2)
            model.set_requires_gradient_sync(False)
            (loss_of(called(first)) / 2).backward()
            model.set_requires_gradient_sync(True)
            loss = loss_of(called(second)) / 2
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
            optimizer.zero_grad()
        return finish(record, model)

    compare(me, Blocks, train, WIDTH, single=None)


def compiled_optimizer(me: Rank) -> None:
    """Sharded parameters, their gradients and the optimizer's state are DTensors in a compiled step."""

    def train_with(sharded: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            called = compile(_per_block(me, model)) if sharded else model
            optimizer, record = torch.optim.AdamW(model.parameters(), lr=0.01), Record()
            update = compile(optimizer.step)
            return take_steps(record, model, called, optimizer, data, update)

        return train

    compare(me, Blocks, train_with(True), WIDTH, single=train_with(False), tolerance=(1e-3, 1e-4), graphs=2)


def clipped_gradients(me: Rank) -> None:
    def train_with(sharded: bool) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
        def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
            called = compile(_per_block(me, model)) if sharded else model
            optimizer, record = torch.optim.SGD(model.parameters(), lr=0.1), Record()
            for x in data:
                optimizer.zero_grad()
                loss = loss_of(called(x))
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                record_step(record, model, loss)
                optimizer.step()
            return finish(record, model)

        return train

    compare(me, Blocks, train_with(True), WIDTH, single=train_with(False), graphs=2)


def saved_and_loaded(me: Rank) -> None:
    """The sharded state of model and optimizer is saved after the first step, and loaded into new ones."""

    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        def started() -> tuple[nn.Module, torch.optim.Optimizer]:
            called = compile(_per_block(me, model))
            return called, torch.optim.AdamW(model.parameters(), lr=0.01)

        record = Record()
        called, optimizer = started()
        for i, x in enumerate(data):
            if i == 1:
                saved = get_model_state_dict(called), get_optimizer_state_dict(called, optimizer)
                model = Blocks().to(x.device)
                called, optimizer = started()
                set_model_state_dict(called, saved[0])
                set_optimizer_state_dict(called, optimizer, saved[1])
            optimizer.zero_grad()
            loss = loss_of(called(x))
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
        return finish(record, model)

    compare(me, Blocks, train, WIDTH, single=None, tolerance=(1e-3, 1e-4), graphs=2)


def evaluation_between_steps(me: Rank) -> None:
    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        called, record = compile(_per_block(me, model)), Record()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            optimizer.zero_grad()
            loss = loss_of(called(x))
            loss.backward()
            record_step(record, model, loss)
            optimizer.step()
            called.eval()
            with torch.no_grad():
                record.losses.append(loss_of(called(x)))
            called.train()
        return finish(record, model)

    compare(me, Blocks, train, WIDTH, single=None, graphs=2)


def events(me: Rank, compiled: bool) -> list[str]:
    """What a step does, in order, after two steps before it: FSDP's gathering of parameters and reduction of
    gradients, and the calls of compiled graphs."""
    torch.manual_seed(3)
    model = _per_block(me, Blocks(depth=4).to(me.device))
    called = pyframe.compile(model) if compiled else model
    x = own(me, batches(me, WIDTH)[0])
    for _ in range(2):
        loss_of(called(x)).backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss_of(called(x)).backward()
    names = [event.name for event in sorted(profile.events(), key=lambda event: event.time_range.start)]
    return [name.partition(" of ")[0] for name in names if name.startswith(("FSDP::", "compiled"))]
