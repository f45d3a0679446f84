"""Programs that call collectives themselves. Each runs on every rank and compares eager with compiled calls."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
from distributed_models import WIDTH, mlp
from ranks import Rank
from torch.nn.parallel import DistributedDataParallel as DDP

import pyframe
from inductor.passes import collective_buckets
from pyframe.metrics import counters


def given(me: Rank, *shape: int, seed: int = 0) -> torch.Tensor:
    """A tensor that differs from rank to rank."""
    generator = torch.Generator().manual_seed(100 * seed + me.rank)
    return torch.randn(*shape, generator=generator).to(me.device)


def same(
    me: Rank, program: Callable[..., Any], *args: torch.Tensor, graphs: int = 1, fullgraph: bool = False,
    options: dict[str, Any] | None = None,
) -> None:
    """A function and its compiled form return the same, and write the same to their arguments; so in a second call."""
    fast = pyframe.compile(program, fullgraph=fullgraph, options=options)
    before = counters["graphs"]
    for _ in range(2):
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        want = program(*theirs)
        got = fast(*mine)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine, theirs)
    assert counters["graphs"] - before >= graphs
    assert counters["fallbacks"] == 0


def functional_all_reduce(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        return y + funcol.all_reduce(x.sin(), "max", dist.group.WORLD)

    same(me, program, given(me, 4, 5), fullgraph=True)


def functional_gather_and_scatter(me: Rank) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gathered = funcol.all_gather_tensor(x + 1, 0, dist.group.WORLD)
        columns = funcol.all_gather_tensor(x, 1, dist.group.WORLD)
        part = funcol.reduce_scatter_tensor(gathered * 2, "sum", 0, dist.group.WORLD)
        return gathered, columns.cos(), part - x

    same(me, program, given(me, 4, 6), fullgraph=True)


def functional_all_to_all(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_to_all_single(x * 3, None, None, dist.group.WORLD).relu()

    same(me, program, given(me, 2 * me.world, 3), fullgraph=True)


def functional_broadcast(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return funcol.broadcast(x + 1, 0, dist.group.WORLD) * 2

    same(me, program, given(me, 3, 3), fullgraph=True)


def functional_coalesced(me: Rank) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = funcol.all_reduce_coalesced([x + 1, y * 2], "sum", dist.group.WORLD)
        third, fourth = funcol.all_gather_into_tensor_coalesced([x, y], dist.group.WORLD)
        return first + 1, second, third.sum(), fourth

    same(me, program, given(me, 4), given(me, 3, 2, seed=1))


def joined(me: Rank) -> None:
    """Collectives that `bucket_collectives` joins, of several kinds and shapes."""
    group, mean = dist.group.WORLD, "avg" if me.device_type == "cuda" else "sum"  # gloo has no mean

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = funcol.all_reduce(x * 2, "sum", group)
        b = funcol.all_reduce(y.sin(), "sum", group)
        c = funcol.all_reduce(b + a.sum(), "sum", group)  # needs the others
        d, e = funcol.all_gather_tensor(x, 0, group), funcol.all_gather_tensor(y * 2, 0, group)
        f = funcol.reduce_scatter_tensor(d + 1, mean, 0, group)
        g = funcol.reduce_scatter_tensor(e * 2, mean, 0, group)
        return a, b.cos(), c, d, e.mean(), f, g

    with joins() as found:
        same(me, program, given(me, 4, 5), given(me, 3, seed=1), fullgraph=True, options=JOINED)
    assert found() == 3


def joined_with_gradients(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = funcol.all_gather_tensor_autograd(x.sin(), 0, dist.group.WORLD)
        z = funcol.all_gather_tensor_autograd(x.cos(), 0, dist.group.WORLD)
        return (y * y).exp() + z * z  # eager's NCCL refuses a gradient that is expanded, as that of a sum of `z` is

    with joins() as found:
        same_gradients(me, program, JOINED)
    assert found() == 2  # in the forward, and the reductions in the backward


JOINED = {"bucket_collectives": True, "cache": False}


@contextlib.contextmanager
def joins() -> Iterator[Callable[[], int]]:
    """Counts the calls of collectives with joined inputs that graphs have while they are compiled."""
    counts = []
    run = collective_buckets._joined

    def counted(*args: Any) -> Any:
        counts.append(len(args[1]))
        return run(*args)

    collective_buckets._joined = counted
    try:
        yield lambda: len(counts)
    finally:
        collective_buckets._joined = run


def same_gradients(me: Rank, program: Callable[[torch.Tensor], torch.Tensor], options: dict[str, Any] | None = None) -> None:
    """Eager and two calls of the compiled program agree: the result, and the gradient of the input."""
    fast = pyframe.compile(program, options=options)
    start = given(me, 4, 5)
    for _ in range(2):
        found = []
        for fn in (program, fast):
            x = start.clone().requires_grad_()
            y = fn(x)
            y.sum().backward()
            found.append((y.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0])


def with_gradients(me: Rank) -> None:
    """Collectives that autograd differentiates, in the forward of a compiled graph."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = funcol.all_gather_tensor_autograd(x.sin(), 0, dist.group.WORLD)
        z = funcol.reduce_scatter_tensor_autograd(y * y, "sum", 0, dist.group.WORLD)
        return z.exp()

    same_gradients(me, program)


