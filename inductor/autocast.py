"""Autocast on the CPU and on a GPU: whether it is enabled, how to call a function without it, and its saved state.

Casts are recorded when a graph is traced. What a compiled graph calls must therefore run without autocast, or operators
would be cast a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

DEVICES = ("cpu", "cuda")  # the device types for which graphs are compiled


def is_autocast_enabled() -> bool:
    """Whether autocast is enabled for any of the device types."""
    return any(map(torch.is_autocast_enabled, DEVICES))


def without_autocast(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, called with autocast disabled."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._DisableAutocast():
            return run(*args, **kwargs)

    return call


def autocast_state() -> tuple[Any, ...]:
    """Equal if autocast casts alike."""
    enabled = tuple((torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in DEVICES)
    return *enabled, torch.is_autocast_cache_enabled(), _autocast_nesting()


class AutocastState:
    """A snapshot of the autocast state of this thread for some device types, which `restore` puts back."""

    def __init__(self, devices: Collection[str] = DEVICES) -> None:
        self.of = [(name, torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in devices]
        self.cache, self.nesting = torch.is_autocast_cache_enabled(), _autocast_nesting()

    def restore(self) -> None:
        """Set the state of this thread to the snapshot."""
        for device, enabled, dtype in self.of:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        for _ in range(_autocast_nesting() - self.nesting):
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()  # as on leaving the outermost autocast region


def _autocast_nesting() -> int:
    nesting: int = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return nesting - 1
