"""Fake tensors that are made from the attributes of another one are those that torch's constructor makes."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from inductor.aot import new_fakes
from inductor.aot.fake import fake_mode
from inductor.aot.new_fakes import new_fake


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_same_as_torchs(device: str, dtype: torch.dtype) -> None:
    mode, on = fake_mode(), torch.device(device)
    for _ in range(3):
        elements = torch.empty_strided((2, 3), (1, 2), dtype=dtype, device="meta")
        expected, found = FakeTensor(mode, elements, on), new_fake(mode, elements, on)
        assert vars(found) == vars(expected) and vars(found) is not vars(expected)
        assert type(found) is FakeTensor and found.device == expected.device and found.dtype == dtype
        assert (found.shape, found.stride()) == (expected.shape, expected.stride())
        assert found.untyped_storage()._cdata == elements.untyped_storage()._cdata
        assert torch._C._dispatch_keys(found).raw_repr() == torch._C._dispatch_keys(expected).raw_repr()
        assert (found.requires_grad, found.is_leaf, found._is_view()) == (False, True, expected._is_view())
        assert found._version == expected._version == 0
    found.item_memo = None
    found.constant = torch.ones(())
    assert new_fake(mode, elements, on).constant is None  # attributes are not shared


def _inputs() -> dict[str, list[torch.Tensor]]:
    whole = torch.zeros(4, 6)
    with_grad = torch.nn.Parameter(torch.zeros(3))
    with_grad.grad = torch.ones(3)
    weight = torch.nn.Parameter(torch.zeros(5, 2))
    with torch.inference_mode():
        inference = torch.zeros(2)
    return {
        "parameter": [torch.nn.Parameter(torch.zeros(4, 6, dtype=torch.bfloat16))],
        "tensor": [torch.zeros(2, 3).t().contiguous().t().clone()],
        "integers": [torch.nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)],
        "transposed": [torch.empty_strided((2, 3), (1, 2), requires_grad=True)],
        "gaps": [torch.empty_strided((2, 3), (4, 1))],
        "number": [torch.tensor(3)],
        "twice": [weight, weight],
        "one memory": [whole.detach(), whole.data, torch.nn.Parameter(whole[1:].detach())],
        "part of a larger memory": [torch.nn.Parameter(torch.zeros(8)[:3].data), torch.zeros(8)[2:].data],
        "view": [whole.view(24), whole],
        "with a gradient": [with_grad],
        "computed": [weight * 2],
        "inference": [inference],
        "empty": [torch.zeros(0, 3)],
        "conjugate": [torch.zeros(2, dtype=torch.complex64).conj()],
    }


@pytest.mark.parametrize("name", _inputs())
def test_conversion_is_torchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = _inputs()[name]
    found = _converted(tensors)
    with monkeypatch.context() as patch:
        patch.setattr(new_fakes, "_plain_fake", lambda mode, t: None)
        expected = _converted(tensors)
    assert found == expected


def _converted(tensors: list[torch.Tensor]) -> list[object]:
    """What the fake tensors for some tensors, each converted twice, are."""
    mode = fake_mode()
    fakes = [mode.from_tensor(x, static_shapes=True) for x in (*tensors, *tensors)]
    first = {storage._cdata: k for k, storage in reversed([*enumerate(x.untyped_storage() for x in fakes)])}
    return [
        (
            [x is each for each in fakes], first[x.untyped_storage()._cdata], x.untyped_storage().nbytes(),
            tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, x.device, x.requires_grad, x.is_leaf,
            x.is_inference() or x._version, x._is_view(), x.is_conj(), isinstance(x, torch.nn.Parameter), sorted(vars(x)),
            getattr(x, "_is_param", None), x.item_memo, x.constant, x.is_leaf and type(x.grad),
            torch._C._dispatch_keys(x).raw_repr(), x.fake_mode is mode,
        )
        for x in fakes
    ]  # fmt: skip


def test_plain_tensors_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, plain = fake_mode(), _inputs()["parameter"][0]
    monkeypatch.setattr(mode.fake_tensor_converter.meta_converter.describer, "describe_tensor", None)
    assert mode.from_tensor(plain, static_shapes=True).requires_grad