def differentiable_functions(me: Rank) -> None:
    """The autograd functions of `torch.distributed.nn`."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = differentiable.all_reduce(x.sin())
        return torch.cat(differentiable.all_gather(y * 2)).exp()

    same_gradients(me, program)


def in_place(me: Rank) -> None:
    """`torch.distributed` functions that write to their arguments."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        dist.all_reduce(y)
        gathered = torch.empty(me.world * y.shape[0], y.shape[1], device=y.device)
        dist.all_gather_into_tensor(gathered, y + 1)
        parts = [torch.empty_like(y) for _ in range(me.world)]
        dist.all_gather(parts, y)
        part = torch.empty_like(y)
        dist.reduce_scatter_tensor(part, gathered)
        dist.broadcast(part, 0)
        return y, gathered, torch.stack(parts), part.relu()

    same(me, program, given(me, 2, 3))


def in_place_in_one_graph(me: Rank) -> None:
    """Functions that write to their arguments are captured, with their reductions, shapes and groups."""
    group = dist.new_group(list(range(me.world)))

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total, most = x * 2, y.clone()
        dist.all_reduce(total)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        whole, columns = x.new_empty(me.world * 2, 3), x.new_empty(me.world * 3, 2)
        dist.all_gather_into_tensor(whole, x + 1)
        dist.all_gather_into_tensor(columns, x.t().contiguous(), group=group)
        parts = [torch.empty_like(x) for _ in range(me.world)]
        dist.all_gather(parts, total.sin())
        part, other = torch.empty_like(x), x.new_empty(3, 2)
        dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.SUM)
        dist.reduce_scatter_tensor(other, columns)
        swapped = torch.empty_like(whole)
        dist.all_to_all_single(swapped, whole * (me.rank + 1))
        sent = swapped * 2
        dist.broadcast(sent, src=me.world - 1)
        return total, most, columns.cos(), torch.stack(parts), part.relu(), other, swapped, sent

    same(me, program, given(me, 2, 3), given(me, 4, seed=1), fullgraph=True)


