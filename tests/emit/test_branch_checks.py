"""A branch on a tensor, one side of which only raises, is a check of the graph. If the check fails, the frame runs
eagerly and raises as in eager, with nothing left of what the graph did."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe
from pyframe.metrics import counters

LOG: list[object] = []


def message_of_data(x, i):
    if (x < 0).any():
        raise ValueError(f"negative: {x.min().item():.2f}")
    return x.sqrt() + 1


def assertion_with_message(x, i):
    assert (x >= 0).all(), f"negative: {x.tolist()}"
    return x.sqrt()


def with_branches(x, i):
    if torch.isnan(x).any() or (x < 0).any():
        if x.dim() == 1:
            raise ValueError("vector")
        raise TypeError("not a vector")
    return x + 1


def in_a_call(x, i):
    y = x * 2
    message_of_data(y, i)
    with torch.no_grad():
        message_of_data(x, i)
        z = y + 1
    return y, z


def both_ways(x, i):
    fine = (x >= 0).all()
    if not fine:
        raise RuntimeError(str(x.tolist()))
    return fine, x


def of_a_number(x, i):
    if x.min() * (x.min() < 0):
        raise ValueError
    return x * 2


def after_effects(x, i):
    LOG.append("before")
    message_of_data(x, i)
    LOG.append(x + 1)
    return len(LOG)


def division(x, i):
    if (i == 0).any():
        raise ZeroDivisionError(str(i.tolist()))
    return torch.arange(3) // i


def index(x, i):
    if (i >= 3).any():
        raise IndexError(f"{i.max().item()} is too large")
    return x[i] * 2


def before_a_break(x, i):
    message_of_data(x, i)
    y = x * 2
    print(end="")
    message_of_data(y - 1, i)
    return y + 1


def drawing(x, i):
    y = torch.rand(3)
    message_of_data(x, i)
    return y + F.dropout(x) + torch.rand(3)


CASES = [message_of_data, assertion_with_message, with_branches, in_a_call, both_ways, of_a_number, after_effects]
CASES += [division, index, before_a_break, drawing]


def outcome(fn, *args):
    LOG.clear()
    torch.manual_seed(3)
    try:
        result = fn(*args)
    except Exception as error:
        result = type(error), str(error).split("\n")[0]  # pytest adds lines to those of assertions
    return result, list(LOG), torch.get_rng_state()


def same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for each, other in zip(a, b):
            same(each, other)
    else:
        assert a == b


@pytest.mark.parametrize("fn", CASES)
def test_as_eager(fn):
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    good, bad, low = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.5, -1.0, 2.0]), torch.tensor([0.1, 0.2, 0.3])
    ones, out_of_range = torch.ones(3, dtype=torch.long), torch.tensor([0, 3, 1])
    for args in (good, ones), (bad, ones), (good, out_of_range), (low, ones), (good, ones):
        same(outcome(compiled, *args), outcome(fn, *args))
    assert counters["eager_retries"]
    assert not counters["graph_breaks"] or fn is before_a_break


@pytest.mark.parametrize("fn", [message_of_data, in_a_call, division, index, drawing])
def test_compiled_by_inductor(fn):
    pyframe.reset()
    compiled = pyframe.compile(fn, fullgraph=True)
    good, bad = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.5, -1.0, 2.0])
    ones, out_of_range = torch.ones(3, dtype=torch.long), torch.tensor([0, 3, 1])
    for args in (good, ones), (bad, ones), (good, out_of_range):
        got, want = outcome(compiled, *args), outcome(fn, *args)
        if fn is not drawing or args[0] is bad:
            same(got, want)


def writing(x, y):
    y.add_(1)
    message_of_data(x, None)
    y.mul_(2)
    return y + x


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_writes_are_undone(backend):
    """The elements and the version are those of eager, so that a backward that saved the tensor before runs."""
    compiled = pyframe.compile(writing, backend=backend, fullgraph=True)
    for fn in (writing, compiled):
        y = torch.zeros(3)
        fn(torch.ones(3), y)
        w = torch.ones(3, requires_grad=True)
        version = y._version
        with pytest.raises(ValueError, match="negative"):
            fn(-torch.ones(3), y)
        assert y.tolist() == [3.0, 3.0, 3.0] and y._version == version + 1

    def late(x, y):
        message_of_data(x, None)
        y.mul_(2)

    compiled, y = pyframe.compile(late, backend=backend), torch.ones(3)
    compiled(torch.ones(3), y)
    loss = (y * w).sum()
    with pytest.raises(ValueError, match="negative"):
        compiled(-torch.ones(3), y)
    loss.backward()
    assert w.grad.tolist() == [2.0, 2.0, 2.0]


def test_large_writes_are_not_copied():
    compiled = pyframe.compile(writing, backend="eager")
    pyframe.reset()
    y = torch.zeros(1 << 20)
    compiled(torch.ones(1), y)
    assert counters["graph_breaks"] and y[0] == 2


def test_training():
    def step(x, w):
        y = F.linear(x, w).relu()
        message_of_data(x, None)
        return y.sum()

    compiled = pyframe.compile(step, fullgraph=True)
    x, w = torch.rand(2, 3), torch.rand(4, 3, requires_grad=True)
    want = torch.autograd.grad(step(x, w), w)
    same(torch.autograd.grad(compiled(x, w), w), want)
    with pytest.raises(ValueError, match="negative"):
        compiled(-x, w)
    same(torch.autograd.grad(compiled(x, w), w), want)


def test_writes_that_autograd_records():
    def recorded(x, y):
        y.mul_(x)
        message_of_data(x, None)
        return y.sum()

    pyframe.reset()
    compiled = pyframe.compile(recorded, backend="eager")
    for fn in (recorded, compiled):
        leaf = torch.ones(3, requires_grad=True)
        y = leaf * 2
        fn(torch.full((3,), 2.0), y).backward()
        assert leaf.grad.tolist() == [4.0] * 3
        y = leaf * 2
        with pytest.raises(ValueError, match="negative"):
            fn(-torch.ones(3), y)
        assert y.tolist() == [-2.0] * 3
    assert counters["graph_breaks"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_vary(dynamic):
    compiled = pyframe.compile(writing, backend="eager", dynamic=dynamic, fullgraph=True)
    pyframe.reset()
    for n in range(3, 9):
        same(compiled(torch.ones(n), torch.zeros(n)), torch.full((n,), 3.0))
        with pytest.raises(ValueError, match="negative"):
            compiled(-torch.ones(n), torch.zeros(n))
    assert counters["graphs"] == (1 if dynamic else 2)


@torch.library.custom_op("branch_checks::logged", mutates_args=())
def logged(x: torch.Tensor) -> torch.Tensor:
    LOG.append("called")
    return x + 1


logged.register_fake(torch.empty_like)


def custom_operator(x):
    return logged(x)


def endless_loop(x):
    return torch.while_loop(lambda a: a.sum() < 10, lambda a: (a + a,), (x,))


def branches(x):
    return torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,))


def size_of_data(x):
    return torch.zeros(int(x.sum().item() * 1e11 * (x.sum().item() < 0)))


@pytest.mark.parametrize("then", [custom_operator, endless_loop, branches, size_of_data])
def test_what_must_not_run_after_a_failed_check(then):
    def checked(x):
        message_of_data(x, None)
        return then(x)

    compiled = pyframe.compile(checked, backend="eager")
    for x in torch.ones(4), -torch.ones(4):
        same(outcome(compiled, x), outcome(checked, x))


def handled(x):
    try:
        if (x < 0).any():
            raise ValueError(f"negative: {x.tolist()}")
    except ValueError:
        return x - 1
    return x + 1


def test_handled_by_the_program():
    """An exception that the program handles is no rare event: the branch breaks the graph."""
    pyframe.reset()
    compiled = pyframe.compile(handled, backend="eager")
    for x in torch.ones(4), -torch.ones(4):
        same(compiled(x), handled(x))
    assert counters["graph_breaks"] and not counters["eager_retries"]


def test_a_loop_that_ends_with_raise_is_no_check():
    def waits(x, n):
        if (x < 0).any():
            while n > 0:
                n -= 1
            raise ValueError(n)
        return x + 1

    compiled = pyframe.compile(waits, backend="eager")
    for x in torch.ones(4), -torch.ones(4):
        same(outcome(compiled, x, 3), outcome(waits, x, 3))


def test_control_flow_operators_in_handled_code():
    def cond_then_gather(x, i):
        try:
            x.add_(1)
            y = torch.cond(x.sum() > 3, lambda a: a + a, lambda a: a - 1, (x,))
            return y.gather(0, i)
        except (IndexError, RuntimeError):
            return x

    compiled = pyframe.compile(cond_then_gather, backend="eager")
    for i in torch.arange(4), torch.arange(4) + 1:
        x, y = torch.ones(4), torch.ones(4)
        same((compiled(x, i), x), (cond_then_gather(y, i), y))
