"""Choices between tensors by their values: `min`, `max`, `sorted`, items of lists at indices read from tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe
from pyframe.metrics import counters
from tests.util import result_or_error, same


def scalars(*values: float) -> Callable[[], list[torch.Tensor]]:
    return lambda: [torch.tensor(value, requires_grad=isinstance(value, float)) for value in values]


def matrix() -> list[torch.Tensor]:
    return [torch.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 0.0]], requires_grad=True)]


def largest_view_added(x: torch.Tensor) -> Any:
    y = x * 2
    chosen = max(y[0, 0], y[1, 1])
    chosen.add_(1)
    return y, chosen


def candidates_written(x: torch.Tensor) -> Any:
    a, b = x[0, 0] * 1, x[1, 1] * 1
    chosen = max(a, b)
    before = chosen * 2
    a.add_(10)
    b.sub_(10)
    return chosen, before


def is_first(a: torch.Tensor, b: torch.Tensor) -> Any:
    chosen = max(a, b)
    return chosen is a, chosen is b, chosen * 2


def key_of_dict(a: torch.Tensor, b: torch.Tensor) -> Any:
    return {a: 1, b: 2}.get(max(a, b), 0), max(a, b) in {a, b}


def in_a_list(a: torch.Tensor, b: torch.Tensor) -> Any:
    return [a, b].index(max(a, b)), len({id(a), id(b), id(max(a, b))})


def index_error_handled(n: torch.Tensor) -> Any:
    try:
        return torch.ones(3) * [10, 20][n.item() + 5]
    except IndexError:
        return torch.zeros(3)


def sizes_between(n: torch.Tensor) -> Any:
    count = n.item()
    return torch.ones(max(1, min(count, 5))), max(count, 7, 3), min([count, count + 1])


def of_floats(n: torch.Tensor) -> Any:
    number = n.item()
    return torch.ones(2) * max(number, 1.0), max(1.0, number), min(number, 1.0), min(1.0, number, number * 2)


def scale(x: torch.Tensor) -> Any:
    step = max(x.abs().max().item(), 1e-5)
    return torch.clamp(torch.round(x / step * 127), -128, 127), step, torch.full((2,), step)


# name: function, arguments, breaks
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]], int | None]] = {
    "larger": (lambda a, b: max(a, b) * 2, scalars(2.0, 3.0), 0),
    "first of a tie": (lambda a, b: (max(a, b) * 2, min(a, b) * 3), scalars(3.0, 3.0), 0),
    "NaN last": (lambda a, b: (max(a, b) * 2, min(a, b) * 2), scalars(3.0, float("nan")), 0),
    "NaN first": (lambda a, b: (max(a, b) * 2, min(a, b) * 2), scalars(float("nan"), 3.0), 0),
    "integers": (lambda a, b, c: min(a, b, c) + 1, scalars(3, 1, 2), 0),
    "rows": (lambda x: (max(x[0]), min(x[:, 1])), matrix, 0),
    "nested": (lambda x: max(max(x[0, 0], x[0, 1]), x[1, 1]) * 2, matrix, 0),
    "by a key": (lambda x: max(x, key=torch.sum) * 2, matrix, 0),
    "beside the items": (lambda x: (x[0], max(x[0], x[1], key=torch.sum)), matrix, 0),
    "sorted": (lambda x: sorted(x[0]), matrix, 0),
    "sorted by a key": (lambda x: sorted([x[1], x[0]], key=lambda row: row.norm(), reverse=True), matrix, 0),
    "the other's gradient": (lambda x: max((x * 0).sum().sqrt(), x.sum()), matrix, 0),  # 0 * inf if it were a select
    "candidates are written": (candidates_written, matrix, 0),
    "the result is written": (largest_view_added, matrix, 1),
    "identity": (is_first, scalars(2.0, 3.0), 1),
    "operand of a write": (lambda x: torch.zeros(3).add_(max(x[0], x[1], key=torch.sum)), matrix, 0),
    "as a key": (key_of_dict, scalars(2.0, 3.0), 2),
    "in a list": (in_a_list, scalars(2.0, 3.0), 2),
    "different sizes": (lambda a, b: min(a, b[None]), scalars(2.0, 3.0), 1),
    "a number": (lambda a: max(a, 5), scalars(2.0), 1),
    "ints from tensors": (sizes_between, scalars(2), 0),
    "floats from tensors": (of_floats, scalars(2.0), 0),
    "NaN from a tensor": (lambda n: tuple(map(str, of_floats(n))), scalars(float("nan")), None),
    "a float and an int": (lambda n: max(n.item(), 2), scalars(1.0), 1),
    "a scale": (scale, matrix, 0),
    "list of ints": (lambda n: torch.ones(2) * [10, 20][n.item()], scalars(1), 0),
    "tuple of floats": (lambda n: torch.ones(2) * (10.0, 20.0)[n.item()], scalars(-2), 0),
    "list of tensors": (lambda x, n: [x, x * 2, x + 3][n.item()].sum(), lambda: [*matrix(), torch.tensor(1)], 0),
    "a tensor as index": (lambda x, n: [x, x * 2, x + 3][n].sum(), lambda: [*matrix(), torch.tensor(-3)], 0),
    "out of range": (lambda n: torch.ones(2) * [10, 20][n.item()], scalars(2), 0),
    "out of range, handled": (index_error_handled, scalars(1), 1),
    "a bool as index": (lambda x: [x, x * 2][(x.sum() > 0).item()] + 1, matrix, 0),
    "columns": (lambda x: max(x[:, 0], x[:, 1], key=torch.sum).t().contiguous(), matrix, 0),
    "its own offset": (lambda x: max(x[:, 0], x[:, 1], key=torch.sum).storage_offset(), matrix, 1),
    "differentiated": (lambda x: torch.autograd.grad(max(x.sum(), x.mean() * 3), x), matrix, 0),
    "list of texts": (lambda n: ["a", "b"][n.item()], scalars(1), 1),
}  # fmt: skip


def with_gradients(fn: Callable[..., Any], arguments: list[torch.Tensor]) -> Any:
    """The results or the exception of a call, and the gradients of its arguments."""
    found = result_or_error(fn, *arguments)
    results = list(found) if isinstance(found, tuple | list) else [found]
    total = sum(x.sum() for x in results if isinstance(x, torch.Tensor) and x.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    detached = [x.detach().nan_to_num(77.0) if isinstance(x, torch.Tensor) else x for x in results]
    return detached, [x.grad for x in arguments]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_choices(name: str, backend: str) -> None:
    fn, arguments, breaks = PROGRAMS[name]
    want = with_gradients(fn, arguments())
    compiled = pyframe.compile(fn, backend=backend)
    before = sum(counters["graph_breaks"].values())
    for _ in range(2):
        assert same(with_gradients(compiled, arguments()), want)
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) - before == breaks


def test_the_result_is_one_of_the_arguments() -> None:
    a, b = torch.tensor(1), torch.tensor(2)
    largest = pyframe.compile(lambda a, b: max(a, b), backend="eager", fullgraph=True)
    assert largest(a, b) is b
    assert largest(b, a) is b
    assert largest(b, torch.tensor(3)).item() == 3
