"""Where an operator raises when the graph runs, the program's own handlers and context managers see it, as in eager."""

from __future__ import annotations

import contextlib

import pytest
import torch

import pyframe
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
    assert counters["runs_again"]


def draws(x, i):
    try:
        return torch.rand(3, 3).gather(0, i)
    except RuntimeError:
        return x


def writes(x, i):
    try:
        return x.add_(1).gather(0, i)
    except RuntimeError:
        return x


@pytest.mark.parametrize("fn", [draws, writes])
def test_what_cannot_be_done_twice_is_not(fn):
    x, bad = torch.zeros(3, 3), torch.full((3, 3), 7)
    pyframe.reset()
    with pytest.raises(RuntimeError):
        pyframe.compile(fn, backend="eager")(x, bad)
    assert not counters["runs_again"]
    assert x.max() <= 1


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
