"""Functions of torch that keep state of the thread, which capturing a call of them leaves as it was, and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, jacfwd, vmap

import pyframe

_C = torch._C


def test_function_that_counts_is_called_as_often_as_the_program_calls_it() -> None:
    """It was called while tracing, and again by the guard on what it had given."""
    def level(x: torch.Tensor) -> torch.Tensor:
        try:
            return x + _C._vmapmode_increment_nesting()
        finally:
            _C._vmapmode_decrement_nesting()

    fast = pyframe.compile(level)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
    assert _C._vmapmode_increment_nesting() == 1
    assert _C._vmapmode_decrement_nesting() == 0


def test_jacobian_in_forward_mode_twice() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.functional.jacobian(torch.sin, x, strategy="forward-mode", vectorize=True)

    fast = pyframe.compile(f)
    for _ in range(2):
        x = torch.randn(3)
        torch.testing.assert_close(fast(x), f(x))


def test_dispatch_keys_after_nested_transforms_that_cannot_be_traced() -> None:
    """functorch leaves keys excluded where an exception passes through its transforms of one another."""
    def f(x: torch.Tensor) -> torch.Tensor:
        return vmap(lambda y: jacfwd(grad(lambda z: (z.sin() * z).sum() + z.prod()))(y))(x)

    x = torch.randn(4, 5)
    before = _C._dispatch_tls_local_exclude_set().raw_repr()
    torch.testing.assert_close(pyframe.compile(f)(x), f(x))
    assert _C._dispatch_tls_local_exclude_set().raw_repr() == before


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: vmap(lambda a: (a.cumsum(0), a.sum()), out_dims=(1, 0))(x),
        lambda x: vmap(lambda a: (a * 2, [a.sum(), a.exp()]), out_dims=(1, [0, 1]))(x),
        lambda x: vmap(lambda a: {"u": a * 2, "v": a.sum()}, out_dims={"u": 1, "v": 0})(x),
        lambda x: vmap(lambda a: (a * 2, torch.ones(3)), out_dims=(0, None))(x),
        lambda x: vmap(torch.tanh, out_dims=(1,))(x),
        lambda x: vmap(lambda a: (a.cumsum(0), a.sum()), chunk_size=3)(x),
    ],
)
def test_vmap_with_several_out_dims_or_in_chunks_is_one_graph(fn: Callable[[torch.Tensor], Any]) -> None:
    fast = pyframe.compile(fn, fullgraph=True)
    for rows in (4, 7):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(fast(x), fn(x))
