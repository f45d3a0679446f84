"""Programs with tensor parallelism and DTensors. Each runs on every rank with the whole batch; see `compare`."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from compare import Compile, Record, batches, compare, take_steps, whole
from distributed_models import WIDTH, Hidden, Transformer
from ranks import Rank
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import pyframe
from pyframe.metrics import counters

LENGTH = 8


def mesh_of(me: Rank) -> DeviceMesh:
    return init_device_mesh(me.device_type, (me.world,))


def sequences(x: torch.Tensor) -> torch.Tensor:
    """(rows, width) as (batch, length, width)."""
    return x.view(-1, LENGTH, x.shape[-1])


def trained(
    wrap: Callable[[nn.Module, Compile], nn.Module], shape: Callable[[torch.Tensor], torch.Tensor] = sequences
) -> Callable[[nn.Module, Compile, list[torch.Tensor]], Record]:
    def train(model: nn.Module, compile: Compile, data: list[torch.Tensor]) -> Record:
        called, record = wrap(model, compile), Record()
        # With the default on a GPU, `foreach`, torch 2.11 refuses DTensors beside tensors.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        return take_steps(record, model, lambda x: called(shape(x)), optimizer, data)

    return train


def check(me: Rank, make: Callable[[], nn.Module], wrap: Callable[[nn.Module, Compile], nn.Module], **more: object) -> None:
    single = trained(lambda model, compile: model)
    more = {"whole_graph": True, **more}
    compare(me, make, trained(wrap), WIDTH, single=single, average=False, rows=2 * LENGTH, **more)


HIDDEN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def hidden_then_compiled(me: Rank) -> None:
    check(me, lambda: Hidden(WIDTH), lambda model, compile: compile(parallelize_module(model, mesh_of(me), HIDDEN)))


def compiled_then_parallel(me: Rank) -> None:
    check(me, lambda: Hidden(WIDTH), lambda model, compile: parallelize_module(compile(model), mesh_of(me), HIDDEN))


def _attention() -> dict[str, object]:
    columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    return {**columns, "attention.out": RowwiseParallel(), "hidden.up": ColwiseParallel(), "hidden.down": RowwiseParallel()}


def _parallel(me: Rank, model: nn.Module) -> nn.Module:
    for layer in model.layers:
        parallelize_module(layer, mesh_of(me), _attention())
    return model


def transformer(me: Rank) -> None:
    check(me, Transformer, lambda model, compile: compile(_parallel(me, model)))


def compiled_layers(me: Rank) -> None:
    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        _parallel(me, model)
        for i, layer in enumerate(model.layers):
            model.layers[i] = compile(layer)
        return model

    check(me, Transformer, wrap)


def sequence_parallel(me: Rank) -> None:
    """Norms and residuals work on parts of the sequence; attention and hidden layers on parts of the features."""

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        mesh = mesh_of(me)
        whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan = {**_attention(), "norm1": SequenceParallel(), "norm2": SequenceParallel(), "attention": whole, "hidden": whole}
        plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "hidden.down")}
        parallelize_module(model, mesh, {
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        })  # fmt: skip
        for layer in model.layers:
            parallelize_module(layer, mesh, plan)
        parallelize_module(model.layers[0], mesh, PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
        ))  # fmt: skip
        return compile(model)

    check(me, Transformer, wrap)


def sharded_data_and_tensors(me: Rank) -> None:
    """FSDP over a mesh of one process, with tensor parallelism over both, on two dimensions of one mesh."""

    def wrap(model: nn.Module, compile: Compile) -> nn.Module:
        mesh = init_device_mesh(me.device_type, (1, me.world), mesh_dim_names=("data", "tensor"))
        for layer in model.layers:
            parallelize_module(layer, mesh["tensor"], _attention())
            fully_shard(layer, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        return compile(model)

    check(me, Transformer, wrap, graphs=2, whole_graph=False)


def tensors_in_and_out(me: Rank) -> None:
    """DTensors are arguments and results of a compiled function, with gradients."""
    mesh = mesh_of(me)

    def program(x: DTensor, w: DTensor, b: DTensor) -> tuple[DTensor, torch.Tensor, DTensor]:
        hidden = torch.nn.functional.gelu(x @ w + b)
        local = hidden.to_local() * 2
        return hidden, local.sum(), hidden.redistribute(mesh, [Replicate()]) * 3

    given = batches(me, WIDTH, rows=WIDTH // me.world)

    def run(fn: Callable[..., object]) -> list[torch.Tensor]:
        x = distribute_tensor(given[0], mesh, [Replicate()]).requires_grad_()
        w = distribute_tensor(given[1], mesh, [Shard(1)]).requires_grad_()
        b = distribute_tensor(given[2][0], mesh, [Shard(0)]).requires_grad_()
        hidden, total, copies = fn(x, w, b)
        assert hidden.placements == (Shard(1),), hidden.placements
        assert copies.placements == (Replicate(),), copies.placements
        (hidden.full_tensor().sum() + total + copies.full_tensor().square().sum()).backward()
        return [whole(value) for value in (hidden, total, copies, x.grad, w.grad, b.grad)]

    want = run(program)
    fast = pyframe.compile(program)
    for _ in range(2):
        torch.testing.assert_close(run(fast), want, rtol=1e-4, atol=1e-4)


def redistributions(me: Rank) -> None:
    """Every pair of placements, without gradients and with them."""
    mesh = mesh_of(me)
    whole_tensor = batches(me, WIDTH, rows=4)[0]
    kinds = [Replicate(), Shard(0), Shard(1), Partial()]
    for start in kinds:
        for end in kinds:
            if isinstance(end, Partial) and not isinstance(start, Partial):
                continue  # eager refuses it, or only divides

            def program(local: torch.Tensor) -> torch.Tensor:
                x = DTensor.from_local(local * 2, mesh, [start], run_check=False)
                return x.redistribute(mesh, [end]).to_local() + 1

            local = whole_tensor if not isinstance(start, Shard) else whole_tensor.chunk(me.world, start.dim)[me.rank]
            found = []
            for fn in (program, pyframe.compile(program)):
                x = local.clone().requires_grad_()
                y = fn(x)
                y.square().sum().backward()
                found.append((y.detach(), x.grad))
            torch.testing.assert_close(found[1], found[0], msg=lambda m: f"{start} to {end}: {m}")


def batches_of_many_sizes(me: Rank) -> None:
    """Plain tensors of any number of rows go through a parallel model: two captures, without breaks."""
    model = parallelize_module(Hidden(WIDTH).to(me.device), mesh_of(me), HIDDEN)
    fast = pyframe.compile(model)
    given = batches(me, WIDTH, rows=8)[0]
    before = counters["graphs"]
    for rows in (4, 4, 6, 9, 16):
        found = []
        for call in (model, fast):
            x = given[:rows].clone().requires_grad_()
            y = call(x)
            y.square().sum().backward()
            found.append([y.detach(), x.grad, *(whole(p.grad) for p in model.parameters())])
            model.zero_grad()
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    assert counters["graphs"] - before == 2, counters["graphs"] - before
    assert not counters["graph_breaks"], counters["graph_breaks"]


def queries(me: Rank) -> None:
    """Placements and meshes are read, compared and made in a graph."""
    mesh = mesh_of(me)

    @pyframe.compile(fullgraph=True)
    def program(x: DTensor, local: torch.Tensor) -> tuple[object, ...]:
        made = DTensor.from_local(local * 2, x.device_mesh, [Replicate()], run_check=False)
        moved = made.redistribute(placements=(Shard(-1),))
        kinds = [p.is_shard() for p in x.placements], moved.placements == (Shard(1),), x.placements[0] == Shard(0)
        by_kind = {Replicate(): 1, Shard(1): 2}[moved.placements[0]]
        other = {Shard: x * by_kind, Replicate: x}[type(x.placements[0])]
        return kinds, moved.placements[0].dim, moved.device_mesh.size(), other.full_tensor(), moved.to_local() + 1

    given = batches(me, WIDTH)[0]
    for _ in range(2):
        x = distribute_tensor(given, mesh, [Shard(0)])
        kinds, dim, size, whole_x, part = program(x, given)
        assert (kinds, dim, size) == (([True], True, True), 1, me.world)
        torch.testing.assert_close(whole_x, given * 2)
        torch.testing.assert_close(part, (given * 2).chunk(me.world, 1)[me.rank] + 1)


def gradients_of_other_placements(me: Rank) -> None:
    """The gradient that a caller gives to a result is placed otherwise than the result is, or its parts are sums."""
    mesh = mesh_of(me)
    given = batches(me, WIDTH)

    def run(fn: Callable[..., DTensor]) -> list[torch.Tensor]:
        found = []
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(given[0], mesh, [Shard(0)]).requires_grad_()
            y = fn(x, mesh)
            y.backward(distribute_tensor(given[1], mesh, [placement]))
            found += [whole(y), whole(x.grad)]
        return found

    def sharded(x: DTensor, mesh: DeviceMesh) -> DTensor:
        return x.sin() * 2

    def partial(x: DTensor, mesh: DeviceMesh) -> DTensor:
        return DTensor.from_local(x.sin().full_tensor(), mesh, [Partial()], run_check=False)

    for program in (sharded, partial):
        torch.testing.assert_close(run(pyframe.compile(program)), run(program), rtol=1e-4, atol=1e-4)


def embedding_sharded_by_rows(me: Rank) -> None:
    """A lookup and the sum over the processes in one graph, or apart, with a break between them."""
    mesh = mesh_of(me)

    def looked_up(table: DTensor, at: torch.Tensor) -> DTensor:
        return F.embedding(DTensor.from_local(at, mesh, [Replicate()], run_check=False), table)

    def together(table: DTensor, at: torch.Tensor) -> torch.Tensor:
        return looked_up(table, at).redistribute(placements=[Replicate()]).to_local() * 2

    def apart(table: DTensor, at: torch.Tensor) -> torch.Tensor:
        rows = looked_up(table, at)
        pyframe.graph_break()
        return rows.redistribute(placements=[Replicate()]).to_local() * 2

    generator = torch.Generator().manual_seed(11)
    whole_table = torch.randn(10, WIDTH, generator=generator).to(me.device)
    for program, breaks in ((together, False), (apart, True)):
        fast, found = pyframe.compile(program), []
        counters.clear()
        for call in (program, fast):
            table = distribute_tensor(whole_table, mesh, [Shard(0)]).requires_grad_()
            for step in range(3):
                at = torch.randint(0, 10, (3, 5), generator=torch.Generator().manual_seed(step)).to(me.device)
                y = call(table, at)
                y.square().sum().backward()
                with torch.no_grad():
                    found.append((y.detach(), call(table, at)))
            found.append(whole(table.grad))
        torch.testing.assert_close(found[4:], found[:4], rtol=1e-4, atol=1e-4)
        assert bool(counters["graph_breaks"]) is breaks, (program.__name__, counters["graph_breaks"])


def saved_and_loaded(me: Rank) -> None:
    """The parallel model's state, of DTensors, goes into a new compiled model."""
    torch.manual_seed(3)
    first = _parallel(me, Transformer().to(me.device))
    second = _parallel(me, copy.deepcopy(Transformer().to(me.device)))
    x = sequences(batches(me, WIDTH, rows=2 * LENGTH)[0])
    fast, other = pyframe.compile(first), pyframe.compile(second)
    want = fast(x)
    assert not torch.allclose(other(x), want)
    other.load_state_dict(fast.state_dict())
    torch.testing.assert_close(other(x), want)
    torch.testing.assert_close(first(x), want)


def placements_change(me: Rank) -> None:
    """A call with other placements is another capture."""
    mesh = mesh_of(me)
    fast = pyframe.compile(lambda x: x * 2 + 1)
    given = batches(me, WIDTH)[0]
    for _ in range(2):
        for placement in (Replicate(), Shard(0), Shard(1)):
            x = distribute_tensor(given, mesh, [placement])
            y = fast(x)
            assert y.placements == (placement,)
            torch.testing.assert_close(y.full_tensor(), given * 2 + 1)


