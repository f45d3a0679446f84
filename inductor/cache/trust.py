"""Checks whether cache files may be loaded: the files and their directory must belong to this user alone.

Cache contents run as code, so whoever can write to the cache can run code as this user.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def distrust(directory: Path) -> str | None:
    """Why files in an existing directory, of which no part is a symbolic link, may be somebody else's; None if they
    are this user's. OSError if that cannot be found out."""
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
    """Whether a group is the one that this user's account came with and has no other members: where each user has such
    a group, directories are often writable by it."""
    try:
        account, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    alone = set(members.gr_mem) <= {account.pw_name}
    return alone and account.pw_gid == group and members.gr_name == account.pw_name


def make_folder(folder: Path) -> None:
    """Make a directory, and those above it that do not exist, for this user alone. OSError if that fails."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise


def read_own_file(path: Path, mark: bytes = b"", mark_from_end: int = 0) -> bytes | None:
    """The contents of a plain file that this user owns and nobody else may write; None for anything else.

    `mark`: bytes that the file has to hold, the first of them `mark_from_end` bytes before its end; nothing else is
    read of a file without them, however long it is.
    The file that is checked is the one that is read. OSError as for opening and reading.
    """
    # a named pipe would make the open wait
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
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
            os.utime(descriptor)  # it was used now
        except OSError:  # a read-only file system still serves
            pass
        return data
