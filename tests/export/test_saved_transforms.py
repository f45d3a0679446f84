"""Programs with transforms of functions, locks, autocast and dataclasses: exported, saved, loaded and converted."""

import dataclasses
import threading

import pytest
import torch
from export_checks import check
from torch import nn

import pyframe

LOCK = threading.Lock()


@dataclasses.dataclass
class Out:
    value: torch.Tensor
    count: int


def loss(row, w):
    return (row @ w).sin().sum()


def transforms(x, w):
    of_first = torch.func.grad(loss, argnums=1)(x[0], w)
    of_each = torch.vmap(torch.func.grad(loss), in_dims=(0, None))(x, w)
    return of_first, of_each, torch.vmap(lambda row: (row * 2, row.sum()), out_dims=(1, 0))(x)


def test_vmap_and_grad_are_saved(tmp_path):
    exported = check(transforms, torch.rand(3, 4), torch.rand(4, 5), path=tmp_path / "p")
    assert sorted(exported.kinds) == ["function grad_and_value", "function vmapped", "function vmapped_1"]


def computes_under_a_lock(x):
    with LOCK:
        y = x * 2
    return y + 1


def test_a_lock_is_no_part_of_a_program(tmp_path):
    exported = check(computes_under_a_lock, torch.rand(3), path=tmp_path / "p")
    with LOCK:
        exported(torch.rand(3))


def asks(x):
    return x * 2 if torch.compiler.is_exporting() and torch.compiler.is_compiling() else x


def test_a_program_knows_that_it_is_exported():
    assert pyframe.export(asks)(torch.ones(2))(torch.ones(2)).equal(torch.full((2,), 2.0))
    assert pyframe.compile(asks)(torch.ones(2)).equal(torch.ones(2))


class Caching(nn.Module):
    table = None

    def forward(self, x):
        with LOCK:
            if self.table is None:
                self.table = torch.ones(3)
        return x * self.table


def test_what_the_first_call_does_under_a_lock_is_named():
    with pytest.raises(pyframe.Unsupported, match="(?s)assigns the attribute 'table'.*call the module once"):
        pyframe.export(Caching())(torch.rand(3))


def test_an_autocast_around_the_export_is_part_of_the_program(tmp_path):
    model, x = nn.Linear(4, 4), torch.rand(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        exported = pyframe.export(model)(x)
        want = model(x)
    exported.save(tmp_path / "p")
    for program in (exported, pyframe.export.load(tmp_path / "p")):
        got = program(x)
        assert got.dtype == torch.bfloat16 and got.equal(want)
        assert not torch.is_autocast_enabled("cpu")
    assert pyframe.export(model)(x)(x).dtype == torch.float32


def test_dataclasses_become_known_to_torch_export():
    exported = pyframe.export(lambda x: Out(x * 2, 3))(torch.rand(3))
    x = torch.rand(3)
    got = exported.to_exported_program().module()(x)
    assert type(got) is Out and got.value.equal(x * 2) and got.count == 3
    assert exported(x).value.equal(x * 2)


class Plain:
    def __init__(self, x):
        self.x = x


def test_objects_are_refused_by_name():
    exported = pyframe.export(lambda x: Plain(x * 2))(torch.rand(3))
    with pytest.raises(pyframe.UserError, match="Plain"):
        exported.to_exported_program()


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float


def test_a_program_takes_dataclasses_that_torch_knows_since():
    exported = pyframe.export(lambda batch: batch.x * batch.scale)(Batch(torch.rand(3), 2.0))
    exported.to_exported_program()
    assert exported(Batch(torch.ones(3), 2.0)).equal(torch.full((3,), 2.0))
