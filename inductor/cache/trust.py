"""Checks whether cache files may be loaded: the files and their directory must belong to this user alone.

Cache contents run as code, so whoever can write to the cache can run code as this user.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from ..extension import _C

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _open_file(path: str, flags: int) -> int:
    """`_C.open_file` in Python, which loses the descriptor if a signal handler raises just after os.open."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


# For `open(..., opener=opener)`: does not follow symbolic links nor block on named pipes.
opener = _open_file if _C is None else _C.open_file


def distrust(directory: Path) -> str | None:
    """Why other users may be able to change files in an existing directory; None if they cannot. No part of the path
    may be a symbolic link. OSError if the check fails."""
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user ({status.st_uid})"
    if status.st_mode & _OTHERS:
        return f"others may write to {directory} (mode {stat.S_IMODE(status.st_mode):o}): chmod go-w it"
    for parent in directory.parents:
        status = os.lstat(parent)
        if status.st_uid not in (0, os.geteuid()):
            return f"{parent} above it belongs to another user ({status.st_uid})"
        if status.st_mode & stat.S_ISVTX or not status.st_mode & _OTHERS:
            continue
        if status.st_mode & stat.S_IWOTH or not _is_of_one_user(status.st_gid):
            return f"others may replace what is in {parent} (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _is_of_one_user(group: int) -> bool:
    """Whether a group is the user's own primary group (same name, no other members). On systems with such groups,
    directories are often group-writable."""
    try:
        account, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    alone = set(members.gr_mem) <= {account.pw_name}
    return alone and account.pw_gid == group and members.gr_name == account.pw_name


def make_folder(folder: Path) -> None:
    """Create a directory and its missing parents, accessible to this user only. OSError if that fails."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise


def read_own_file(path: Path, mark: bytes = b"", mark_from_end: int = 0) -> bytes | None:
    """The contents of a regular file that this user owns and no other user may write to; None for anything else.

    `mark`: bytes that must be in the file, starting `mark_from_end` bytes before its end. If they are missing, nothing
    else is read, however large the file is. The check and the reading use the same open file. OSError as for opening
    and reading.
    """
    with open(path, "rb", opener=opener) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            return None
        if mark:
            if status.st_size < mark_from_end:
                return None
            file.seek(-mark_from_end, os.SEEK_END)
            if file.read(len(mark)) != mark:
                return None
            file.seek(0)
        data = file.read()
        try:
            os.utime(file.fileno())  # the modification time records the last use
        except OSError:  # a read-only file system; the data is still valid
            pass
        return data
