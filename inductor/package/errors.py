"""The exception of packages."""

from __future__ import annotations


class PackageError(RuntimeError):
    """A package cannot be made or loaded: the function cannot be captured as a whole, the file is damaged or not signed
    as demanded, or this machine lacks what its kernels need. Also a call that does not fit its signature."""
