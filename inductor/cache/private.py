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
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "pyframe-"
_ALIVE = "alive"
_STARTING_SECONDS = 3600  # one without a lock file is being made, or its process died while making it
_made: dict[tuple[int, str], Path] = {}


def private_folders() -> Iterator[Path]:
    """Directories that nobody else can write, on the disk for temporary files and then in memory, made when asked for.

    They go away with the process; a forked child has its own.
    """
    for root in _roots():
        key = os.getpid(), root
        if key not in _made or not _made[key].is_dir():  # systems remove old temporary files, too
            sweep(root)
            try:
                _made[key] = _make(root)
            except OSError:
                continue
        yield _made[key]


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A directory that is removed at the end of the block. OSError where none can be made."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=next(private_folders(), None)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: str) -> None:
    """Remove the directories in `root` that processes of this user made and did not live to remove."""
    try:
        found = [entry for entry in os.scandir(root) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_abandoned(entry.path, status):
                shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:  # another process sweeps as well
            continue


def _is_abandoned(folder: str, status: os.stat_result) -> bool:
    try:
        descriptor = os.open(os.path.join(folder, _ALIVE), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return status.st_mtime < time.time() - _STARTING_SECONDS
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _make(root: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    try:
        # The descriptor stays open for as long as the process lives. The file gets the name that `sweep` looks for
        # once it is locked: a process that sweeps in between must not take the directory for an abandoned one.
        unlocked = folder / (_ALIVE + ".new")
        descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks
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
