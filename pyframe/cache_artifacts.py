"""Takes compiled code from one machine to others: the cache entries that a process used, as bytes."""

from __future__ import annotations

from inductor.cache import artifacts
from inductor.cache.file_store import shared_cache

from .errors import UserError


def save_cache_artifacts() -> bytes | None:
    """What this process has compiled or loaded from the cache on disk, as bytes for `load_cache_artifacts`. None if it
    has done neither.

    A program that loads them on an equal machine (CPU or GPU, Python, torch, version of this package) compiles nothing
    that is in them. They hold code: load them only from a place that you trust as you trust your own programs.
    """
    return artifacts.pack(shared_cache())


def load_cache_artifacts(data: bytes) -> int:
    """Store what `save_cache_artifacts` returned in this machine's cache; returns the number of entries.

    UserError for bytes that are damaged, or that another version of the format made. Call it before the first call of a
    compiled function.
    """
    try:
        return artifacts.unpack(shared_cache(), data)
    except ValueError as error:
        raise UserError(f"load_cache_artifacts: {error}") from error
