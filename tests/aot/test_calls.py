"""`value_of`: the fake result of a call, made from that of an equal call where that call has shown how."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import fx

from inductor.aot.calls import value_of
from inductor.aot.fake import fake_mode

aten = torch.ops.aten


def node_of(value):
    """A node that carries a value."""
    node = fx.Graph().placeholder("x")
    node.meta["val"] = value
    return node


def described(value):
    """What may be asked about the tensors of a result."""
    if isinstance(value, list | tuple):
        return type(value), [described(x) for x in value]
    return None if value is None else (value.shape, value.stride(), value.dtype, value.device, value.storage_offset())


CALLS = {
    "add": (aten.add.Tensor, lambda x: (x, x)),
    "convolution": (aten.convolution.default, lambda x: (x, x, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    "var_mean": (aten.var_mean.correction, lambda x: (x, [0, 2])),
    "split": (aten.split.Tensor, lambda x: (x, 2)),
    "view": (aten.permute.default, lambda x: (x, [3, 2, 1, 0])),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_equal_call_has_a_new_result_like_the_first(name):
    op, arguments = CALLS[name]
    with fake_mode() as mode:
        x = torch.empty(4, 4, 3, 3).to(memory_format=torch.channels_last)
        others = [torch.empty(4, 4, 3, 3), torch.empty(8, 4, 3, 3)[::2]]
    first, again = (value_of(op, arguments(node_of(x)), {}) for _ in range(2))
    assert described(again) == described(first)
    assert again is not first
    for other in others:  # another layout is another call
        with mode:
            want = op(*arguments(other))
        assert described(value_of(op, arguments(node_of(other)), {})) == described(want)


def test_a_view_of_an_argument_shares_its_memory_each_time():
    with fake_mode():
        x, y = torch.empty(4, 3), torch.empty(4, 3)
    for each in (x, y, x):
        view = value_of(aten.permute.default, (node_of(each), [1, 0]), {})
        assert view.untyped_storage()._cdata == each.untyped_storage()._cdata


def test_results_of_equal_calls_have_memory_of_their_own():
    with fake_mode():
        x = torch.empty(4, 3)
    results = [value_of(aten.add.Tensor, (node_of(x), 1), {}) for _ in range(3)]
    assert len({each.untyped_storage()._cdata for each in results}) == 3


def test_an_equal_call_does_not_run_the_operator(monkeypatch):
    with fake_mode() as mode:
        x = torch.empty(4, 3)
    value_of(aten.add.Tensor, (node_of(x), 1), {})
    monkeypatch.setattr(mode, "__torch_dispatch__", None)
    assert value_of(aten.add.Tensor, (node_of(x), 1), {}).shape == (4, 3)


def test_what_calls_returned_is_forgotten_with_the_mode():
    with fake_mode() as mode:
        x = torch.empty(4, 3)
    value_of(aten.add.Tensor, (node_of(x), 1), {})
    gone = weakref.ref(mode)
    del mode, x
    gc.collect()
    assert gone() is None
