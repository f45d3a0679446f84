"""Products of one row in compiled functions, where sizes vary, on a GPU."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from tools.fuzz_graphs import fake_cuda  # noqa: E402

fake_cuda.install()

import pytest  # noqa: E402
import torch  # noqa: E402

import pyframe  # noqa: E402
from inductor.lower import products  # noqa: E402

PROGRAMS = {
    "sizes of the product are constant": lambda x, w: x.sum(0, keepdim=True) @ w.t(),
    "number of products varies": lambda x, w: x[:, None] @ w.t().expand(x.size(0), *w.t().shape),
    "number of products varies elsewhere": lambda x, w: torch.bmm(x.sum(0).expand(3, 1, -1), w.t().expand(3, 70, -1)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_other_sizes_vary(program, monkeypatch):
    asked, is_row_product = [], products.is_row_product
    monkeypatch.setattr(products, "is_row_product", lambda *args: asked.append(args) or is_row_product(*args))
    compiled = pyframe.compile(program)
    for rows in (5, 9):
        x, w = torch.randn(rows, 70), torch.randn(300, 70) * 0.1
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x, w), program(x, w), rtol=1e-4, atol=1e-4)
    assert asked
