"""A backward in stages computes what the whole backward computes, bit for bit, and passes on only what it has to."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from inductor.aot.backward_stages import StagedBackward, split_backward
from inductor.aot.gradient_buckets import BucketSizes
from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.fx_utils.arguments import results_of


def taking(gm: fx.GraphModule):
    return lambda given: list(gm(*given))


def traced(fn, *args: torch.Tensor) -> fx.GraphModule:
    with FakeTensorMode() as mode:
        return make_fx(fn)(*[mode.from_tensor(x) for x in args])


def staged(gm: fx.GraphModule, first: int, others: int, bucketed: list[bool] | None = None) -> StagedBackward | None:
    found = split_backward(gm, bucketed or [True] * len(results_of(gm.graph)), BucketSizes(first, others))
    return found and StagedBackward(found[0], [taking(graph) for graph in found[1]])


def chain(x, w1, w2, w3):
    """A backward by hand, from the last weight to the first."""
    third = x.t() @ x
    x = (x @ w3).tanh()
    second = x.t() @ x
    x = (x @ w2).tanh()
    return [x.t() @ x, second, third, x @ w1]


def views(x, w):
    """A view of an early value, and the value itself, are needed late; one gradient is a view of another."""
    y = x * 2
    z = y.t()
    return [y.sum(0), z, (z @ w), (y @ w).view(-1), z]


def several_results(x, w):
    """Results of one operator belong to several stages."""
    values, places = x.topk(2, 1)
    return [places.float() @ w[:2], (values @ w[:2]), values.exp()]


@pytest.mark.parametrize("fn", [chain, views, several_results], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("size", [1, 100, 600])
def test_stages_compute_what_the_whole_computes(fn, size: int) -> None:
    args = [torch.randn(12, 12) for _ in range(fn.__code__.co_argcount)]
    gm = traced(fn, *args)
    whole = list(gm(*args))
    stages = staged(gm, size, size)
    assert stages is not None
    if size == 1:
        assert len(stages.staging.stages) == len(whole)
    given = list(args)
    torch.testing.assert_close(stages.take(given), whole, rtol=0, atol=0)
    assert given == []
    run, found = stages.begin(list(args)), {}
    for stage in stages.staging.stages:
        found |= dict(zip(stage.gradients, run.advance(), strict=True))
    assert sorted(found) == list(range(len(whole)))
    assert all(x is None for x in run.values), "each value is dropped after its last use"


def test_what_a_gradient_is_written_to_does_not_change_later_stages() -> None:
    """Autograd and DDP write to the memory of gradients that they own."""
    args = [torch.randn(12, 12) for _ in range(2)]
    gm = traced(views, *args)
    whole = list(gm(*args))
    stages = staged(gm, 1, 1)
    run, found = stages.begin(list(args)), {}
    for stage in stages.staging.stages:
        for k, x in zip(stage.gradients, run.advance(), strict=True):
            found[k] = x.clone()
            x.zero_()
    torch.testing.assert_close([found[k] for k in range(len(whole))], whole, rtol=0, atol=0)


def test_random_numbers_are_drawn_in_the_order_of_the_graph() -> None:
    def fn(x):
        early = torch.rand_like(x)
        first = x * torch.rand_like(x)
        return [first, x * early]

    x = torch.randn(8, 8)
    gm = traced(fn, x)
    torch.manual_seed(1)
    whole = list(gm(x))
    torch.manual_seed(1)
    torch.testing.assert_close(staged(gm, 1, 1).take([x]), whole, rtol=0, atol=0)


def test_small_backwards_are_not_divided() -> None:
    args = [torch.randn(12, 12) for _ in range(4)]
    assert staged(traced(chain, *args), 1 << 20, 25 << 20) is None
    assert staged(traced(chain, *args), 1, 1, [False, False, False, True]) is None  # the only bucketed one comes last


def test_stages_of_a_network_follow_its_layers() -> None:
    """Each stage of a network's backward takes the saved tensors of its layers only; one tensor passes from stage to
    stage."""
    depth, width = 4, 16
    model = nn.Sequential(*(module for _ in range(depth) for module in (nn.Linear(width, width), nn.Tanh())))
    layer = width * width * 4 + width * 4
    gm = fx.symbolic_trace(model)
    joint = to_joint(gm, [torch.randn(3, width, requires_grad=True)])
    halves = partition(joint)
    given = results_of(halves.backward.graph)
    bucketed = [node.meta["val"].shape != (3, width) for node in given]
    staging, graphs = split_backward(halves.backward, bucketed, BucketSizes(layer, layer))
    assert len(graphs) == depth
    for stage in staging.stages[:-1]:
        assert len(stage.passed) == 1
    saved = [len(stage.arguments) for stage in staging.stages]
    assert max(saved) <= 5, saved


def test_cross_entropy_and_shared_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.hidden = nn.Linear(8, 8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.hidden(self.table(ids)).relu()
            return F.cross_entropy(x @ self.table.weight.t(), ids)

    gm = fx.symbolic_trace(Tied())
    joint = to_joint(gm, [torch.arange(6)])
    halves = partition(joint)
    args = [torch.randn_like(_real(node)) if _real(node).is_floating_point() else torch.zeros_like(_real(node))
            for node in halves.backward.graph.find_nodes(op="placeholder")]  # fmt: skip
    whole = list(halves.backward(*args))
    torch.testing.assert_close(staged(halves.backward, 1, 1).take(list(args)), whole, rtol=0, atol=0)


def _real(node: fx.Node) -> torch.Tensor:
    value = node.meta["val"]
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
