"""What `torch.empty` and its relatives return with deterministic algorithms: what eager fills the memory with."""

import torch

import pyframe


def made(x):
    return (
        torch.empty(4), torch.empty_like(x), x.new_empty(2), torch.empty(2, dtype=torch.int32) + 0,
        torch.empty(2, dtype=torch.bool), torch.empty(2, dtype=torch.uint8), torch.empty(3, dtype=torch.float16),
        torch.empty(2, dtype=torch.complex64), torch.empty_strided((2, 3), (1, 2)),
    )  # fmt: skip


def test_is_filled_as_in_eager():
    x, compiled = torch.ones(3), pyframe.compile(made)
    compiled(x)
    try:
        torch.use_deterministic_algorithms(True)
        torch.testing.assert_close(compiled(x), made(x), rtol=0, atol=0, equal_nan=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        assert not compiled(x)[0].isnan().any()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)
