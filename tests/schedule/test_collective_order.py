"""Collectives in a graph: the order of starts, computations and waits, and how long memory stays in use."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed._functional_collectives  # noqa: F401  registers the operators' fake implementations
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor.codegen import codegen
from inductor.lower import lower_graph
from inductor.runtime.plan_spec import Extern, KernelCall, Slot
from inductor.schedule import collectives as ordering
from inductor.schedule import print_schedule, schedule

ops = torch.ops._c10d_functional


def reduced(x: torch.Tensor) -> torch.Tensor:
    return ops.wait_tensor(ops.all_reduce(x, "sum", "0"))


def gathered(x: torch.Tensor) -> torch.Tensor:
    return ops.wait_tensor(ops.all_gather_into_tensor(x, 2, "0"))


def traced(fn: Callable[..., object], count: int = 2, size: int = 64) -> fx.GraphModule:
    with FakeTensorMode():
        return make_fx(fn)(*[torch.randn(size, size) for _ in range(count)])


def order(gm: fx.GraphModule) -> list[str]:
    """Starts, waits, products and kernels in order of execution."""
    lines = print_schedule(schedule(lower_graph(gm))).split("\n")
    names = {"all_reduce": "reduce", "all_gather_into": "gather", "wait_tensor": "wait", "aten.mm": "mm"}
    return [next((short for long, short in names.items() if long in line), "kernel") for line in lines]


def test_independent_work_is_done_between_start_and_wait() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x * 2)
        b = y @ y
        return a + 1, b @ b

    assert order(traced(fn)) == ["kernel", "reduce", "mm", "mm", "wait", "kernel"]


def test_a_collective_starts_before_work_that_precedes_it_in_the_program() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = y @ y
        c = b @ b
        return reduced(x * 2) + 1, c

    assert order(traced(fn)) == ["kernel", "reduce", "mm", "mm", "wait", "kernel"]


def test_several_collectives_are_under_way_at_once_and_start_in_program_order() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x @ y)
        b = gathered(y)
        c = y @ y
        return a.exp(), b.sin(), c

    # the gathering needs nothing, but must not overtake the reduction
    assert order(traced(fn)) == ["mm", "reduce", "gather", "mm", "wait", "kernel", "wait", "kernel"]


def test_a_chain_of_collectives_stays_a_chain() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (reduced(reduced(x * 2) * 3) + y,)

    assert order(traced(fn)) == ["kernel", "reduce", "wait", "kernel", "reduce", "wait", "kernel"]


def test_collectives_ahead_of_other_work_use_limited_memory(monkeypatch) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(gathered(x * k).sum() + (y @ y).sum() for k in range(2, 5))

    assert order(traced(fn))[:4] == ["kernel", "gather", "gather", "gather"]
    monkeypatch.setattr(ordering, "MAX_BYTES", 3 * 64 * 64 * 4)  # one result has two times this many elements
    found = order(traced(fn))
    starts = [k for k, name in enumerate(found) if name == "gather"]
    assert "wait" in found[starts[0] : starts[1]] or "mm" in found[starts[0] : starts[1]]
    assert found.count("gather") == found.count("wait") == 3


def test_memory_that_a_collective_reads_is_not_reused_before_the_wait() -> None:
    """The gathering reads x * 2 until it is waited for; the products in between need memory of the same size."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = gathered(x * 2)
        b = ((y @ y).exp() @ y).sin() @ y
        return a.sum(), b.sum()

    _, plan = codegen(schedule(lower_graph(traced(fn))), lower_graph(traced(fn)))
    steps = list(plan.steps)
    start = next(k for k, step in enumerate(steps) if isinstance(step, Extern) and "all_gather" in step.target)
    wait = next(k for k, step in enumerate(steps) if isinstance(step, Extern) and "wait" in step.target)
    assert any(isinstance(step, KernelCall) for step in steps[start:wait])
    read = steps[start].args[0].buf
    offset = next(step.offset for step in steps if isinstance(step, Slot) and step.buf == read)
    assert all(step.offset != offset for step in steps[start:wait] if isinstance(step, Slot))


def test_an_input_that_a_collective_reads_is_written_after_the_wait() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        a = gathered(x)
        b = (y @ y) @ y
        x.copy_(b)
        return (a.sum(),)

    found = print_schedule(schedule(lower_graph(traced(fn)))).split("\n")
    wait = next(k for k, line in enumerate(found) if "wait" in line)
    assert any("copy" in line or "in0" in line.partition("->")[2] for line in found[wait:]), found
    assert not any("in0" in line.partition("->")[2] for line in found[:wait]), found
