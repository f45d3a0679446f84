"""Whether a call is made in a context in which kept captures may be used."""

from __future__ import annotations

from typing import Any

import torch


def is_plain_context() -> bool:
    """Whether nothing around the call would have to see its operators, and no operator makes it."""
    native: Any = torch._C
    excluded = native._dispatch_tls_is_dispatch_key_excluded
    return not (
        native._len_torch_function_stack()
        or native._len_torch_dispatch_stack()
        or native._is_tracing()
        or not native._is_torch_function_enabled()
        or native._functorch.maybe_current_level() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or excluded("Functionalize")
        or (excluded("AutogradCPU") and not torch.is_inference_mode_enabled())
    )
