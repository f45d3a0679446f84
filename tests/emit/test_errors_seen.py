"""Where an operator raises when the graph runs, the program's own handlers and context managers see it, as in eager."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import pytest
import torch

import pyframe
from pyframe.emit import eager_retry, output
from pyframe.emit.eager_retry import Undo, undo_of
from pyframe.metrics import counters

LOG: list[object] = []


class Manager:
    def __enter__(self):
        LOG.append("enter")

    def __exit__(self, kind, error, traceback):
        LOG.append(kind)
        return kind is not None


def handler(x, i):
    try:
        y = x.sin().gather(0, i)
    except (RuntimeError, IndexError) as error:
        LOG.append(str(error))
        y = x - 1
    return y + 1


def in_a_call(x, i):
    LOG.append("start")
    try:
        return x * look_up(x, i), "found"
    except (RuntimeError, IndexError):
        LOG.append("handled")
    else:
        LOG.append("else")
    finally:
        LOG.append("finally")
    return x, "not found"


def look_up(x, i):
    try:
        with torch.no_grad():
            return x.cos().gather(0, i)
    finally:
        LOG.append("looked up")


def own_manager(x, i):
    with Manager():
        x = x.gather(0, i) + 1
    return x * 2


def suppressed(x, i):
    with torch.no_grad(), contextlib.suppress(RuntimeError, IndexError):
        return x.gather(0, i) + 1


def several(x, i, *more, scale=2, **rest):
    try:
        return x.gather(0, i) * scale + more[0] + rest["bias"], (lambda: x)()
    except (RuntimeError, IndexError):
        return x * scale + more[0], (lambda: rest["bias"])()


def after_a_break(x, i):
    found = []
    for k in range(3):
        print(end="")
        try:
            found.append((x + k).gather(0, i))
        except (RuntimeError, IndexError):
            found.append(k)
    return found


def not_positive(x, i):
    """A factor of a matrix, with more on its diagonal as long as there is none."""
    a, jitter = x @ x.T - i[0, 0] * torch.eye(3), 0.0
    for _ in range(5):
        try:
            return torch.linalg.cholesky(a + jitter * torch.eye(3)), jitter
        except torch.linalg.LinAlgError:
            jitter = 10 * jitter + 0.1
    return None


def outcome(fn, *args, **kwargs):
    LOG.clear()
    try:
        result = fn(*args, **kwargs)
    except (RuntimeError, IndexError) as error:
        result = "raised", str(error)
    return result, list(LOG)


def described(value):
    if isinstance(value, torch.Tensor):
        return [round(each, 4) for each in value.flatten().tolist()]
    return [described(each) for each in value] if isinstance(value, list | tuple) else value


CASES = [handler, in_a_call, own_manager, suppressed, several, after_a_break, not_positive]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", CASES)
def test_as_eager(fn, backend):
    torch.manual_seed(0)
    x, good, bad = torch.randn(3, 3), torch.zeros(3, 3, dtype=torch.long), torch.full((3, 3), 7)
    more = ((torch.ones(3),), {"bias": 3.0, "scale": 4}) if fn is several else ((), {})
    pyframe.reset()
    compiled = pyframe.compile(fn, backend=backend)
    for i in (good, bad, good, bad):
        got, want = outcome(compiled, x, i, *more[0], **more[1]), outcome(fn, x, i, *more[0], **more[1])
        assert described(got) == described(want)
    assert counters["eager_retries"]


def writes(x, i):
    try:
        x += 1
        y = x.gather(0, i)
        x *= 2
    except (RuntimeError, IndexError):
        LOG.append(x.tolist())
        return x * 10
    return y + x


def writes_in_a_call(x, i):
    view = x[0]
    try:
        with torch.no_grad(), Log():
            look_up_and_write(x, view, i)
    except (RuntimeError, IndexError) as error:
        LOG.append(type(error))
        x.sub_(1)
    else:
        LOG.append("else")
    finally:
        LOG.append(x.tolist())
    return x


def look_up_and_write(x, view, i):
    try:
        view.mul_(3)
        y = x.gather(0, i)
        x.mul_(y)
    finally:
        LOG.append(view.tolist())


class Log:
    """Lets exceptions pass."""

    def __enter__(self):
        LOG.append("enter")

    def __exit__(self, kind, error, traceback):
        LOG.append(kind)


def passes_on(x, i):
    try:
        x += 1
        return x.gather(0, i)
    finally:
        LOG.append(x.tolist())


def draws(x, i):
    try:
        return (x * torch.rand(3, 3)).gather(0, i)
    except (RuntimeError, IndexError):
        return torch.rand(3, 3)


def trains_statistics(x, i):
    mean, var = torch.zeros(3), torch.ones(3)
    mean.add_(x[0]), var.add_(x[1])
    try:
        y = torch.nn.functional.batch_norm(x, mean, var, training=True)
        return torch.nn.functional.embedding(i, y), mean, var
    except (RuntimeError, IndexError):
        return x, mean, var


def writes_after_a_break(x, i):
    found = []
    for k in range(2):
        print(end="")
        try:
            x.add_(k)
            found.append(x.gather(0, i) + 1)
        except (RuntimeError, IndexError):
            found.append(x + 1)
    return found


WRITERS = [writes, writes_in_a_call, passes_on, draws, trains_statistics, writes_after_a_break]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", WRITERS)
def test_what_was_written_is_put_back_before(fn, backend):
    good, bad = torch.zeros(3, 3, dtype=torch.long), torch.full((3, 3), 7)
    pyframe.reset()
    compiled = pyframe.compile(fn, backend=backend)
    for i in (good, bad, good, bad):
        ends = []
        for each in (compiled, fn):
            torch.manual_seed(0)
            x = torch.arange(9.0).reshape(3, 3)
            ends.append((outcome_kind(each, x, i), x.tolist(), x._version > 0, torch.rand(1).item()))
        assert ends[0] == ends[1]
    assert counters["eager_retries"]


def outcome_kind(fn, *args):
    LOG.clear()
    try:
        result = described(fn(*args))
    except (RuntimeError, IndexError) as error:
        result = type(error)
    return result, [described(each) for each in LOG]


def recorded(x, y, i):
    try:
        x += y
        return x.gather(0, i)
    except (RuntimeError, IndexError):
        return x * 10


def recorded_from_now_on(x, y, i):
    try:
        x[0] = y[1]
        return x.gather(0, i) * y
    except (RuntimeError, IndexError):
        return x * 10


def other_sizes(x, y, i):
    try:
        x.unsqueeze_(0).squeeze_(0).t_()
        return x.gather(0, i) * y
    except (RuntimeError, IndexError):
        return x * 10 + y


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", [recorded, recorded_from_now_on, other_sizes])
def test_writes_that_cannot_be_put_back(fn, backend):
    """The frame runs eagerly."""
    good, bad = torch.zeros(3, 3, dtype=torch.long), torch.full((3, 3), 7)
    found = []
    for call in (fn, pyframe.compile(fn, backend=backend)):
        for i in (good, bad):
            leaf, y = torch.ones(3, 3, requires_grad=True), torch.arange(9.0).reshape(3, 3).requires_grad_()
            x = leaf.detach().clone() if fn is recorded_from_now_on else leaf * 2
            result = call(x, y, i)
            gradients = torch.autograd.grad(result.sum(), [leaf, y], allow_unused=True)
            found.append((result.tolist(), x.tolist(), x.stride(), [g is None or g.tolist() for g in gradients]))
    assert found[2:] == found[:2]


def test_modes_of_torch_alone_leave_the_call_direct():
    def fn(x):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return (x @ x).sin()

    pyframe.reset()
    compiled = pyframe.compile(fn, backend=lambda gm, inputs: raising)
    with pytest.raises(ValueError, match="of the backend"):
        compiled(torch.ones(3, 3))


def raising(*args):
    raise ValueError("of the backend")


def test_products_of_sizes_that_vary_are_watched_on_every_torch():
    def product(a, b):
        try:
            return torch.Tensor.__rmatmul__(a, b)
        except IndexError:
            return a

    compiled = pyframe.compile(product, dynamic=True)
    for n in (2, 3):
        a, b = torch.randn(n, 5, 3), torch.randn(5)
        torch.testing.assert_close(compiled(a, b), product(a, b))


@pytest.mark.parametrize("foreach", [True, False])
def test_steps_of_optimizers_are_not_undone(foreach):
    """They cannot raise for any elements, so nothing is copied before them, although `step` restores a mode in a
    `finally`."""
    given = [torch.ones(5), torch.arange(3.0)]
    mine, theirs = [[torch.nn.Parameter(x.clone()) for x in given] for _ in range(2)]
    steps = []
    for params in (mine, theirs):
        for x in params:
            x.grad = torch.ones_like(x)
        optimizer = torch.optim.Adam(params, 0.1, foreach=foreach)
        optimizer.step()
        steps.append(optimizer.step)
    fast = pyframe.compile(steps[0])
    fast()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        fast()
    for _ in range(2):
        steps[1]()
    assert not {"aten::clone"} & {event.name for event in profile.events()}
    torch.testing.assert_close(mine, theirs)


COMPUTES = {
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x) @ x.t(),
    "methods": lambda x, i: x.double().view(-1).softmax(0).float()[i].sum(),
    "no_dropout": lambda x, i: torch.nn.functional.dropout(x, 0.5, False).gather(0, i),
    "attention": lambda x, i: torch.nn.functional.scaled_dot_product_attention(x, x, x).gather(0, i),
    "loss": lambda x, i: torch.nn.functional.cross_entropy(x, i[0]),
}
DRAWS_OR_WRITES = {
    "dropout": lambda x, i: torch.nn.functional.dropout(x, 0.5, True).gather(0, i),
    "dropout_in_attention": lambda x, i: torch.nn.functional.scaled_dot_product_attention(
        x, x, x, dropout_p=0.5
    ).gather(0, i),
    "random": lambda x, i: torch.rand_like(x).gather(0, i),
    "written": lambda x, i: x.add_(1).gather(0, i),
    "statistics": lambda x, i: torch.nn.functional.batch_norm(x, x[0], x[1].abs(), training=True).gather(0, i),
    "out": lambda x, i: torch.sin(x, out=x).gather(0, i),
}  # fmt: skip


@pytest.mark.parametrize("name", [*COMPUTES, *DRAWS_OR_WRITES])
def test_only_graphs_that_draw_or_write_are_run_again_to_find_what_to_restore(name, monkeypatch):
    from pyframe.emit import eager_retry

    program = COMPUTES.get(name) or DRAWS_OR_WRITES[name]

    def fn(x, i):
        try:
            return program(x, i)
        except (RuntimeError, IndexError):
            return x

    watched: list[object] = []
    plain = eager_retry._Watch
    monkeypatch.setattr(eager_retry, "_Watch", lambda storages: watched.append(1) or plain(storages))
    compiled = pyframe.compile(fn, backend="eager")
    for i in (torch.zeros(1, 4, dtype=torch.int64), torch.full((1, 4), 9)):
        results = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            x = torch.arange(16.0).view(4, 4)
            results.append([run(x, i), x, torch.rand(1)])
        torch.testing.assert_close(results[1], results[0])
    assert bool(watched) is (name in DRAWS_OR_WRITES)


def _dropped(*args: Any, **kwargs: Any) -> Any:
    return lambda x: torch.nn.functional.dropout(x + 1, *args, **kwargs)


@pytest.mark.parametrize(
    "fn, undone",
    [
        (_dropped(0.5, False), Undo()),
        (_dropped(0.5, training=False), Undo()),
        (_dropped(0.5, False, False), Undo()),
        (_dropped(0.5), Undo(draws=True)),
        (_dropped(0.5, True), Undo(draws=True)),
        (lambda x: torch.dropout(x + 1, 0.5, train=False), Undo()),
        (lambda x: torch.dropout(x + 1, 0.5, True), Undo(draws=True)),
        (lambda x: torch.nn.functional.alpha_dropout(x + 1, 0.5, False), Undo()),
    ],
)
def test_a_dropout_that_is_off_draws_nothing(fn: Any, undone: Undo) -> None:
    """The graph is run on fake tensors, to see what it draws, only if a dropout is on."""

    def program(x: Any, table: Any) -> Any:
        try:
            return fn(table[x])
        except IndexError:
            return None

    found: list[Any] = []

    def seen(*args: Any) -> Any:
        found.append(undo_of(*args))
        return found[-1]

    plain = eager_retry._Watch
    with mock.patch.object(output, "undo_of", seen), mock.patch.object(eager_retry, "_Watch", wraps=plain) as watch:
        pyframe.compile(program, backend="eager")(torch.tensor([[1, 2]]), torch.randn(4, 3))
    assert found == [undone]
    assert watch.called == undone.draws


# ---- checks of numbers that are read from tensors ----
def created(x, numbers):
    size = numbers.tolist()[0] + 4
    x.add_(1)
    try:
        return torch.zeros(2, size) + 1, x * 2
    except RuntimeError as error:
        LOG.append(str(error))
        return x - 1
    finally:
        LOG.append("finally")


def in_a_manager(x, numbers):
    size = numbers[0].item()
    with Manager():
        return torch.ones(size).sum() + x
    return x - 2


def checked_by_the_program(x, numbers):
    size = numbers[0].item()
    try:
        torch._check(size >= 0, lambda: "negative")
        return x.sin() + size
    except RuntimeError as error:
        LOG.append(str(error))
        return x - 1


def divided(x, numbers):
    try:
        first, second = x.split(numbers.tolist())
        return first.sum() + second.sum()
    except RuntimeError:
        return x - 1


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [created, in_a_manager, checked_by_the_program, divided], ids=lambda fn: fn.__name__)
def test_checks_of_numbers_that_the_program_handles(program, backend):
    fast = pyframe.compile(program, backend=backend, fullgraph=True)
    for numbers in ([1, 2], [2, 1], [-5, 8], [3, 0], [2, 5]):
        found, wanted = [], []
        for fn, results in ((fast, found), (program, wanted)):
            LOG.clear()
            x = torch.arange(3.0)
            results += [fn(x, torch.tensor(numbers)), list(LOG), x]
        torch.testing.assert_close(found[::2], wanted[::2])
        assert found[1] == wanted[1]
    assert counters["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_bool_read_from_a_tensor_counts_beside_a_write_that_a_handler_may_see(backend):
    def program(x, y):
        try:
            count = int((x > 0).all().item())
            z = y.roll(count) @ y.t()
            y.add_(1)
            return z + count
        except RuntimeError:
            return x

    def drawn(x, y):
        try:
            count = int((x > 0).all().item())
            return y @ y.t() + count + torch.rand(3, 3)
        except RuntimeError:
            return x

    for function in (program, drawn):
        compiled = pyframe.compile(function, backend=backend)
        for x in (torch.ones(3), -torch.ones(3)):
            y = torch.rand(3, 4)
            expected = y.clone()
            torch.manual_seed(0)
            want = function(x, expected)
            torch.manual_seed(0)
            torch.testing.assert_close(compiled(x, y), want)
            torch.testing.assert_close(y, expected)
