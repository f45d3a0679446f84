"""Graphs that write to inputs which share a storage with other inputs, but no elements: parts of one flat buffer."""

from __future__ import annotations

import pytest
import torch

import pyframe


def step(weight, grad, momentum):
    momentum.mul_(0.9).add_(grad)
    weight.sub_(momentum * 0.1)
    return weight.norm(), momentum[1:]


def parts(flat, requires_grad):
    weight, grad, momentum = flat[:6].view(2, 3), flat[6:12].view(2, 3), flat[12:].view(2, 3)
    return weight.detach().requires_grad_(requires_grad), grad, momentum


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_parts_of_one_buffer_are_written(recwarn, dynamic, requires_grad):
    compiled = pyframe.compile(step, dynamic=dynamic)
    flat, expected = torch.arange(18.0), torch.arange(18.0)
    for _ in range(2):
        with torch.no_grad():
            got = compiled(*parts(flat, requires_grad))
            want = step(*parts(expected, requires_grad))
        for a, b in zip((*got, flat), (*want, expected)):
            torch.testing.assert_close(a, b)
        assert got[1].untyped_storage().data_ptr() == flat.data_ptr()
    assert not any("ATen" in str(warning.message) for warning in recwarn)


def scaled(a, b):
    b.mul_(3)
    a.mul_(2)
    return a + b


def test_a_call_whose_inputs_overlap_after_one_whose_inputs_do_not():
    compiled = pyframe.compile(scaled)
    for first in (0, 4, 2, 0, 1):  # elements 0 to 3 of the second argument begin at 4 - first
        flat, expected = torch.arange(8.0), torch.arange(8.0)
        got = compiled(flat[first : first + 4], flat[4:] if first == 0 else flat[2:6])
        want = scaled(expected[first : first + 4], expected[4:] if first == 0 else expected[2:6])
        assert torch.equal(got, want)
        assert torch.equal(flat, expected)


def reaching(a, b):
    b.mul_(3)
    return a.as_strided((8,), (1,)) + 1


def test_a_view_that_reaches_from_one_part_into_a_written_one():
    flat, expected = torch.arange(8.0), torch.arange(8.0)
    assert torch.equal(pyframe.compile(reaching)(flat[:4], flat[4:]), reaching(expected[:4], expected[4:]))
    assert torch.equal(flat, expected)


def test_gradients_of_parts_that_are_written():
    def fn(a, b):
        a.mul_(3)
        return (a * b).sin()

    def run(fn):
        base = torch.arange(8.0).requires_grad_()
        flat = base * 1
        out = fn(flat[:4], flat[4:])
        (out.sum() + flat.sum()).backward()
        return out.detach(), flat.detach(), base.grad

    for got, want in zip(run(pyframe.compile(fn)), run(fn)):
        torch.testing.assert_close(got, want)
