"""Calls on fake tensors that are made from what an equal call returned are like those that run."""

from __future__ import annotations

import pytest
import torch

from inductor.aot import fake
from inductor.aot.fake import fake_mode

aten = torch.ops.aten


def facts(x):
    """What the rest of the compiler reads of a fake tensor."""
    if not isinstance(x, torch.Tensor):
        return x
    base = None if x._base is None else tuple(x._base.shape)
    return (
        tuple(x.shape), x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x.dtype, x.device,
        x.requires_grad, x.is_leaf, type(x.grad_fn).__name__, x.is_inference(), base,
        None if x.is_inference() else x._version, x.is_conj(), x.is_neg(),
        None if x.constant is None else tuple(x.constant.shape),
    )  # fmt: skip


def described(results):
    """The facts of some results, and which of them are one tensor or share memory."""
    flat = [x for r in results for x in (r if isinstance(r, list | tuple) else [r])]
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    storages = [x.untyped_storage()._cdata for x in tensors]
    ids = [id(x) for x in flat]
    return list(map(facts, flat)), list(map(storages.index, storages)), list(map(ids.index, ids))


CALLS = {
    "pointwise": lambda x, y: x + y,
    "promotion": lambda x, y: x + y.double(),
    "view": lambda x, y: x.view(2, 6),
    "chain of views": lambda x, y: x.t()[1:].unsqueeze(0),
    "several views": lambda x, y: x.unbind(0),
    "itself": lambda x, y: x.contiguous(),
    "alias": lambda x, y: aten.alias.default(x),
    "detach": lambda x, y: x.detach(),
    "in place": lambda x, y: x.clone().add_(y).mul_(2),
    "write through a view": lambda x, y: x.clone().view(-1).add_(1)[2:],
    "matmul": lambda x, y: x @ y.t(),
    "several results": lambda x, y: torch.var_mean(x, 0),
    "one shared": lambda x, y: x + x,
    "expanded": lambda x, y: x[:1].expand(3, 4) * y,
    "unsafe view": lambda x, y: aten._unsafe_view.default(x * 1, [12]),
    "reduction": lambda x, y: x.sum((0, 1)),
    "constants": lambda x, y: torch.tensor(2.0) * x,
    "empty constant": lambda x, y: (torch.cat([torch.tensor([]), x]), torch.tensor([])[:, None] * x[0]),
    "empty constants": lambda x, y: (torch.cat([torch.tensor([]), torch.tensor([])]), torch.tensor([]).sum() * x),
    "constants of one size": lambda x, y: (torch.tensor([2.0]) * x, torch.tensor([3.0]) * x, torch.tensor([2.0]) + 1),
    "strided": lambda x, y: x.t() * y.t(),
    "copied to a dtype": lambda x, y: x.to(torch.bfloat16),
    "conjugate": lambda x, y: torch.complex(x, y).conj().real,
    "scalars": lambda x, y: (x * 1, x * 1.0, x * True, x * -0.0),
    "convolution": lambda x, y: torch.nn.functional.conv1d(x[None], y[:, :, None][:, :3]),
}


@pytest.mark.parametrize("mode", ["plain", "grad", "no_grad", "inference"])
@pytest.mark.parametrize("name", CALLS)
def test_second_call_equals_the_first_and_one_without_memory(name, mode, monkeypatch):
    call = CALLS[name]

    def twice():
        around = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, torch.enable_grad)
        out = []
        with around(), fake_mode():
            for _ in range(2):
                x = torch.empty(3, 4, requires_grad=mode in ("grad", "no_grad"))
                y = torch.empty(3, 4)
                results = call(x, y)
                out.append(described([x, y, *(results if isinstance(results, list | tuple) else [results])]))
        return out

    first, second = twice()
    assert first == second
    monkeypatch.setattr(fake, "remembering", lambda mode, run: run)
    assert twice()[0] == second


def runs_of(monkeypatch):
    """The operators that torch's mode ran; filled later."""
    ran = []
    original = fake.remembering

    def counted(mode, run):
        def note(func, *rest):
            ran.append(func)
            return run(func, *rest)

        return original(mode, note)

    monkeypatch.setattr(fake, "remembering", counted)
    return ran


def test_calls_on_an_empty_constant_run_once(monkeypatch):
    ran = runs_of(monkeypatch)
    with fake_mode():
        x = torch.empty(3, 4)
        for _ in range(3):
            x = torch.cat([torch.tensor([]), x])
    assert ran.count(aten.cat.default) == 1


def test_equal_calls_run_once(monkeypatch):
    ran = runs_of(monkeypatch)
    with fake_mode():
        x, y = torch.empty(3, 4), torch.empty(3, 4)
        for _ in range(3):
            x = (x * y).relu()
    assert ran.count(aten.mul.Tensor) == ran.count(aten.relu.default) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:2], lambda x: x.t(), lambda x: x.double(), lambda x: x.reshape(12)[2:10],
        lambda x: torch.empty(3, 8)[:, ::2], lambda x: torch.empty(3, 4, device="cuda"),
    ],
)  # fmt: skip
def test_calls_on_other_tensors_run(change, monkeypatch):
    ran = runs_of(monkeypatch)
    with fake_mode():
        x = torch.empty(3, 4)
        other = change(x)
        results = [each.relu() for each in (x, other)]
    assert ran.count(aten.relu.default) == 2
    assert results[1].device == other.device and results[1].shape == other.shape


def test_errors_stay(monkeypatch):
    ran = runs_of(monkeypatch)
    with fake_mode():
        x = torch.empty(3, 4)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="reduction dim"):
                aten.mm.default(x, x)
    assert ran.count(aten.mm.default) == 2


def test_written_tensors_are_not_remembered():
    with fake_mode():
        for _ in range(2):
            x = torch.empty(3, 4)
            y = x.add_(1)
            assert y is x and x._version == 1
            assert aten.relu_.default(x) is x and x._version == 2


def test_inference_mode_and_its_tensors():
    mode = fake_mode()
    x = mode.from_tensor(torch.randn(3, 4))
    with torch.inference_mode():
        made = mode.from_tensor(torch.randn(3, 4))
    for _ in range(2):
        found = []
        for inside in (False, True, False):
            with mode, torch.inference_mode(inside):
                found += [[x.detach(), x * 2, x.view(-1)], [made.detach(), made * 2, made.view(-1)]]
        assert [[y.is_inference() for y in each] for each in found] == [
            [False, False, False], [True, False, True], [False, True, False], [True, True, True],
            [False, False, False], [True, False, True],
        ]  # fmt: skip
