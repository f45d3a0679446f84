"""Creates fake tensors without torch's constructor, which takes ten times as long as the tensor itself.

A trace creates some hundred fake tensors per layer of a network. All that differ in nothing but their elements, sizes
and strides have equal attributes in Python, so these are copied from one that torch's constructor made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConfig, FakeTensorMode
from torch.utils._mode_utils import no_dispatch

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


def empty_fake(
    mode: FakeTensorMode, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
) -> FakeTensor:
    """`torch.empty_strided` of plain numbers in a mode, in memory of its own, without a call through the dispatcher in
    which each active mode runs."""
    with no_dispatch(), torch._C._DisablePythonDispatcher():
        elements = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return new_fake(mode, elements, device)


def converting_plain(convert: Callable[..., FakeTensor]) -> Callable[..., FakeTensor]:
    """`convert`, which is the `from_real_tensor` of a mode's converter, with a shorter way for tensors like most
    parameters: torch describes some thirty properties of each tensor, which take longer than all else that is done
    for it."""

    def call(mode: FakeTensorMode, t: torch.Tensor, *args: Any, **kwargs: Any) -> FakeTensor:
        if not args and all(kwargs.get(name) is None for name in _SPECIAL) and not kwargs.get("make_constant"):
            fake = _plain_fake(mode, t)
            if fake is not None:
                return fake
        return convert(mode, t, *args, **kwargs)

    return call


_SPECIAL = ("shape_env", "source", "symbolic_context")
_DEVICES = ("cpu", "cuda")


def _plain_fake(mode: FakeTensorMode, t: torch.Tensor) -> FakeTensor | None:
    """The fake tensor for a tensor in all of whose memory no other converted one is; None for special tensors and in
    special states of the thread. The converter knows it as its own."""
    converter = mode.fake_tensor_converter
    describer, memory = converter.meta_converter.describer, converter.meta_converter.storage_memo
    if not _is_plain(t) or converter._get_memo(t) is not None or converter.meta_converter.copy_data:
        return None
    if torch.is_inference_mode_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize):
        return None
    storage = t.untyped_storage()
    known = describer.lookup_storage.get(storage)
    if known is not None and known in memory:
        return None
    fake = empty_fake(mode, t.shape, t.stride(), t.dtype, t.device)
    own = fake.untyped_storage()
    if own.nbytes() != storage.nbytes():  # others may have the rest of it
        return None
    if t.requires_grad:
        fake.requires_grad = True
    if isinstance(t, torch.nn.Parameter):
        fake._is_param = True
    memory[describer.get_storage_id(storage)] = own
    converter.set_tensor_memo(t, fake)
    return fake


def _is_plain(t: torch.Tensor) -> bool:
    """Whether sizes, strides, dtype, device and `requires_grad` are all that a fake tensor takes from a tensor."""
    if type(t) is not torch.Tensor and type(t) is not torch.nn.Parameter:
        return False
    if t.layout is not torch.strided or t.device.type not in _DEVICES or t.is_quantized or t.is_nested:
        return False
    if torch._is_functional_tensor(t) or torch._C._functorch.is_functorch_wrapped_tensor(t) or t.is_inference():
        return False
    if t._is_view() or t.is_conj() or t.is_neg() or not t.is_leaf or t.storage_offset() or not t.numel():
        return False
    return t.grad is None and (not t.requires_grad or getattr(t, "grad_dtype", t.dtype) == t.dtype)
