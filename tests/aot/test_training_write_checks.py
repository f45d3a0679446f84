"""What autograd checks and counts of writes in and after compiled graphs, as in eager."""

from __future__ import annotations

import pytest
import torch

import pyframe


def outcome(subject, use):
    try:
        return use(subject)
    except RuntimeError as error:
        return type(error), "is a view and is being modified inplace" in str(error)


def trained(fn):
    x = (torch.arange(12.0).reshape(3, 4) + 1).requires_grad_()
    y = fn(x)
    y.sum().backward()
    return x.grad.tolist()


def same(got, want):
    return got == want if isinstance(want, tuple) else torch.allclose(torch.tensor(got), torch.tensor(want))


def saved_result_unsqueezed(x):
    y = x.rsqrt()
    y.unsqueeze_(0)
    return y


def saved_result_transposed(x):
    y = x.exp().t_()
    return y * x.t()


def unsaved_result_transposed(x):
    return (x.exp() * 2).t_()


def saved_result_written(x):
    y = x.exp()
    y.add_(1)
    return y


def views_written(views):
    """A program that writes to each of `views(y)`, which one operator returns together."""

    def program(x):
        y = x * 2
        for part in views(y):
            part.mul_(2)
        return y

    return program


@pytest.mark.filterwarnings("ignore:inductor. the graph of .* eager raises an error here")
@pytest.mark.parametrize("fn", [
    saved_result_unsqueezed, saved_result_transposed, unsaved_result_transposed, saved_result_written,
    pytest.param(views_written(lambda y: y.unbind(0)), id="unbind"),
    pytest.param(views_written(lambda y: y.split(2)), id="split"),
    pytest.param(views_written(lambda y: y.tensor_split(2)), id="tensor_split"),
])  # fmt: skip
def test_errors_of_writes(fn):
    assert same(outcome(pyframe.compile(fn), trained), outcome(fn, trained))


@pytest.mark.parametrize("place", [0, 1])
def test_writes_to_one_of_many_views_outside(place):
    def fn(x):
        y = x * 2
        return y.unbind(0), y[0]

    def use(fn):
        parts, row = fn(torch.ones(3, 3, requires_grad=True))
        (parts[0], row)[place].mul_(2)
        return True

    want = outcome(fn, use)
    assert (want is True) == bool(place)
    assert outcome(pyframe.compile(fn), use) == want


@pytest.mark.parametrize("requires_grad", [True, False])
def test_writes_through_data_are_not_counted(requires_grad):
    def through_data(x):
        x.data.mul_(2)
        return x * 2

    def both(x):
        x.data.mul_(2)
        x.detach().mul_(2)
        return x * 2

    for fn in (through_data, both):
        seen = []
        for run in (fn, pyframe.compile(fn)):
            x = torch.ones(3, requires_grad=requires_grad)
            before, other = x * 1, torch.ones(3, requires_grad=True)
            product = x * other
            result = run(x)
            backward = outcome(product.sum(), torch.Tensor.backward)
            seen.append((x._version, result.tolist(), before.tolist(), backward))
        assert seen[0] == seen[1]


def row(x, y):
    return x[0], y * 2


def row_without_gradients(x, y):
    with torch.no_grad():
        part = x[0]
    return part, y * 2


def row_of_a_result(x, y):
    return (x + 1)[0], y * 2


def row_of_a_part(x, y):
    return x[0].view(-1)[1:], y[1:] * 2


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("views", [row, row_without_gradients, row_of_a_result, row_of_a_part])
def test_recorded_writes_to_views_of_what_needs_no_gradient(views, leaf, inside):
    """The value that is written requires a gradient: autograd records the write to the view and its base."""

    def write(x, y):
        part, value = views(x, y)
        part[:] = value
        return part

    def use(compiled):
        x, y = torch.zeros(2, 3), torch.ones(3, requires_grad=True)
        if not leaf:
            x = x * 1
        if inside:
            (compiled or write)(x, y)
        else:
            part, value = (compiled or views)(x, y)
            part.copy_(value)
        return torch.autograd.grad(x.sum() + y.sum(), y)[0].tolist()

    assert same(outcome(pyframe.compile(write if inside else views), use), outcome(None, use))
