"""Directories of this process only, for what cannot be kept; and files that are replaced whole."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_made: dict[str, Path] = {}


def private_folders() -> Iterator[Path]:
    """Directories that nobody else can write, on the disk for temporary files and then in memory, made when asked for.

    They go away with the process.
    """
    for root in _roots():
        if root not in _made:
            try:
                _made[root] = Path(tempfile.mkdtemp(prefix="pyframe-", dir=root))
            except OSError:
                continue
            atexit.register(_remove, _made[root], os.getpid())
        yield _made[root]


def _roots() -> Iterator[str]:
    try:
        yield tempfile.gettempdir()
    except OSError:  # none of the usual places can be written
        pass
    if os.path.isdir("/dev/shm"):
        yield "/dev/shm"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs the parent's exit handlers too
        shutil.rmtree(folder, ignore_errors=True)


def replace_file(path: Path, data: bytes) -> None:
    """Makes `data` the contents of a file at once: readers see the old or the new. OSError if that fails."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
