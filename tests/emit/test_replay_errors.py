"""Exceptions that occur while side effects are replayed at the end of a graph: the `with` blocks around it are exited."""

from __future__ import annotations

import pytest
import torch

import pyframe
from pyframe.emit import replay
from pyframe.vars.objects.builtin_instances import fill


def _modes():
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()


def _before_the_break(x, seen):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = x.sin()
        seen.append("before")
        pyframe.graph_break()
        return y + 1


def _in_finally(x, seen):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        try:
            y = x.sin()
            pyframe.graph_break()
            y = y + 1
        finally:
            seen.append("left")
    return y


def _after_the_break(x, seen):
    with torch.no_grad():
        pyframe.graph_break()
        seen.append("after")
    return x * 2


def _handled(x, seen):
    try:
        y = x.sin()
        seen.append("before")
        pyframe.graph_break()
    except MemoryError:
        return seen, "handled"
    return y


def _closure(x, seen):
    scale = 2

    def scaled(y):
        return y * scale

    with torch.inference_mode():
        scale = 3
        seen.append("before")
        y = x.sin()
        pyframe.graph_break()
    return scaled(y)


@pytest.mark.parametrize("fn", [_before_the_break, _in_finally, _after_the_break, _handled, _closure])
def test_with_blocks_are_exited(fn, monkeypatch):
    raises = False

    def failing(obj, kind, items):
        if raises:
            raise MemoryError("injected")
        fill(obj, kind, items)

    monkeypatch.setattr(replay, "fill", failing)
    compiled, x, modes = pyframe.compile(fn), torch.ones(2, requires_grad=True), _modes()
    torch.testing.assert_close(compiled(x, []), fn(x, []))
    raises = True
    if fn is _handled:
        assert compiled(x, []) == ([], "handled")
    else:
        with pytest.raises(MemoryError, match="injected"):
            compiled(x, [])
    assert _modes() == modes
    raises = False
    torch.testing.assert_close(compiled(x, []), fn(x, []))
