"""Fake tensors that are made from the attributes of another one are those that torch's constructor makes."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

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
