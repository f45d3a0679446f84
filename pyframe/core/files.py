"""Which files are the user's, by their names: the rest is ourselves, torch and the standard library."""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _torch() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError("pyframe needs torch, which is not installed")
    return os.path.dirname(os.path.abspath(spec.origin)) + os.sep


_OURS = (_PACKAGE + os.sep, os.path.join(os.path.dirname(_PACKAGE), "inductor") + os.sep)
OWN_ROOTS = (*_OURS, _torch())  # ourselves and torch
_SKIPPED_ROOTS = (*OWN_ROOTS, sysconfig.get_path("stdlib") + os.sep, "<frozen")
_PACKAGES = os.sep + "site-packages" + os.sep


@functools.cache
def skipped_file(filename: str) -> bool:
    """Whether code of this file is never captured on its own, nor quoted as the user's: torch, the standard library,
    ourselves."""
    if filename.startswith(OWN_ROOTS):
        return True
    return filename.startswith(_SKIPPED_ROOTS) and _PACKAGES not in filename


def our_file(filename: str) -> bool:
    """Whether a file is part of pyframe or inductor."""
    return filename.startswith(_OURS)


def short_name(filename: str) -> str:
    """A file of an installed package from the package on, others as they are."""
    return filename.rpartition(_PACKAGES)[2]
