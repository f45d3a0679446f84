"""torch's generators and seeds inside traced code: eager's numbers, and eager's states after each call."""
# ruff: noqa: E501, E701, E702

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from language_support import Table, X, same
from torch import nn

import pyframe
from pyframe.metrics import counters
from pyframe.testing import EagerAndRecordGraphs

G = torch.Generator()
whole = Table()  # one graph
broken = Table()  # with breaks


class Noise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.weight.data = torch.arange(9.0).reshape(3, 3) / 9
        self.linear.bias.data.zero_()
        self.generator = torch.Generator()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.rand(x.shape, generator=self.generator) < 0.7
        return F.dropout(self.linear(x) * mask, 0.3)


@whole()
def operators_that_make(x):
    return x + torch.rand(2, 3, generator=G), torch.randn(3, generator=G), torch.randint(0, 5, (4,), generator=G), torch.randperm(5, generator=G), torch.normal(x, 1.0, generator=G)


@whole()
def operators_in_place(x):
    a = x.clone().bernoulli_(0.3, generator=G), x.clone().normal_(generator=G), x.clone().uniform_(generator=G)
    b = x.clone().exponential_(generator=G), x.clone().geometric_(0.3, generator=G), x.clone().cauchy_(generator=G), x.clone().log_normal_(generator=G)
    return a, b, torch.multinomial(torch.ones(4), 2, generator=G), torch.bernoulli(torch.full((3,), 0.5), generator=G)


@whole()
def in_order_with_the_default_one(x):
    a = torch.rand(2), torch.rand(2, generator=G), torch.rand(2, generator=torch.default_generator)
    torch.rand(3)  # nobody uses it
    torch.default_generator.manual_seed(3)
    return *a, torch.rand(2), x


@whole()
def made_here(x):
    g = torch.Generator(); h = torch.Generator(device="cpu").manual_seed(3)
    g.manual_seed(4)
    return x + torch.rand(2, 3, generator=g), torch.rand(2, generator=h), g


@whole()
def kept_by_an_object(x):
    kept = {"generator": torch.Generator().manual_seed(2)}
    return torch.rand(2, **kept) + x.sum(), kept


@whole()
def states(x):
    before = G.get_state(); a = torch.rand(3, generator=G)
    G.set_state(before); b = torch.rand(3, generator=G)
    other = G.clone_state()
    return a, b, before, torch.rand(1, generator=other), torch.rand(1, generator=G), other, x


@whole()
def what_is_known(x):
    return x.to(G.device), isinstance(G, torch.Generator), G is G, G == torch.default_generator, bool(G), hasattr(G, "nothing")


@whole()
def seeds(x):
    G.manual_seed(7)
    a = torch.rand(1, generator=G), G.initial_seed()
    torch.manual_seed(-3)
    return a, x + torch.rand(2, 3), torch.initial_seed(), torch.manual_seed(8) is torch.default_generator


@whole()
def seeds_drawn_and_computed(x):
    torch.manual_seed(random.randint(0, 1000)); a = torch.rand(2)
    torch.manual_seed(int(x.sum().item()))
    return a, torch.rand(2)


@whole()
def a_seed_of_the_system(x):
    torch.seed(); G.seed()
    y = x + torch.rand(2, 3).sign() + torch.rand(1, generator=G).sign()
    torch.manual_seed(1); G.manual_seed(1)
    return y


@whole()
def seeds_of_devices_that_there_are_not(x):
    torch.cuda.manual_seed_all(3); torch.cuda.manual_seed(3)
    return x + torch.rand(1)


@whole()
def state_of_the_process(x):
    state = torch.get_rng_state(); again = state.clone()
    a = torch.rand(3); state.zero_()
    torch.set_rng_state(again)
    return a, torch.rand(3) + x.sum(), torch.get_rng_state()[0].item() + x


@whole()
def forks(x):
    a = torch.rand(2)
    with torch.random.fork_rng():
        torch.manual_seed(1); b = torch.rand(2)
        with torch.random.fork_rng(devices=[]): c = torch.rand(2)
    with torch.random.fork_rng(enabled=False): d = torch.rand(2)
    return a, b, c, d, torch.rand(2) + x.sum()


@whole()
def forked_as_a_decorator(x):
    @torch.random.fork_rng()
    def inner(x):
        torch.manual_seed(3); return x + torch.rand(2, 3)

    return inner(x), torch.rand(2)


@whole()
def of_the_library(x):
    weight = torch.empty(3, 4); nn.init.kaiming_uniform_(weight, generator=G); nn.init.normal_(weight[0], generator=G)
    first, _ = torch.utils.data.random_split(range(6), [3, 3], generator=G)
    return weight, first.indices, x


@whole()
def on_the_meta_device(x):
    return x + 1, torch.rand(2, generator=G, device="meta").shape


