"""Products with rows that are not aligned, padded on a GPU: values and gradients."""

import pytest
import torch
import torch.nn.functional as F

import pyframe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_a_vocabulary(dtype, bias):
    x = torch.randn(2048, 512, device="cuda", dtype=dtype, requires_grad=True)
    w = (torch.randn(5025, 512, device="cuda", dtype=dtype) / 16).requires_grad_()
    args = [x, w, torch.randn(5025, device="cuda", dtype=dtype, requires_grad=True)][: 2 + bias]
    target = torch.randint(0, 5025, (2048,), device="cuda")

    def loss(*args):
        logits = F.linear(*args)
        return F.cross_entropy(logits.float(), target), logits

    fast = pyframe.compile(loss, options={"strict": True})
    got, want = fast(*args), loss(*args)
    assert got[1].stride() == want[1].stride()
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
    for a, b in zip(torch.autograd.grad(got[0], args), torch.autograd.grad(want[0], args)):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=3e-2 * float(b.abs().max()))


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("rows", [512, 2000])
def test_logits_that_are_returned_are_written_once_by_a_generated_kernel(mode, rows):
    x = torch.randn(2, rows // 2, 768, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(5025, 768, device="cuda", dtype=torch.bfloat16) / 16
    fast = pyframe.compile(lambda x, w: F.linear(x, w), mode=mode, options={"strict": True})
    with torch.no_grad():
        got, want = fast(x, w), F.linear(x, w)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
        assert got.stride() == want.stride()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            fast(x, w)
    kernels = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) == 1, kernels
