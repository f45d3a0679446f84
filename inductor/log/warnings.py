"""Warnings that are shown once per process."""

from __future__ import annotations

import warnings

shown: set[str] = set()


def warn_once(kind: str, message: str, stacklevel: int) -> None:
    """Give a UserWarning at `stacklevel`, unless one of this kind was given before in this process."""
    if kind not in shown:
        shown.add(kind)
        warnings.warn(message, stacklevel=stacklevel)