def in_place_of_gradients(me: Rank) -> None:
    """The mean of the gradients over all processes, in one graph with the loss; a tensor that autograd follows runs
    eagerly."""
    model = mlp().to(me.device)

    @torch.no_grad()
    def mean_of_gradients() -> list[torch.Tensor]:
        found = [p.grad / me.world for p in model.parameters()]
        for x in found:
            dist.all_reduce(x)
        return found

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y.square().sum()

    model(given(me, 4, WIDTH)).square().mean().backward()
    torch.testing.assert_close(pyframe.compile(mean_of_gradients, fullgraph=True)(), mean_of_gradients())
    found = []
    for call in (written, pyframe.compile(written)):
        x = given(me, 3).requires_grad_()
        call(x).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def in_place_on_an_argument(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return x + 1

    same(me, program, given(me, 2, 3))


def asynchronous(me: Rank) -> None:
    """`async_op=True` with computations between start and wait."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = (x.sin() @ x.t()).exp()
        work.wait()
        return y + 1, z

    same(me, program, given(me, 4, 4))


def asynchronous_group(me: Rank) -> None:
    """Several collectives are started in a loop and waited for in another."""

    def program(*xs: torch.Tensor) -> list[torch.Tensor]:
        ys = [x * 2 for x in xs]
        works = [dist.all_reduce(y, async_op=True) for y in ys]
        for work in works:
            work.wait()
        return [y.sin() for y in ys]

    same(me, program, *(given(me, 3, n, seed=n) for n in (1, 2, 5)))


def point_to_point(me: Rank) -> None:
    """Sends to the next rank and receives from the one before."""
    after, before = (me.rank + 1) % me.world, (me.rank - 1) % me.world

    def program(x: torch.Tensor) -> torch.Tensor:
        y, received = x * 2, torch.empty_like(x)
        operations = [dist.P2POp(dist.isend, y, after), dist.P2POp(dist.irecv, received, before)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return received + y

    same(me, program, given(me, 3, 4))


def send_and_receive(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if me.rank == 0:
            dist.send(y, 1)
            dist.recv(y, 1)
        elif me.rank == 1:
            received = torch.empty_like(y)
            dist.recv(received, 0)
            dist.send(y + received, 0)
        return y + 1

    same(me, program, given(me, 3, 4))


def objects_and_barriers(me: Rank) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        dist.barrier()
        found = [None] * me.world
        dist.all_gather_object(found, {"rank": me.rank})
        return y * sum(each["rank"] for each in found) + dist.get_rank() + dist.get_world_size()

    same(me, program, given(me, 3, 4))


def subgroups(me: Rank) -> None:
    """A collective on a group of the program's own, which is an argument, a global or a constant."""
    group = dist.new_group(list(range(me.world)))

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + funcol.all_reduce(x, "avg" if me.device_type == "cuda" else "sum", group)

    same(me, program, given(me, 3, 4))


def data_parallel_by_hand(me: Rank) -> None:
    """A training step whose gradients the program averages itself with all_reduce."""

    def trained(compile: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = mlp().to(me.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        called = compile(model)

        @compile
        def average(gradients: list[torch.Tensor]) -> None:
            for x in gradients:
                dist.all_reduce(x)
                x /= me.world

        for step in range(3):
            optimizer.zero_grad()
            called(given(me, 4, WIDTH, seed=step)).square().mean().backward()
            average([x.grad for x in model.parameters()])
            optimizer.step()
        return [x.detach() for x in model.parameters()]

    torch.testing.assert_close(trained(pyframe.compile), trained(lambda fn: fn))


def different_graphs(me: Rank) -> None:
    """Ranks whose programs differ between the collectives do not wait for each other."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(me.rank + 1):  # another graph on each rank
            x = x.sin() + me.rank
        y = funcol.all_reduce(x, "sum", dist.group.WORLD)
        if me.rank == 0:
            print(end="")  # a break on one rank only
        dist.all_reduce(y)
        return y.cos()

    same(me, program, given(me, 3, 4))


def different_sizes(me: Rank) -> None:
    """One rank captures again because its sizes change, while the others find their captures."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x.square().sum(), "sum", dist.group.WORLD) + 1

    fast = pyframe.compile(program)
    for n in range(2, 7):
        x = given(me, n if me.rank == 0 else 3, 4, seed=n)
        torch.testing.assert_close(fast(x), program(x))


def result_used_on_one_rank(me: Rank) -> None:
    """A collective whose result only rank 0 uses starts on all ranks, as in eager."""

    def program(x: torch.Tensor) -> torch.Tensor:
        total = funcol.all_reduce(x.sum(), "sum", dist.group.WORLD)
        gathered = funcol.all_gather_tensor(x.sin(), 0, dist.group.WORLD)
        return x + total + gathered.sum() if me.rank == 0 else x.cos()

    same(me, program, given(me, 3, 4), fullgraph=True)
    dist.barrier()


def result_of_a_gradient_used_on_one_rank(me: Rank) -> None:
    """The same in a graph with gradients."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = x.square().mean()
        mean = funcol.all_reduce(loss.detach(), "sum", dist.group.WORLD)
        return loss, mean if me.rank == 0 else loss.detach()

    fast = pyframe.compile(program)
    for _ in range(2):
        found = []
        for fn in (program, fast):
            x = given(me, 3, 4).requires_grad_()
            loss, mean = fn(x)
            loss.backward()
            found.append((loss.detach(), torch.as_tensor(mean).clone(), x.grad))
        torch.testing.assert_close(found[1], found[0])
    dist.barrier()


def one_rank_has_a_cache(me: Rank, folder: str) -> None:
    """Rank 0 finds all graphs and kernels in its cache, while the others compile: DDP and collectives wait for them."""
    os.environ["PYFRAME_CACHE_DIR"] = f"{folder}/{me.rank}"

    def trained() -> list[torch.Tensor]:
        pyframe.reset()
        torch.manual_seed(3)
        wrapped = DDP(pyframe.compile(mlp().to(me.device)), bucket_cap_mb=0.002)
        total = pyframe.compile(lambda x: funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1)
        losses = []
        for step in range(2):
            wrapped.zero_grad()
            loss = wrapped(given(me, 4, WIDTH, seed=step)).square().mean()
            loss.backward()
            losses.append(total(loss.detach()))
        return [*losses, *(x.grad for x in wrapped.parameters())]

    want = trained()
    if me.rank != 0:
        shutil.rmtree(os.environ["PYFRAME_CACHE_DIR"])
    torch.testing.assert_close(trained(), want)
    assert (counters["cache_misses"] == 0) == (me.rank == 0)
    del os.environ["PYFRAME_CACHE_DIR"]
