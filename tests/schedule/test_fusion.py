"""Which computations become one kernel, with results as in eager."""

import pytest
import torch
import torch.nn.functional as F
from kernel_groups import check, run


@pytest.mark.parametrize("rows,cols", [(4, 16), (3, 37), (64, 768), (2, 5), (1, 40000)])
def test_layernorm_is_one_kernel(rows, cols):
    groups = check(
        lambda x, w, b: F.layer_norm(x, (cols,), w, b), torch.randn(rows, cols), torch.randn(cols), torch.randn(cols), kernels=1
    )
    assert len(groups[0].stored) == 1


@pytest.mark.parametrize("shape,dim", [((8, 100), 1), ((8, 20, 100), 1), ((100, 33), 0), ((4, 8, 8), 2), ((2, 20000), 1)])
def test_softmax_is_one_kernel(shape, dim):
    check(lambda x: x.softmax(dim), torch.randn(shape), kernels=1, rtol=2e-6, atol=1e-7)


def test_equal_kernels_are_emitted_once():
    groups, functions, outs = run(lambda x, y: (x.sin(), y.sin()), *(a := (torch.randn(64), torch.randn(64))))
    assert len(groups) == 2 and functions == 1
    torch.testing.assert_close(outs, [a[0].sin(), a[1].sin()])


def test_what_is_read_at_another_index_is_not_fused():
    x = torch.randn(64)
    check(lambda x: ((y := x.exp().sin().exp().sin()), y.flip(0)), x, kernels=2)


def test_pointwise_joins_reductions_on_both_sides():
    check(lambda x, y: ((x * y + 1).softmax(-1) * 2).sum(-1), torch.randn(9, 77), torch.randn(9, 77), kernels=1)


def test_reductions_over_the_same_rows_join():
    check(lambda x: (x.sum(1), x.amax(1), (x * x).sum(1)), torch.randn(40, 300), kernels=1)


def test_reductions_along_rows_and_along_columns_are_apart():
    """One loop for both would read memory across its rows for one of them."""
    check(lambda x: (x.sum(0), x.sum(1)), torch.randn(64, 64), kernels=2, rtol=1e-5, atol=1e-5)
