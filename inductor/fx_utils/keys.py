"""What keys of calls have in common: keys are equal only for calls that are traced alike."""

from __future__ import annotations

import torch

# Types of constants that are their own keys; of others, equal values may differ (0.0 and -0.0).
PLAIN = frozenset([
    int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis),
])  # fmt: skip


class NoKey(Exception):
    """A value that no key describes."""
