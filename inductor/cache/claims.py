"""Claims: of several processes that need the same cache entry, one makes it and the others wait for it.

A claim is a file that only one process can create, which works on network file systems too, where file locks may not.
It holds no one up for long: a process waits until the entry is there, until the one that makes it gives up or is gone,
or for WAIT_SECONDS, and then makes the entry itself. That two processes make the same entry does no harm.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .trust import read_own_file

WAIT_SECONDS = 120.0  # a process of another machine that is gone is noticed after this time
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25  # seconds between two looks
_held: set[Path] = set()  # by threads of this process


@contextmanager
def claimed(path: Path, is_made: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Claim the right to make an entry with the file `path` for the time of the block, or wait until another process
    has made it (`is_made`), or will not; for at most so many seconds."""
    mine = _create(path) or _waited(path, is_made, min(seconds, WAIT_SECONDS))
    try:
        yield
    finally:
        if mine:
            _held.discard(path)
            _remove(path)


def _waited(path: Path, is_made: Callable[[], bool], seconds: float) -> bool:
    """Wait; True if this process has the claim in the end."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while not is_made():
        owner = _owner(path)
        if owner is None:  # it has made the entry, or given up as this process might, too
            return False
        if time.monotonic() >= end or _is_gone(path, owner):
            _remove(path)
            return _create(path)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return False


def _create(path: Path) -> bool:
    """Create the claim; False if there is one, or if it cannot be created."""
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    _held.add(path)
    with os.fdopen(descriptor, "wb") as file, suppress(OSError):
        file.write(f"{os.getpid()} {_place()}".encode())
    return True


def _owner(path: Path) -> tuple[int, str] | None:
    """The process that has a claim, and where it runs; None if there is no claim. (0, "") if that is not known."""
    try:
        text = (read_own_file(path) or b"").decode(errors="replace")
    except OSError:
        return None
    pid, _, place = text.partition(" ")
    return (int(pid), place) if pid.isdecimal() and place else (0, "")


def _is_gone(path: Path, owner: tuple[int, str]) -> bool:
    """Whether the process of a claim is known to have ended."""
    pid, place = owner
    if place != _place():
        return False
    if pid == os.getpid():
        return path not in _held  # an earlier process had this number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


@functools.cache
def _place() -> str:
    """Where process numbers mean the same: the machine and, in a container, its name space."""
    try:
        names = os.readlink("/proc/self/ns/pid")
    except OSError:
        names = ""
    return f"{platform.node()} {names}"


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
