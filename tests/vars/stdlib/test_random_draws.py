"""Random numbers of Python and numpy inside traced code: each call draws the numbers that eager draws."""
# ruff: noqa: E501, E702

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from language_support import Table, X, same

import pyframe
from pyframe.metrics import counters
from pyframe.vars.stdlib.rng_guards import RngBranchGuard

whole = Table()  # one graph
broken = Table()  # with breaks
predicted = Table()  # a capture for each way that the program may go


class Augment:
    def __init__(self) -> None:
        self.rng = random.Random(5)
        self.legacy = np.random.RandomState(3)
        self.modern = np.random.default_rng(3)


@whole()
def floats(x):
    return x * random.random() + random.uniform(1, 2) - random.gauss(0, 1), random.betavariate(2.0, 1.0)


@whole()
def twice_is_two_numbers(x):
    return x * random.random(), x * random.random()


@whole()
def ints_as_numbers_and_sizes(x):
    n = random.randint(2, 9)
    return torch.zeros(n).sum() + x * random.randrange(5) + random.getrandbits(3), n


@whole()
def ints_as_indices(x):
    i, j = random.randrange(2), random.randint(0, 1)
    return x[i], x[:, j], x[..., None, j], x[i : i + 1, j : j + 2], x.roll(i, 0), x.select(0, j)


@whole()
def items(x):
    a, b = random.choices([1.5, 2.5, 4.0], k=2)
    return x * random.choice([1, 2, 3]) + a - b, random.sample(range(10), 3)


@whole()
def from_large_ranges(x):
    a, b = random.randrange(10**12), random.choice(range(10**12))
    return x * a + b, random.sample(range(10**12), 3), random.randrange(7, 10**12, 5)


@whole()
def one_of_many(x):
    return x + [10.0, 20.0, 30.0, 40.0, 50.0, 60.0][random.randrange(6)]


@whole()
def lists_changed_afterwards(x):
    items = [1.5, 2.5]
    a = random.choice(items); items.append(9.0)
    b = random.choice(items); items.clear()
    return x * a + b, items


@whole()
def shuffled(x):
    order, weights = [1, 2, 3, 4], [0.5, 1.5, 2.5]
    random.shuffle(order); random.shuffle(weights)
    return x * weights[0] + order[0] - weights[2], order, weights, random.random()


@whole()
def loops(x):
    return torch.stack([x * random.random() for _ in range(4)])


@whole()
def seeded(x):
    random.seed(3); np.random.seed(4)
    return x * random.random() + np.random.rand()


@whole()
def state_read_and_set(x):
    state = random.getstate()
    a = x * random.random()
    random.setstate(state)
    return a, x * random.random()


@whole()
def a_generator_made_here(x):
    r, q = random.Random(7), np.random.RandomState(2)
    return x * r.random() + np.random.default_rng(3).random() + q.uniform(1, 2), r.randint(0, 9), r.random()


@whole(X, Augment())
def generators_of_an_object(x, a):
    return x * a.rng.random() + a.legacy.rand() - a.modern.random(), a.rng.randint(0, 3)


@whole()
def numbers_of_numpy(x):
    lam = np.random.beta(1.0, 2.0)
    return lam * x + (1 - lam) * x.flip(0) + np.random.randint(0, 10) + np.random.choice([1, 2, 3]), lam


@whole(X, Augment())
def scalars_with_a_type_of_their_own(x, a):
    n = a.modern.integers(0, 5)
    return x + n, n * x, x < n, n


@whole()
def arrays_of_numpy(x):
    noise = np.random.randn(2, 3)
    return x + torch.from_numpy(noise).float(), x[:, torch.as_tensor(np.random.permutation(3))], noise


@whole(X, 4)
def arguments_that_vary(x, n):
    return x * random.uniform(0, n) + random.randint(0, n)


@broken()
def many_branches(x):
    for layer in range(6):
        if random.random() < 0.5:
            x = x + layer
    return x * random.uniform(0.5, 1.5)


@broken()
def branches_on_what_a_seed_of_here_gives(x):
    random.seed(3); np.random.seed(5)
    if random.random() < 0.5 and np.random.rand() < 0.5:
        x = x.flip(0)
    return x * random.uniform(0.5, 1.5)


@broken()
def behind_a_break(x):
    y = x * random.random()
    print("between")
    return y + random.random(), random.random()


@broken()
def objects_shuffled(x):
    items = ["a", 2, 3.0, x]
    y = x + random.random()
    random.shuffle(items)
    return y * random.random(), items[0] is x


@broken()
def as_text(x):
    return x + 1, f"{random.random():.3f}"


