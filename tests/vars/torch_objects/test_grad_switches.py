"""Switches of grad mode that outlive the frame, around and inside of contexts that a break cuts."""

from __future__ import annotations

import pytest
import torch

import pyframe


def raises_inside(x, enabled):
    torch.set_grad_enabled(enabled)
    with torch.enable_grad():
        x.append(torch.is_grad_enabled())
        raise ValueError


def breaks_inside(x, enabled):
    torch.set_grad_enabled(enabled)
    with torch.enable_grad():
        print(end="")
        x.append(torch.is_grad_enabled())
    x.append(torch.is_grad_enabled())


def switches_inside(x, enabled):
    with torch.enable_grad():
        torch.set_grad_enabled(enabled)
        print(end="")
        x.append(torch.is_grad_enabled())
    x.append(torch.is_grad_enabled())


def switches_twice(x, enabled):
    torch.set_grad_enabled(enabled)
    with torch.enable_grad():
        with torch.no_grad():
            print(end="")
            torch.set_grad_enabled(not enabled)
            x.append(torch.is_grad_enabled())
        print(end="")
        x.append(torch.is_grad_enabled())


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("fn", [raises_inside, breaks_inside, switches_inside, switches_twice])
def test_as_eager(fn, enabled):
    def outcome(run):
        seen = []
        try:
            run(seen, enabled)
        except ValueError:
            seen.append("raised")
        seen.append(torch.is_grad_enabled())
        torch.set_grad_enabled(True)
        return seen

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)
