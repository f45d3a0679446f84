"""Temporary directories private to this process, for builds and for entries that the cache cannot keep; and atomic file
replacement.

Each directory holds a file that its process locks while it lives. A directory without such a lock was left by a killed
process and may be removed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .trust import opener

_PREFIX = "pyframe-"
_ALIVE = "alive"
_STARTING_SECONDS = 3600  # a directory without a lock file is still being created for this long; later it is abandoned
_folders: dict[tuple[int, str], Path] = {}


def private_folders() -> Iterator[Path]:
    """Directories that only this user can write to: on disk and then in memory (/dev/shm), created on demand.

    They are removed when the process ends; a forked child gets its own.
    """
    for root in _roots():
        key = os.getpid(), root
        if key not in _folders or not _folders[key].is_dir():  # the system may remove old temporary files
            sweep(root)
            try:
                _folders[key] = _make(root)
            except OSError:
                continue
        yield _folders[key]


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A directory that is removed at the end of the block. OSError if none can be created."""
    # Its name is known before it exists, so that it is removed whenever an interrupt comes.
    folder = Path(next(private_folders(), None) or tempfile.gettempdir(), prefix + secrets.token_hex(8))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: str) -> None:
    """Remove directories in `root` that killed processes of this user left."""
    try:
        found = [entry for entry in os.scandir(root) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_abandoned(entry.path, status):
                shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:  # another process is sweeping as well
            continue


def _is_abandoned(folder: str, status: os.stat_result) -> bool:
    try:
        with open(os.path.join(folder, _ALIVE), "r+b", opener=opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return status.st_mtime < time.time() - _STARTING_SECONDS
    except BlockingIOError:
        return False
    return True


def _make(root: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    try:
        # The descriptor stays open for the life of the process. The file is renamed to the name that `sweep` looks for
        # only
        # after it is locked, so that a process sweeping in between does not consider the directory abandoned.
        unlocked = folder / (_ALIVE + ".new")
        descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # the file system does not support locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.rename(folder / _ALIVE)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    atexit.register(_remove, folder, os.getpid())
    return folder


def _roots() -> Iterator[str]:
    try:
        yield tempfile.gettempdir()
    except OSError:  # no usual place is writable
        pass
    if os.path.isdir("/dev/shm"):
        yield "/dev/shm"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs the parent's exit handlers too
        shutil.rmtree(folder, ignore_errors=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the contents of a file atomically: readers see the old or the new contents. OSError if that fails."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
