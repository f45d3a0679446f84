"""Graphs compiled once for many sizes, on a GPU."""


import pytest
import torch

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

from test_sizes import attention, compilations, counted, rearranged


def rows(x, y):
    return torch.softmax(x.float() @ y[:, :5].float(), 1), x.amax(-1), (x * x).mean(), x.sum((0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("fn", [attention, rearranged, counted, rows], ids=lambda fn: fn.__name__)
def test_one_compilation_for_many_sizes(fn, dtype, monkeypatch):
    made = compilations(monkeypatch)
    fast = pyframe.compile(fn, fullgraph=True, options={"strict": True})
    y = torch.randn(16, 48, device="cuda", dtype=dtype)
    for n, t in [(2, 8), (3, 9), (5, 64), (31, 17), (4, 100), (2, 2), (16, 33), (7, 900)]:
        x = torch.randn(n, t, 16, device="cuda", dtype=dtype)
        for got, want in zip(fast(x, y), fn(x, y), strict=True):
            if not isinstance(want, torch.Tensor):
                assert got == want
            elif want.dtype.is_floating_point:
                rough = 2e-2 if dtype == torch.bfloat16 else 1e-4
                assert float((got.float() - want.float()).abs().max()) <= rough * float(want.float().abs().max())
            else:
                assert torch.equal(got, want)
    assert all(graph.compiled == 0 for graph in made)
    assert sum(len(known) for graph in made for known in graph.templates.values()) <= 3
