"""Warnings that point at the user's line, and those that are shown once per process."""

from __future__ import annotations

import os
import sys
import warnings

import torch

_OWN = tuple(
    os.path.join(path, "")
    for path in (
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "pyframe"),
        os.path.dirname(torch.__file__),
    )
)
shown: set[str] = set()


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning at the line of the innermost frame that belongs neither to this project nor to torch."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_OWN):
        if frame.f_back is None:
            level = 2
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_once(kind: str, message: str) -> None:
    """Give a UserWarning at the user's line, unless one of this kind was given before in this process."""
    if kind not in shown:
        shown.add(kind)
        warn(message)
