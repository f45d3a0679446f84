"""A graph that writes to its inputs and raises: the inputs are as eager leaves them, and so is the exception."""

from __future__ import annotations

import pytest
import torch

import pyframe


def _written_before(x, table, i):
    x += 1
    return table[i]


def _not_yet_written(x, table, i):
    y = table[i]
    x += 1
    return y


def _in_one_kernel(x, table, i):
    x += table[i]
    return x * 2


def _twice(x, table, i):
    x.mul_(2)
    y = x + table[i]
    x.add_(y)
    return y


def _table_itself(x, table, i):
    table.add_(1)
    x.copy_(table[i])
    return x


def _error_of_gather(x, table, i):
    x.add_(1)
    return table.gather(0, i), x.sum()


def _part(x, table, i):
    x[1:].add_(1)
    return x[::2] + table[i][::2]


def _singular(x, table, i):
    x.add_(1)
    return torch.linalg.inv(table[:1, None] * i[2])


SMALL, LARGE = 3, 6000  # elements; copies of small inputs are kept during the call
# their kernels check all indices before a kernel writes to an input
IN_ORDER = [_written_before, _not_yet_written, _singular]
OTHERS = [_in_one_kernel, _twice, _table_itself, _error_of_gather, _part]


@pytest.mark.parametrize(
    ("fn", "count"), [*((fn, SMALL) for fn in IN_ORDER + OTHERS), *((fn, LARGE) for fn in IN_ORDER)]
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_inputs_after_an_error(fn, requires_grad, count):
    def outcome(run, last):
        x, table, indices = torch.zeros(count), torch.arange(1.0, count + 2), torch.arange(count)
        indices[2] = last
        weight = torch.ones(3, requires_grad=requires_grad)
        try:
            run(x, table, indices, weight)
        except RuntimeError as error:
            kind = type(error)
        except IndexError:
            kind = IndexError
        else:
            kind = None
        return kind, x.tolist(), table.tolist(), x._version > 0, table._version > 0

    def program(x, table, i, weight):
        return fn(x, table, i), weight * 2

    compiled = pyframe.compile(program)
    wrong = 0 if fn is _singular else 7000
    for last in (2, wrong, 2):
        assert outcome(compiled, last) == outcome(program, last)
