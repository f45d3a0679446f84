"""What has to be restored before a frame with dropout runs eagerly is found from one of several equal calls: it is what
running the whole graph finds."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe
from pyframe.emit import eager_retry, output
from pyframe.graph_retry import Undo

TABLE = torch.randn(7, 8)


def _layers(x):
    for _ in range(3):
        x = torch.relu(F.dropout(F.linear(x, TABLE[:4, :4]), 0.5, True))
    return x


def _looked_up(x, indices):
    return _layers(F.embedding(indices, TABLE)[..., :4])


def _attention(x):
    y = x.reshape(1, 2, 2, 4)
    return F.scaled_dot_product_attention(y, y, y, dropout_p=0.5) + F.dropout(y, 0.25, True)


def _certain(x):  # neither draws anything, although the program asks for dropout
    return F.dropout(x, 0.0, True) + F.dropout(x, 0.5, False)


def _split(x):
    first, second = F.dropout(x, 0.5, True).chunk(2)
    return first + second


def _divided(x, indices):
    return F.dropout(x, 0.5, True), indices // indices


DRAWS = Undo((), draws=True)
CASES = {
    _layers: DRAWS, _looked_up: DRAWS, _attention: DRAWS, _certain: Undo(), _split: DRAWS, _divided: DRAWS,
}  # fmt: skip


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_it_is_what_the_whole_graph_tells(fn, monkeypatch):
    found = []

    def recorded(*args, **kwargs):
        found.append(eager_retry.undo_of(*args, **kwargs))
        with monkeypatch.context() as whole:
            whole.setattr(eager_retry, "_at_most_draws", lambda node: False)
            found.append(eager_retry.undo_of(*args, **kwargs))
        return found[0]

    def handled(*args):
        try:
            return fn(*args)
        except RuntimeError:
            return None

    monkeypatch.setattr(output, "undo_of", recorded)
    arguments = (torch.randn(4, 4), torch.tensor([1, 2, 3, 6]))[: fn.__code__.co_argcount]
    pyframe.compile(handled, backend="eager", options={"cache": False})(*arguments)
    assert found == [CASES[fn], CASES[fn]]


def test_equal_calls_run_once(monkeypatch):
    ran = []
    watched = eager_retry._Watch.__torch_dispatch__

    def counted(self, func, types, args=(), kwargs=None):
        ran.append(func)
        return watched(self, func, types, args, kwargs)

    monkeypatch.setattr(eager_retry._Watch, "__torch_dispatch__", counted)

    def handled(x, indices):
        try:
            return _looked_up(x, indices)
        except RuntimeError:
            return None

    pyframe.compile(handled, backend="eager", options={"cache": False})(torch.randn(4, 4), torch.tensor([1, 2]))
    assert ran.count(torch.ops.aten.embedding.default) == 1
    assert 0 < ran.count(torch.ops.aten.relu.default) < 3
