"""Imports the C extension `inductor._C`. The name is None if the extension was not built; Python code then does its
work.

An extension that exists but cannot be loaded (another CPython, a missing symbol) raises ImportError: running without it
would be slow, and would hide that the installation is broken.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec(f"{__package__}._C") is not None:
    from . import _C
else:
    _C = None  # type: ignore[assignment]

__all__ = ["_C"]
