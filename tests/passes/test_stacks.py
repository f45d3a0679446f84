"""Items of stacks of numbers; results are computed by the compiled graph and compared with eager's."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import pyframe
from inductor.passes.stacks import items_of_stacks

aten = torch.ops.aten


def targets(fn, *args):
    mode = FakeTensorMode()
    with mode, torch.no_grad():
        gm = make_fx(fn)(*[mode.from_tensor(x) for x in args])
    changed = items_of_stacks(gm)
    return changed, [node.target for node in gm.graph.nodes if node.op == "call_function"]


def scaled(x, a, b):
    first, second = torch.stack([a * 2, b + 1]).unbind()
    return x * first, x + second


def returned(x, a, b):
    first, second = torch.stack([a, b]).unbind()
    return first, x * second


def promoted(x, a, b):
    first, second = torch.stack([a.double(), b]).unbind()
    return x * first, x * second


def written(x, a, b):
    second, first = torch.stack([b, a]).unbind()
    a.copy_(second)
    b.copy_(first)
    return x * first, x * second


def rows(x, a, b):
    first, second = torch.stack([x, x + 1]).unbind()
    return first * a, second * b


GIVEN = torch.randn(4, 3), torch.tensor(2.0), torch.tensor(3.0)


def test_operators_read_what_was_stacked():
    changed, found = targets(scaled, *GIVEN)
    assert changed and aten.stack.default not in found and aten.unbind.int not in found


@pytest.mark.parametrize("fn", [promoted, rows])
def test_other_stacks_stay(fn):
    changed, found = targets(fn, *GIVEN)
    assert aten.stack.default in found and (not changed or fn is promoted)


@pytest.mark.parametrize("fn", [scaled, returned, promoted, written, rows])
def test_results(fn):
    mine, theirs = [[x.clone() for x in GIVEN] for _ in range(2)]
    got, want = pyframe.compile(fn)(*mine), fn(*theirs)
    torch.testing.assert_close((got, mine), (want, theirs))
    memory = {x.untyped_storage().data_ptr() for x in mine}
    assert all(x.untyped_storage().data_ptr() not in memory for x in got)
