"""Reductions of very long rows: the partial results of their chunks fit on any thread's stack."""

from __future__ import annotations

import threading

import forked_python
import pytest
import torch

import inductor.codegen.cpp.kernel as kernel
import pyframe

SMALL_STACK = 512 << 10  # bytes


def reductions(x):
    return x.sum(), x.amax(), x.amin(), x.argmax(), x.argmin(), (x > 2).any(), (x > -9).all(), x.double().sum()


@pytest.mark.parametrize("length", [20_000, 32_768, 100_003, 262_145])
@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_of_several_chunks(length, dynamic, monkeypatch):
    """Fewer parts than chunks, whole and not."""
    monkeypatch.setattr(kernel, "MAX_PARTS", 3)
    monkeypatch.setenv("PYFRAME_CACHE_DIR", "")
    torch.manual_seed(length)
    x = torch.randn(length)
    x[length // 3] = x[length // 2] = x.max() + 1  # the first of equals
    x[5] = x[length - 1] = x.min() - 1
    for whole in (x, (x * 100).long()):
        compiled = pyframe.compile(reductions, dynamic=dynamic, fullgraph=True)
        torch.testing.assert_close(compiled(whole), reductions(whole), rtol=1e-5, atol=1e-3)
    x[length // 2] = float("nan")
    compiled = pyframe.compile(reductions, dynamic=dynamic, fullgraph=True)
    torch.testing.assert_close(compiled(x), reductions(x), rtol=1e-5, atol=1e-3, equal_nan=True)


def test_long_rows_on_a_small_stack():
    """2**31 elements are 262,144 chunks; one float of each would take 1 MiB of the stack."""

    def total(x):
        return (x.expand(2**16, 2**15) + 1).sum()

    compiled = pyframe.compile(total, fullgraph=True)
    assert compiled(torch.zeros(1, 1)).item() == 2**31
    results = []
    before = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=lambda: results.append(compiled(torch.ones(1, 1)).item()))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert results == [2**32]


_TOO_LARGE = """
import torch, pyframe
x = torch.ones(1, 1)
for n in (10**7, 10**10):
    def whole(x): return x.expand(n, n) + 1
    def between(x): return (x.expand(n, n) + 1).sort().values.sum()
    for fn in (whole, between):
        kinds = []
        for each in (fn, pyframe.compile(fn)):
            try: each(x)
            except Exception as error: kinds.append(type(error))
        assert len(kinds) == 2 and kinds[0] is kinds[1], (n, fn.__name__, kinds)
print("same")
"""


def test_results_that_fit_no_memory_raise_as_in_eager():
    """Of 4e14 bytes, and of more elements than an int64 counts."""
    done = forked_python.run(_TOO_LARGE)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr[-3000:]
