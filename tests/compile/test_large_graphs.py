"""Compilation takes time in proportion to the graph: what it does for each operator does not grow with their number."""

from __future__ import annotations

import gc
import random
import time

import pytest
import torch

from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.codegen import codegen
from inductor.lower import lower_graph
from inductor.runtime.arena import ALIGNMENT, Range, plan_arena
from inductor.schedule import schedule
from inductor.schedule.dependencies import CycleError, Dependencies


def products(count: int) -> torch.fx.GraphModule:
    """A chain of products of matrices, each a call of ATen."""
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    for _ in range(count):
        x = graph.call_function(torch.mm, (x, w))
    graph.output(x)
    return torch.fx.GraphModule({}, graph)


def sums_of_products(count: int) -> torch.fx.GraphModule:
    """Calls of ATen and loops in turn, all of which read one tensor."""
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    for _ in range(count // 2):
        x = graph.call_function(torch.add, (graph.call_function(torch.mm, (x, w)), w))
    graph.output(x)
    return torch.fx.GraphModule({}, graph)


def seconds(make, count: int) -> float:
    """Of what follows the trace, which is torch's: lowering, scheduling and code generation."""
    aten = to_aten(make(count), [torch.ones(4, 4), torch.ones(4, 4)], decompositions())
    gc.collect()
    gc.disable()  # collections look at all that the process holds
    try:
        start = time.process_time()
        graph = lower_graph(aten.graph, aten.shared)
        codegen(schedule(graph), graph)
        return time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [products, sums_of_products])
def test_time_grows_with_the_number_of_operators(make) -> None:
    """Eight times the operators take at most sixteen times as long; what is quadratic takes sixty-four times."""
    seconds(make, 64)
    short, long = (min(seconds(make, count) for _ in range(3)) for count in (250, 2000))
    assert long < 16 * short


@pytest.mark.parametrize("seed", range(50))
def test_dependencies_of_random_graphs(seed: int) -> None:
    """Against a search that knows no order: units added, edges inserted, units merged."""
    draw = random.Random(seed)
    found = Dependencies()
    before: dict[int, set[int]] = {}

    def ancestors(n: int) -> set[int]:
        seen, stack = set(), list(before[n])
        while stack:
            m = stack.pop()
            if m not in seen:
                seen.add(m)
                stack.extend(before[m])
        return seen

    for n in range(40):
        before[n] = set(draw.sample(sorted(before), min(len(before), draw.randint(0, 3))))
        found.add(n, before[n])
        a, b = draw.choice(sorted(before)), draw.choice(sorted(before))
        if a == b:
            continue
        if b in ancestors(a):
            if b not in before[a]:
                with pytest.raises(CycleError):
                    found.insert(a, b)
        elif draw.random() < 0.5:
            found.insert(a, b)
            before[b].add(a)
        elif a not in set().union(*(ancestors(m) for m in before[b] - {a})):  # no third unit between them
            found.merge(a, b)
            before[b] |= before.pop(a) - {b}
            before = {m: {b if x == a else x for x in xs} - {m} for m, xs in before.items()}
        units, on = (set(draw.sample(sorted(before), min(len(before), 4))) for _ in range(2))
        reached = units.union(*(ancestors(m) for m in units))
        assert found.depends(units, on) == on & reached
        assert found.before == before
        assert all(found.position[m] < found.position[k] for k in before for m in before[k])


def test_dependencies_too_far_back_are_taken_for_granted() -> None:
    found = Dependencies()
    for n in range(3000):
        found.add(n, {n - 1} if n > 1 else ())
    assert found.depends({2999}, {2900, 1, 0}) == {2900, 1, 0}  # nothing depends on 0, but it is out of sight


@pytest.mark.parametrize("seed", range(20))
def test_no_two_live_buffers_share_memory(seed: int) -> None:
    """Each lies at the lowest place that is free of all larger ones that are live with it."""
    draw = random.Random(seed)
    ranges = []
    for name in range(draw.randint(0, 40)):
        first = draw.randrange(60)
        ranges.append(Range(name, draw.choice([0, 4, 64, 100, 1000, 4096]), first, first + draw.choice([0, 1, 5, 50])))
    offsets, nbytes = plan_arena(ranges)

    def end(r: Range) -> int:
        return offsets[r.name] + max(ALIGNMENT, -(-r.nbytes // ALIGNMENT) * ALIGNMENT)

    assert nbytes == max(map(end, ranges), default=0)
    order = sorted(ranges, key=lambda r: (-r.nbytes, r.first, str(r.name)))
    for k, r in enumerate(order):
        live = [o for o in order[:k] if not (o.last < r.first or r.last < o.first)]
        size = end(r) - offsets[r.name]

        def fits(at: int) -> bool:
            return all(at + size <= offsets[o.name] or end(o) <= at for o in live)

        assert offsets[r.name] == next(at for at in sorted({0, *map(end, live)}) if fits(at))
