"""Creates fake tensors without torch's constructor, which takes ten times as long as the tensor itself.

A trace creates some hundred fake tensors per layer of a network. All that differ in nothing but their elements, sizes
and strides have equal attributes in Python, so these are copied from one that torch's constructor made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConfig, FakeTensorMode

# The attribute of a mode that holds, for each device, the attributes of a new fake tensor on it. They are not in a dict
# of ours, because they refer to the mode, which then would never be freed.
_ATTRIBUTES = "_attributes_of_new_fakes"


def new_fake(mode: FakeTensorMode, elements: torch.Tensor, device: torch.device) -> FakeTensor:
    """`FakeTensor(mode, elements, device)`: a fake tensor with the memory of `elements`, which are on the meta device.
    It requires no gradient."""
    known: dict[torch.device, dict[str, Any]] = vars(mode).setdefault(_ATTRIBUTES, {})
    attributes = known.get(device)
    if attributes is None or FakeTensorConfig.debug:  # then each has the place that created it
        fake = FakeTensor(mode, elements, device)
        known[device] = dict(vars(fake))
        return fake
    fake = torch.Tensor._make_subclass(
        FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=device
    )
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
    else:
        torch._C._set_throw_on_mutable_data_ptr(fake)
    vars(fake).update(attributes)
    return fake
