"""Objects that the program changes before an operator raises are changed, although nothing in the frame handles it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pyframe
from tools.tracer_programs.comparison import equal

LOG: list[str] = []
NUMBERS = iter(range(0))


class Lookup(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(4, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.table(i) * self.calls


def appends(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    LOG.append("before")
    y = x.sin()[i]
    LOG.append("after")
    return y


def moves_an_iterator(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i] * next(NUMBERS)


def asserts(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    LOG.append("before")
    assert (i < 4).all(), "out of range"
    LOG.append("after")
    return x * 2


def writes_an_input(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    LOG.append("before")
    return x[i]


def draws(x: torch.Tensor, i: torch.Tensor) -> Any:
    LOG.append("before")
    return F.dropout(x)[i], torch.rand(2)


def divides(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    LOG.append("before")
    return torch.ones(2, dtype=torch.int64) // (9 - i)


class Trains(Lookup):
    """A step that looks up, runs `backward()` and looks up again: each lookup may raise."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
        self.calls += 1
        LOG.append("before")
        (F.dropout(x[i], 0.5) * self.table(i).sum(1)).sum().backward()
        LOG.append("after")
        return self.table.weight.grad * 1  # type: ignore[operator]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("make", [
    lambda: appends, Lookup, lambda: moves_an_iterator, lambda: asserts, lambda: writes_an_input, lambda: draws,
    lambda: divides, Trains,
])  # fmt: skip
def test_changes_before_an_error(make: Any, backend: str) -> None:
    want, got = seen(make(), lambda fn: fn), seen(make(), lambda fn: pyframe.compile(fn, backend=backend))
    assert equal(got, want) == ""


def seen(fn: Any, compiled: Any) -> list[Any]:
    """What calls do of which the second raises: results or the exception's class, the input, the changed objects, the
    random generator."""
    global NUMBERS
    LOG.clear()
    NUMBERS = iter(range(1, 10))
    torch.manual_seed(0)
    for p in fn.parameters() if isinstance(fn, torch.nn.Module) else ():
        torch.nn.init.ones_(p)
    call = compiled(fn)
    found: list[Any] = []
    for indices in ([1, 2], [1, 9], [1, 2]):
        x = torch.arange(4.0)
        try:
            found.append(call(x, torch.tensor(indices)))
        except Exception as error:  # noqa: BLE001  compared
            found.append(type(error).__name__)
        found += [x, getattr(fn, "calls", None), list(LOG), torch.rand(1)]
    found.append(next(NUMBERS))
    return found


class TrainsFirst(Lookup):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.table(i[:1]).sum().backward()
        return self.table(i)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_error_after_a_backward_pass_does_not_run_the_pass_again(backend: str) -> None:
    model = TrainsFirst()
    fn = pyframe.compile(model, backend=backend)
    want = torch.zeros(4, 3)
    for indices in ([1, 2], [1, 9], [3, 9], [1, 2]):
        want[indices[0]] += 1
        try:
            fn(torch.zeros(4), torch.tensor(indices))
        except Exception as error:  # noqa: BLE001  the class depends on the backend
            assert 9 in indices, error
        assert torch.equal(model.table.weight.grad, want)  # type: ignore[arg-type]
