"""Decides by file name whether code is the user's or belongs to this project, torch, NumPy or the standard library.

Code that is not the user's is never captured on its own and not quoted in messages.  Installed packages other than
torch and NumPy count as the user's code.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _root(package: str) -> tuple[str, ...]:
    """The folder of a package; nothing if it is not installed."""
    spec = importlib.util.find_spec(package)
    return () if spec is None or spec.origin is None else (os.path.dirname(os.path.abspath(spec.origin)) + os.sep,)


def _torch() -> str:
    if not (found := _root("torch")):
        raise ImportError("pyframe needs torch, which is not installed")
    return found[0]


_OURS = (_PACKAGE + os.sep, os.path.join(os.path.dirname(_PACKAGE), "inductor") + os.sep)
OWN_ROOTS = (*_OURS, _torch())  # pyframe, inductor and torch
LIBRARIES = (*OWN_ROOTS, *_root("numpy"))
_SKIPPED_ROOTS = (*OWN_ROOTS, sysconfig.get_path("stdlib") + os.sep, "<frozen")
_PACKAGES = os.sep + "site-packages" + os.sep


@functools.cache
def skipped_file(filename: str) -> bool:
    """Whether a file belongs to torch, NumPy, the standard library or this project, so that its code is never captured
    on its own nor quoted as the user's."""
    if filename.startswith(LIBRARIES):
        return True
    return filename.startswith(_SKIPPED_ROOTS) and _PACKAGES not in filename


def our_file(filename: str) -> bool:
    """Whether a file is part of pyframe or inductor."""
    return filename.startswith(_OURS)


def short_name(filename: str) -> str:
    """The path without everything up to `site-packages/`; other paths are unchanged."""
    return filename.rpartition(_PACKAGES)[2]
