"""Values of functional tensors, by which functionalization stands for tensors that the program may write to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def unwrapped(x: Any) -> Any:
    """The value of a functional tensor after all writes to it; other values are returned unchanged."""
    if not isinstance(x, torch.Tensor):
        return x
    torch._sync(x)
    return torch._from_functional_tensor(x)


def sync_gradients(gradients: Sequence[Any]) -> None:
    """Apply pending writes to these gradients. As a pre-hook of an autograd node: the formula of a real Fourier
    transform keeps a reference to the sizes of its gradient, which are gone once an operator in it applies a write
    that an earlier formula made."""
    for x in gradients:
        if isinstance(x, torch.Tensor) and torch._is_functional_tensor(x):
            torch._sync(x)


def sync_in_backward(results: Iterable[torch.Tensor]) -> None:
    """Call `sync_gradients` before each autograd node of a backward pass that starts at these results."""
    seen: set[Any] = set()
    stack = [x.grad_fn for x in results]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            node.register_prehook(sync_gradients)
            stack.extend(source for source, _ in node.next_functions)
