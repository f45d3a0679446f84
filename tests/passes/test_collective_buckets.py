"""Which collectives are joined, and that the graph keeps its meaning: the operators are replaced by models in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives  # noqa: F401  registers the operators' fake implementations
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor.passes.collective_buckets import MAX_BYTES, joined_collectives

ops = torch.ops._c10d_functional
RANKS = 2
# What each operator computes if rank r has r + 1 times the values of rank 0, for rank 0.
MODELS: dict[Any, Callable[..., torch.Tensor]] = {
    ops.all_reduce.default: lambda x, op, group: x + 2 * x if op == "sum" else torch.maximum(x, 2 * x),
    ops.all_gather_into_tensor.default: lambda x, ranks, group: torch.cat([x, 2 * x]),
    ops.reduce_scatter_tensor.default: lambda x, op, ranks, group: 3 * x[: x.shape[0] // ranks],
    ops.broadcast.default: lambda x, source, group: x.clone(),
    ops.wait_tensor.default: lambda x: x,
}


def reduced(x: torch.Tensor, op: str = "sum", group: str = "0") -> torch.Tensor:
    return ops.wait_tensor(ops.all_reduce(x, op, group))


def gathered(x: torch.Tensor) -> torch.Tensor:
    return ops.wait_tensor(ops.all_gather_into_tensor(x, RANKS, "0"))


def scattered(x: torch.Tensor) -> torch.Tensor:
    return ops.wait_tensor(ops.reduce_scatter_tensor(x, "sum", RANKS, "0"))


class _Modelled(fx.Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return MODELS.get(target, target)(*args, **kwargs)


def starts(gm: fx.GraphModule) -> list[tuple[str, int]]:
    """The collectives in order: operator and number of elements of the input."""
    found = [node for node in gm.graph.nodes if node.target in MODELS and node.target is not ops.wait_tensor.default]
    return [(node.target.overloadpacket.__name__, node.args[0].meta["val"].numel()) for node in found]


def check(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> list[tuple[str, int]]:
    """The collectives after the pass; results are the same as before it."""
    inputs = [torch.randn(shape) for shape in shapes]
    mode = FakeTensorMode()
    gm = make_fx(fn, tracing_mode="fake")(*map(mode.from_tensor, inputs))
    before, want = starts(gm), _Modelled(gm).run(*(x.clone() for x in inputs))
    changed = joined_collectives(gm)
    got = _Modelled(gm).run(*inputs)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert [x.stride() for x in got] == [x.stride() for x in want]
    assert changed == (starts(gm) != before)
    return starts(gm)


def test_all_reductions() -> None:
    assert check(lambda x, y: (reduced(x * 2) + 1, reduced(y.sin())), (3, 4), (5,)) == [("all_reduce", 17)]


def test_gatherings_and_scatterings() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gathered(x), gathered(y + 1) * 2, scattered(x), scattered(y.exp()).sin()

    joined = [("all_gather_into_tensor", 8 + 36), ("reduce_scatter_tensor", 8 + 36)]
    assert check(fn, (2, 4), (4, 3, 3)) == joined


def test_users_of_an_early_result_move_behind_the_last_start() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x).cos() + y.sum()
        b = a.view(-1)[:2]
        return a, b, reduced(y * 2)

    assert check(fn, (3, 4), (5,)) == [("all_reduce", 17)]


def test_one_that_needs_the_result_of_another_is_not_joined_to_it() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x)
        return reduced(a * 2), reduced(y), reduced(y + 1)

    assert check(fn, (3,), (4,)) == [("all_reduce", 3), ("all_reduce", 3 + 4 + 4)]


@pytest.mark.parametrize("other", [
    lambda y: reduced(y, op="max"), lambda y: reduced(y, group="1"), lambda y: reduced(y.double()), gathered,
    lambda y: ops.wait_tensor(ops.broadcast(y, 0, "0")),
], ids=["reduction", "group", "dtype", "kind", "broadcast"])  # fmt: skip
def test_other_collectives_end_a_bucket(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = check(lambda x, y: (reduced(x), other(y), reduced(x + 1)), (3,), (4,))
    assert [size for _, size in found] == [3, 4, 3]


def test_buckets_have_a_limit() -> None:
    count = MAX_BYTES // 4 // 3
    found = check(lambda x: tuple(reduced(x * k) for k in range(5)), (count,))
    assert found == [("all_reduce", 3 * count), ("all_reduce", 2 * count)]


def test_memory_with_gaps_or_another_order_is_not_joined() -> None:
    found = check(lambda x: (reduced(x.t()), reduced(x[:, :2]), reduced(x), reduced(x + 1)), (3, 4))
    assert [size for _, size in found] == [12, 6, 24]


def test_writes_and_random_numbers_stay_where_they_are() -> None:
    def writes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x)
        b = a * 2
        x.add_(1)
        return b, reduced(x * 3)

    def draws(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = reduced(x)
        b = torch.bernoulli(a.sigmoid() * 0 + 1)
        return b, reduced(x * 3)

    for fn in (writes, draws):
        assert check(fn, (3,)) == [("all_reduce", 3)] * 2
