"""Functions of torch that keep state of the thread: capturing a call of them leaves it as it was."""

from __future__ import annotations

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
