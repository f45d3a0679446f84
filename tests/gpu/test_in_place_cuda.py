"""Partial writes to inputs on a GPU, where a key-value cache must be neither cloned nor copied back."""

import copy

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

from in_place_programs import PROGRAMS, arguments, index_copy, layouts, masked, nested, slice_of_a_cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_results_and_inputs_are_those_of_eager(program, dtype):
    compiled = pyframe.compile(program, fullgraph=program is not masked)
    for args in layouts([x.to("cuda") for x in arguments(dtype)]):
        expected, given = copy.deepcopy(args), copy.deepcopy(args)
        with torch.no_grad():
            want, got = program(*expected), compiled(*given)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("program", [slice_of_a_cache, nested, index_copy], ids=lambda f: f.__name__)
def test_a_call_needs_less_memory_than_the_cache_has(program):
    c, k, pos = (x.to("cuda") for x in arguments())
    c, k = c.repeat(1, 1, 1 << 18), k.repeat(1, 1, 1 << 18)  # 64 MB and 16 MB
    compiled = pyframe.compile(lambda c, k, pos: program(c, k, pos).sum())
    with torch.no_grad():
        compiled(c, k, pos)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        compiled(c, k, pos)
        torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < c.nbytes // 2


def test_keys_and_values_are_written_by_one_kernel():
    def step(c, d, k, v, pos, cos, sin):
        a, b = k.chunk(2, -1)
        c.index_copy_(2, pos, k * cos + torch.cat((-b, a), -1) * sin)
        d[:, :, pos] = v * cos

    make = lambda *size: torch.randn(*size, device="cuda", dtype=torch.bfloat16)
    args = make(1, 8, 256, 64), make(1, 8, 256, 64), make(1, 8, 1, 64), make(1, 8, 1, 64)
    args += torch.tensor([-3 % 256], device="cuda"), make(64), make(64)
    compiled, expected = pyframe.compile(step, fullgraph=True), copy.deepcopy(args)
    with torch.no_grad():
        step(*expected), compiled(*args)
        torch.testing.assert_close(args, expected, rtol=2e-2, atol=3e-2)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            compiled(*args)
            torch.cuda.synchronize()
    kernels = [event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) == 1, [event.name for event in kernels]
