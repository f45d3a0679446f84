"""Hooks that a program registers on the results of a compiled graph (`Tensor.register_hook`).

An autograd node with several outputs calls the hooks on all of them whenever it runs, with None for those that have no
gradient. In eager, where each result has a node of its own, such hooks are not called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Hooks = dict[int, Callable[[torch.Tensor], torch.Tensor | None]]


class _IfDefined:
    """Calls the hooks of a tensor, one after the other, if the tensor has a gradient."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def __call__(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        changed = None
        if gradient is not None:
            for hook in list(self.hooks.values()):
                if (result := hook(gradient)) is not None:
                    gradient = changed = result
        return changed


def watch_hooks(function: type[torch.autograd.Function], record: bool = False) -> None:
    """Hooks on the results of `function` are not called for undefined gradients. `record`: its autograd nodes also
    record the hooks in `hook_dicts`, which shows them even if a result is gone."""
    node: Any = function._backward_cls

    def register(self: Any, tensor: torch.Tensor) -> None:
        hooks: Any = tensor._backward_hooks
        tensor._backward_hooks = {0: _IfDefined(hooks)}  # type: ignore[assignment, dict-item, unused-ignore]
        super(node, self)._register_hook_dict(tensor)
        tensor._backward_hooks = hooks
        if record:
            self.__dict__.setdefault("hook_dicts", []).append((tensor.output_nr, hooks))

    node._register_hook_dict = register
