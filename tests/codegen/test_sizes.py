"""Graphs compiled once for many sizes: every operator sample, and what is particular to sizes that are not known."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from op_samples import CASES  # noqa: E402

import inductor.specialize  # noqa: E402
import pyframe  # noqa: E402


def compilations(monkeypatch):
    """The Specialized graphs that are made from now on."""
    made = []
    init = inductor.specialize.Specialized.__init__

    def spy(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(inductor.specialize.Specialized, "__init__", spy)
    return made


def compare(got, want):
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            rough = b.dtype in (torch.bfloat16, torch.float16)
            torch.testing.assert_close(a, b, rtol=1e-2 if rough else 1e-4, atol=1e-2 if rough else 1e-5, equal_nan=True)
        else:
            assert a == b


@pytest.mark.parametrize("name", CASES)
def test_operator_samples(name, monkeypatch):
    made = compilations(monkeypatch)
    torch.manual_seed(0)
    fn, *args = CASES[name]
    fast = pyframe.compile(lambda *xs: fn(*xs), dynamic=True, options={"strict": True})
    compare(fast(*args), fn(*args))
    print(name, [(x.compiled, sum(map(len, x.templates.values()))) for x in made])
