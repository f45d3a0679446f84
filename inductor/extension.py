"""The C extension `inductor._C`; None if it was not built; equivalent Python code then runs instead.

An extension that exists but cannot be loaded (another CPython, a missing symbol) raises ImportError: to run without it
would be slow, and would hide that the installation is broken.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec(f"{__package__}._C") is not None:
    from . import _C
else:
    _C = None  # type: ignore[assignment]

__all__ = ["_C"]
