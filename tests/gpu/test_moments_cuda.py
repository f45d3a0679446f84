"""Batch norm by batch statistics, and variances of long rows, on a GPU: kernels alone, as accurate as ATen's."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import inductor

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")


def compiled(fn, *args):
    gm = fx.symbolic_trace(fn)
    call = inductor.compile_fx(gm, [a.clone(memory_format=torch.preserve_format) for a in args], options={"strict": True})
    assert gm.meta["compile_report"].externs == 0
    return call


def compared(fn, *args):
    """Compares results, and the arguments after the call, of compiled and eager calls with those in float64."""

    def results(fn, precise):
        copies = [a.double() if precise else a.clone(memory_format=torch.preserve_format) for a in args]
        out = fn(*copies)
        return [*(out if isinstance(out, tuple | list) else [out]), *copies]

    exact = results(fn, True)
    call = compiled(fn, *args)
    for eager, got, again, want in zip(results(fn, False), results(call, False), results(call, False), exact, strict=True):
        assert torch.equal(got, again) and got.dtype == eager.dtype and got.stride() == eager.stride()
        unit = torch.finfo(got.dtype).eps * want.abs().max()
        assert (got - want).abs().max() <= 2 * (eager - want).abs().max() + 4 * unit


@pytest.mark.parametrize("offset", [0, 300, 1e4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("size", [(32, 128, 28, 28), (7, 33, 13, 11), (64, 3, 64, 65), (2, 2048, 7, 7)])
def test_batch_norm(size, layout, dtype, offset):
    torch.manual_seed(0)
    x = (torch.randn(size, device="cuda") * 2 + offset).to(dtype).contiguous(memory_format=layout)
    w, b, mean, var = torch.rand(4, size[1], device="cuda") + 0.5
    with torch.no_grad():
        compared(lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)), x, w, b)
        compared(lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b, True, 0.3)), x, mean, var, w, b)


@pytest.mark.parametrize("size", [(64, 20000), (3, 1_000_001), (1, 5_000_000), (8192, 33)])
@pytest.mark.parametrize("dim", [0, 1])
def test_variance(size, dim):
    torch.manual_seed(0)
    x = torch.randn(size, device="cuda") + 1e4
    with torch.no_grad():
        compared(lambda x: torch.var_mean(x, dim, correction=0), x)
