"""The device of a fake tensor: torch asks for it where an exception would end the process, so no Python code runs."""

from __future__ import annotations

import gc
import weakref

import torch
from torch._subclasses import fake_tensor

from inductor.aot.fake import fake_mode


def test_no_python_code_gives_the_device(monkeypatch):
    mode = fake_mode()
    weight = mode.from_tensor(torch.nn.Parameter(torch.ones(4, 4)))
    x = mode.from_tensor(torch.ones(3, 4))

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setitem(fake_tensor._DISPATCH_META_HANDLERS, torch.ops.prim.device.default, interrupted)
    with mode:
        y = torch.nn.functional.linear(x, weight).tanh()
        assert y.device == torch.device("cpu") and y.requires_grad
        with fake_tensor.in_kernel_invocation_manager(mode):
            assert y.device == torch.device("meta")
        (grad,) = torch.autograd.grad(y.sum(), weight)
    assert grad.shape == (4, 4)


def test_a_mode_is_garbage_with_its_dispatch():
    mode = fake_mode()
    ref = weakref.ref(mode.fake_tensor_converter)
    del mode
    gc.collect()
    assert ref() is None
