"""Objects with finalizers, and suspended generators, that the program drops after a graph break: what their finalizers
do is seen by the rest of the function, in each call."""

import contextlib

import pytest
import torch

import pyframe

LOG: list[str] = []


class Finalized:
    def __del__(self):
        LOG.append("finalized")


def numbers():
    try:
        yield 1
        yield 2
    finally:
        LOG.append("closed")


@contextlib.contextmanager
def logged():
    try:
        yield
    finally:
        LOG.append("left")


def in_context():
    with logged():
        yield 1
        yield 2


def deleted(x):
    held = Finalized()
    y = x + 1
    del held
    return y * 2, list(LOG)


def overwritten(x):
    held = Finalized()
    y = x + 1
    held = x
    return y * held, list(LOG)


def suspended_deleted(x):
    numbered = numbers()
    y = x * next(numbered)
    del numbered
    return y * 2, list(LOG)


def suspended_overwritten(x):
    numbered = in_context()
    y = x * next(numbered)
    numbered = None
    return y * 2, list(LOG), numbered


def loop_left(x):
    for number in numbers():
        x = x + number
        break
    return x * 2, list(LOG)


def loop_left_of_context(x):
    for number in in_context():
        x = x + number
        break
    return x * 2, list(LOG)


def writes_tensor(x):
    def items():
        try:
            yield 1
            yield 2
        finally:
            x.add_(1)

    held = items()
    next(held)
    del held
    return x * 2


def leaves_grad_mode(x):
    def items():
        with torch.no_grad():
            yield 1
            yield 2

    held = items()
    next(held)
    inside = torch.is_grad_enabled()
    del held
    return x * 2, inside, torch.is_grad_enabled()


def kept_by_another_local(x):
    held = other = Finalized()
    del held
    y = x + len(LOG)
    del other
    return y, list(LOG)


def deleted_from_cell(x):
    held = Finalized()
    y = (lambda: x + (held is not None))()  # noqa: F821  called before the variable is deleted
    del held
    return y, list(LOG)


def overwritten_in_cell(x):
    held = Finalized()
    y = (lambda: x + (held is not None))()
    held = None
    return y, list(LOG)


def result(fn):
    LOG.clear()
    found = fn(torch.ones(2))
    return str(found)


@pytest.mark.parametrize(
    "fn",
    [
        deleted, overwritten, suspended_deleted, suspended_overwritten, loop_left, loop_left_of_context, writes_tensor,
        leaves_grad_mode, kept_by_another_local, deleted_from_cell, overwritten_in_cell,
    ],
)  # fmt: skip
def test_what_a_finalizer_does_is_seen_in_each_call(fn):
    want = result(fn)
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(3):
        assert result(compiled) == want
