"""Tensors of classes with a `__torch_dispatch__`: modules whose weights are such tensors, training them, DTensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tensor_kinds import difference
from tensor_kinds_classes import Int8Linear, Int8Weight
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.two_tensor import TwoTensor

import pyframe
from pyframe.metrics import counters

Run = Callable[[Callable[..., Any]], list[Any]]


def _same_as_eager(run: Run, dynamic: bool | None) -> None:
    pyframe.reset()
    got, want = run(lambda fn: pyframe.compile(fn, dynamic=dynamic)), run(lambda fn: fn)
    assert difference(got, want, strides=False) is None


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("cls", [Int8Weight, Int8Linear])
def test_module_of_int8_weights(cls: type[Int8Weight], dynamic: bool | None) -> None:
    def run(compiled: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        for layer in (model[0], model[2]):
            layer.weight = nn.Parameter(cls.of(layer.weight.detach()), requires_grad=False)
        call, found = compiled(model), []
        for rows in (4, 4, 7, 9):
            x = torch.ones(rows, 6).cumsum(0).requires_grad_()
            y = call(x)
            y.sum().backward()
            found += [y.detach(), x.grad, model[0].bias.grad.clone()]
        return found

    _same_as_eager(run, dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
def test_training_of_a_pair(dynamic: bool | None) -> None:
    def run(compiled: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        weight = nn.Parameter(TwoTensor(torch.randn(3, 6), torch.randn(3, 6)))
        call = compiled(lambda x: F.linear(x, weight).sin().sum())
        optimizer, found = torch.optim.SGD([weight], lr=0.1), []
        for rows in (4, 4, 7):
            optimizer.zero_grad()
            y = call(torch.ones(rows, 6).cumsum(0))
            y.backward()
            optimizer.step()
            found += [y.detach(), weight.grad.detach().clone(), weight.detach().clone()]
        return found

    _same_as_eager(run, dynamic)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """One process, whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        given = torch.arange(4.0)
        if not torch.equal(distribute_tensor(given, mesh, [Shard(0)]).to_local(), given):
            pytest.skip("the fake process group of this torch leaves results uninitialized, in eager too")
        yield mesh
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("program", ["linear", "local part", "redistributed", "made", "whole"])
def test_dtensor(mesh: DeviceMesh, program: str) -> None:
    programs: dict[str, Callable[..., Any]] = {
        "linear": lambda a, b: F.linear(a, b).relu(),
        "local part": lambda a, b: a.to_local() * 2 + 1,
        "redistributed": lambda a, b: a.redistribute(mesh, [Replicate()]) * 2,
        "made": lambda a, b: DTensor.from_local(a.to_local() * 2, mesh, [Shard(0)]) + a,
        "whole": lambda a, b: (a * 2).full_tensor().sum(),
    }

    def run(compiled: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        a = distribute_tensor(torch.randn(4, 6), mesh, [Shard(0)]).requires_grad_()
        b = distribute_tensor(torch.randn(3, 6), mesh, [Replicate()]).requires_grad_()
        result = compiled(programs[program])(a, b)
        local = result.to_local() if isinstance(result, DTensor) else result
        local.sum().backward()
        gradients = [x.grad.to_local() if x.grad is not None else None for x in (a, b)]
        return [type(result).__name__, str(getattr(result, "placements", None)), local.detach(), *gradients]

    counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no part runs eagerly
        _same_as_eager(run, None)
    assert (counters["graphs"], sum(counters["graph_breaks"].values())) == (1, 0)


class _Holder:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def _pair_of(a: torch.Tensor, b: torch.Tensor) -> _Holder:
    return _Holder(TwoTensor(a, b))


@pytest.mark.parametrize("grad", [False, True])
def test_writes_to_inner_tensors_that_share_memory(grad: bool) -> None:
    """Both parts are the same tensor, or lie in the same memory: each is written twice."""

    def scale(held: _Holder, t: torch.Tensor) -> torch.Tensor:
        held.x.mul_(2)
        return held.x * t

    compiled = pyframe.compile(scale)
    for turn in range(4):
        found = []
        for fn in (scale, compiled):
            a, t = torch.ones(3, 4), torch.ones(3, 4, requires_grad=grad)
            held = _pair_of(a, (a.clone(), a, a.view(3, 4), a.clone())[turn])
            found.append([fn(held, t).detach(), held.x])
        assert difference(*found) is None


@pytest.mark.parametrize("inference", [False, True])
def test_writes_are_counted(inference: bool) -> None:
    """A tensor that autograd saved is written by a compiled function: its backward raises, as in eager."""

    def scale(held: _Holder, t: torch.Tensor) -> torch.Tensor:
        held.x.mul_(2)
        return held.x * t

    for fn in (scale, pyframe.compile(scale)):
        held, t = _pair_of(torch.ones(3), torch.ones(3)), torch.ones(3, requires_grad=True)
        saved = t * held.x
        with torch.set_grad_enabled(not inference):
            fn(held, t)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()


class _Transposed(Int8Weight):
    """A weight whose `to` gives another matrix than its operators would."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.Tensor.to:
                return args[0].dequantize() * 3
            return func(*args, **(kwargs or {}))


class _ByItsOwnTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return F.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad @ ctx.saved_tensors[0].to(grad.dtype), None


def test_backward_functions_see_torch_function() -> None:
    weight = _Transposed.of(torch.arange(1.0, 19.0).view(3, 6))

    def run(compiled: Callable[..., Any]) -> list[Any]:
        x = torch.ones(4, 6, requires_grad=True)
        y = compiled(lambda x: _ByItsOwnTo.apply(x, weight) * 2)(x)
        y.sin().sum().backward()
        return [y.detach(), x.grad]

    _same_as_eager(run, None)