@whole(X, Noise())
def training(x, net):
    net.generator.manual_seed(2)
    y = net(x); torch.manual_seed(2)
    return torch.autograd.grad(net(y).square().sum(), list(net.parameters()))


@broken()
def behind_a_break(x):
    g = torch.Generator(); g.manual_seed(5)
    a = torch.rand(2, generator=g)
    pyframe.graph_break()
    torch.manual_seed(5)
    return a, torch.rand(2, generator=g), x * 2


@broken()
def breaks_in_a_loop(x):
    g = torch.Generator(); g.manual_seed(5)
    for _ in range(3):
        x = x + torch.rand(2, 3, generator=g)
        pyframe.graph_break()
        torch.manual_seed(3)
    return x


@broken()
def no_states_and_seeds(x):
    try:
        torch.set_rng_state(torch.zeros(3))
    except (TypeError, RuntimeError):
        x = x + 1
    try:
        torch.manual_seed(2**70)
    except (ValueError, RuntimeError):
        x = x + 2
    return x


@broken()
def in_a_transformed_function(x):
    return torch.vmap(lambda row: row + torch.rand(3, generator=G), randomness="different")(x) + 1


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    pyframe.reset()
    with torch.random.fork_rng(devices=[]):
        yield


def _shown(value: Any) -> Any:
    """A result with the states of generators in place of these."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value


def _run(fn: Callable[..., Any], args: Any) -> list[Any]:
    """Results and states of several calls in a row."""
    random.seed(1); torch.manual_seed(1); G.manual_seed(1)
    found = []
    for _ in range(3):
        result = _shown(fn(*args))
        own = [arg.generator.get_state() for arg in args if isinstance(arg, Noise)]
        found.append((result, torch.get_rng_state(), G.get_state(), own, random.random()))
    return found


def _check(row: Any) -> None:
    fn, args = row
    expected, got = _run(fn, args), _run(pyframe.compile(fn, backend="eager"), args)
    for want, have in zip(expected, got, strict=True):
        assert same(want, have), f"{fn.__name__}:\n  eager    {want}\n  captured {have}"


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    _check(row)
    assert counters["graphs"] == 1 and not counters["graph_breaks"] and not counters["recompiles"]


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    _check(row)
    assert counters["graphs"] and sum(counters["graph_breaks"].values())


def test_a_new_generator_for_each_call_is_one_capture() -> None:
    def f(x: torch.Tensor, g: torch.Generator, h: torch.Generator) -> torch.Tensor:
        return x + torch.rand(2, 3, generator=g) - torch.rand(2, 3, generator=h)

    compiled = pyframe.compile(f, backend="eager", fullgraph=True)
    for seed in range(3):
        pairs = [(torch.Generator().manual_seed(seed), torch.Generator().manual_seed(9)) for _ in range(2)]
        assert torch.equal(compiled(X, *pairs[0]), f(X, *pairs[1]))
    one, other = torch.Generator(), torch.Generator()
    assert torch.equal(compiled(X, one, one), f(X, other, other)) and torch.equal(one.get_state(), other.get_state())
    assert counters["graphs"] == 1


def test_nothing_is_drawn_or_seeded_while_tracing() -> None:
    states: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        states.append((torch.get_rng_state(), G.get_state()))
        return gm.forward

    def f(x: torch.Tensor) -> Any:
        torch.manual_seed(3); G.manual_seed(4)
        return x + torch.rand(1, generator=G), torch.initial_seed()

    before = torch.get_rng_state(), G.get_state()
    pyframe.compile(f, backend=backend)(X)
    assert same(before, states[0])


def test_a_mark_that_torch_puts_on_manual_seed_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "manual_seed", torch._disable_dynamo(torch.random.manual_seed))

    def f(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x + torch.rand(1)

    recorded = EagerAndRecordGraphs()
    assert torch.equal(pyframe.compile(f, backend=recorded, fullgraph=True)(X), f(X))
    assert len(recorded.graphs) == 1


def test_inductor_runs_them_in_order() -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> Any:
        g = torch.Generator().manual_seed(3)
        mask = torch.rand(2, 3, generator=g)
        torch.manual_seed(random.randint(0, 9)); state = torch.get_rng_state()
        y = F.dropout(x * weight, 0.4) * mask
        torch.rand(5)  # nobody uses it
        more = torch.randn(2, 3, generator=G)
        torch.set_rng_state(state)
        return y * torch.rand(2, 3) + more, g, *torch.autograd.grad(y.sum(), weight)

    args = X, torch.ones(2, 3, requires_grad=True)
    for want, have in zip(_run(f, args), _run(pyframe.compile(f, fullgraph=True), args), strict=True):
        torch.testing.assert_close(have[0], want[0])
        assert same(have[1:], want[1:])
    assert counters["graphs"] == 1