@broken()
def not_all_of_one_type(x):
    return x * random.sample([1, 2.5, 3], 1)[0], random.choices(["a", "b"])


@broken()
def in_a_transformed_function(x):
    return torch.vmap(lambda row: row * random.random())(x) + 1


@broken()
def in_a_try(x):
    try:
        y = x + random.randint(5, 1)
    except ValueError:
        y = x - random.random()
    return y


@predicted()
def a_branch(x):
    if random.random() < 0.5:
        x = x.flip(0)
    return x * random.uniform(0.5, 1.5)


@predicted()
def a_branch_after_other_draws(x):
    a, b = random.gauss(0, 1), np.random.randn()
    if np.random.randn() < b and random.randint(0, 1):
        x = x + a
    return x - b, np.random.randn(), random.random()


@predicted(X, Augment())
def branches_on_generators_of_an_object(x, a):
    flip, legacy = a.rng.random() < 0.5, a.legacy.randn()
    a.modern.random()
    return x.flip(0) if flip else x, x + 1 if a.modern.random() < 0.3 else x * legacy, a.legacy.randn()


@predicted()
def nothing_to_compute_on_one_side(x):
    return x if random.random() < 0.5 else x.sin()


@predicted()
def one_of_some_objects(x):
    return random.choice([torch.sin, torch.cos])(x), random.choice(("a", "b"))


@predicted()
def an_index_of_a_list(x):
    return [torch.sin, torch.cos, torch.exp][random.randrange(3)](x)


def _run(fn: Callable[..., Any], args: Any, calls: int = 4) -> list[Any]:
    """Results and states of several calls in a row."""
    random.seed(1); np.random.seed(1)
    found = []
    for turn in range(calls):
        result = fn(args[0] + turn, *args[1:])
        states = [g.getstate() if isinstance(g, random.Random) else str(g) for a in args[1:] for g in getattr(a, "__dict__", {}).values()]
        found.append((result, random.random(), float(np.random.random()), len(states)))
    return found


def _check(row: Any, calls: int = 4) -> None:
    fn, args = row
    fresh = [(args[0], *(Augment() if isinstance(arg, Augment) else arg for arg in args[1:])) for _ in range(2)]
    expected = _run(fn, fresh[0], calls)
    got = _run(pyframe.compile(fn, backend="eager"), fresh[1], calls)
    for want, have in zip(expected, got, strict=True):
        assert _alike(want, have), f"{fn.__name__}:\n  eager    {want}\n  captured {have}"
    for one, other in zip(fresh[0][1:], fresh[1][1:], strict=True):
        if isinstance(one, Augment):  # the generators are in the same state
            assert one.rng.getstate() == other.rng.getstate()
            assert one.legacy.rand() == other.legacy.rand() and one.modern.random() == other.modern.random()


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and bool((a == b).all())
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(_alike, a, b))
    return type(a) is type(b) and bool(a == b) if isinstance(a, np.generic) else same(a, b)


@pytest.mark.parametrize("row", whole, ids=Table.name)
def test_one_graph(row: Any) -> None:
    pyframe.reset()
    _check(row)
    assert counters["graphs"] == 1 and not counters["graph_breaks"] and not counters["recompiles"]


@pytest.mark.parametrize("row", broken, ids=Table.name)
def test_breaks(row: Any) -> None:
    pyframe.reset()
    _check(row)
    assert counters["graphs"] and sum(counters["graph_breaks"].values())


@pytest.mark.parametrize("row", predicted, ids=Table.name)
def test_branches_are_predicted(row: Any) -> None:
    pyframe.reset()
    _check(row, calls=12)
    assert 1 <= counters["recompiles"] <= 3 and not counters["graph_breaks"]


def test_a_prediction_is_checked_after_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if random.random() < 0.5 else x - 1

    pyframe.reset()
    compiled = pyframe.compile(f, backend="eager")
    random.seed(1)
    compiled(X)
    monkeypatch.setattr(RngBranchGuard, "__call__", lambda self, *generators: True)  # as if a thread drew after the guard
    random.seed(2)
    with pytest.raises(RuntimeError, match="another thread has drawn"):
        compiled(X)


def test_inductor_takes_what_is_drawn_as_inputs() -> None:
    def f(x):
        n = random.randint(1, 3)
        return x.repeat(n, 1) * random.random() + np.random.rand()

    pyframe.reset()
    expected, got = _run(f, (X,)), _run(pyframe.compile(f, fullgraph=True), (X,))
    for want, have in zip(expected, got, strict=True):
        torch.testing.assert_close(have[0], want[0])
        assert have[1:] == want[1:]
    assert counters["graphs"] == 1
