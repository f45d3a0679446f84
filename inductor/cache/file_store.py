"""A store of files on disk, addressed by key and shared by processes; the base of the graph and kernel caches.

Each entry is a file named by its key that carries a checksum of its name and contents, so an entry that is truncated,
corrupt or renamed counts as absent. Writers write a temporary file and rename it, so readers never see a partial entry.
Entries contain code that will run: the directory is created for this user alone, a directory that others own or may
write to is not used, and only files of this user are read (`trust`).
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..log.warnings import warn_once
from .claims import claimed
from .private import private_folders, replace_file
from .trust import distrust, make_folder, read_own_file

_MAGIC = b"pyframe3"
_SEAL = len(_MAGIC) + 32
DEFAULT_MAX_BYTES = 2 << 30
_TRIM_EVERY = 64  # a process checks the total size after this many writes
_TRIM_SECONDS = 3600  # ... and short processes after this time, counted across processes
_GRACE_SECONDS = 300  # an entry used this recently may be about to be loaded by another process
_ENTRY = re.compile(r"[0-9a-f]{64}\.\w+")  # the name of an entry: its key, then its suffix
_CLAIMS = "claims"
_TEMPORARY = re.compile(r"\.\w+\.tmp")


def default_directory() -> Path | None:
    """PYFRAME_CACHE_DIR, or pyframe/ in the user's cache directory; None for a user without a home directory."""
    chosen = os.environ.get("PYFRAME_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "pyframe"
    try:
        return Path.home() / ".cache" / "pyframe"
    except RuntimeError:
        return None


def content_key(*parts: str | bytes) -> str:
    """A hash of these parts; different lists of parts have different keys."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class Cache:
    """The store under one directory (`default_directory()` unless given).

    If the directory cannot be written, one warning per process says so. Entries are still read from it, and new ones go
    to private temporary directories that are removed when the process ends. About `max_bytes` are kept at most
    (PYFRAME_CACHE_MAX_BYTES); the least recently used entries are removed first.
    """

    def __init__(self, directory: Path | None = None, max_bytes: int | None = None) -> None:
        self.directory = directory or default_directory()
        self.max_bytes = _max_bytes() if max_bytes is None else max_bytes
        self.used: dict[tuple[str, str], None] = {}  # (key, suffix) of what this process has read or written
        self._spare: list[Path] = []
        self._writes = 0
        self._checked: tuple[tuple[int, int], str | None, Path] | None = None

    def get(self, key: str, suffix: str = ".bin") -> bytes | None:
        """The bytes of an entry; None if it is absent or damaged."""
        found = self._find(key, suffix)
        return None if found is None else found[1]

    def put(self, key: str, data: bytes, suffix: str = ".bin") -> None:
        """Store an entry. A failing disk gives one warning and no error: the contents can be computed again."""
        try:
            self.put_file(key, suffix, data)
        except OSError as error:
            _warn(f"nothing can be cached ({error})")

    def get_file(self, key: str, suffix: str) -> Path | None:
        """The path of an entry, for dlopen; None if it is absent or damaged. The file ends with a checksum."""
        found = self._find(key, suffix)
        return None if found is None else found[0]

    def put_file(self, key: str, suffix: str, data: bytes) -> Path:
        """Store an entry and return its path. OSError if no directory, including temporary ones, can be written."""
        self.used[key, suffix] = None
        sealed = data + _MAGIC + _checksum(key, suffix, data)
        if self.directory is None:
            _warn("there is no home directory; set PYFRAME_CACHE_DIR to keep compiled kernels")
        else:
            try:
                folder = self._ensure_folder()
                path = folder and self._write(folder, key, suffix, sealed)
            except OSError as error:
                _warn(f"cannot write to the cache {self.directory} ({error}); using temporary directories")
            else:
                if folder and path:
                    self._count_write(folder)
                    return path
        failure: OSError | None = None
        for folder in private_folders():
            try:
                path = self._write(folder, key, suffix, sealed)
            except OSError as error:
                failure = error
                continue
            if folder not in self._spare:
                self._spare.append(folder)
            return path
        raise failure or OSError("there is no writable temporary directory")

    def get_or_make_file(self, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
        """The file of a key; if there is none, `make` creates its contents, in one process only if many ask at once.

        OSError as for `put_file`; exceptions of `make` are passed on.
        """
        found = self.get_file(key, suffix)
        if found is not None:
            return found
        with self.claimed(key, suffix):
            return self.get_file(key, suffix) or self.put_file(key, suffix, make())

    @contextmanager
    def claimed(self, key: str, suffix: str, seconds: float = math.inf) -> Iterator[None]:
        """In the block this process makes an entry, which no other process does meanwhile. If one does already, wait
        for it first, for at most so many seconds (see `claims`): the entry is then there, or has to be made all the
        same. Nothing without a directory that can be written."""
        try:
            folder = self._ensure_folder()
        except OSError:
            folder = None
        if folder is None:
            yield
            return
        with claimed(folder / _CLAIMS / f"{key}{suffix}", _path(folder, key, suffix).exists, seconds):
            yield

    def entries(self) -> list[tuple[Path, os.stat_result]]:
        """The files of all entries, damaged ones too; nothing else that is in the directory."""
        folder = self._folder()
        return [] if folder is None else _files(folder, _ENTRY)

    def is_intact(self, path: Path) -> bool:
        """Whether a file of the cache holds what was written to it."""
        return _contents(path, path.stem, path.suffix) is not None

    def trim(self) -> int:
        """Remove the least recently used entries beyond `max_bytes`, and temporary files and claims of killed writers;
        return the number of bytes of removed entries."""
        folder, now = self._folder(), time.time()
        if folder is None:
            return 0
        for path, status in [*_files(folder, _TEMPORARY), *_claims(folder)]:
            if status.st_mtime < now - _TRIM_SECONDS:
                _unlink(path)
        entries = self.entries()
        total = before = sum(status.st_size for _, status in entries)
        for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime):
            in_use = status.st_mtime > now - _GRACE_SECONDS
            if total <= self.max_bytes or in_use or not _unlink(path):
                break
            total -= status.st_size
        return before - total

    def clear(self) -> int:
        """Remove all entries, recently used ones too; return the number of bytes. A process that is about to load one
        of them compiles it again, or runs that graph with ATen operators."""
        return sum(status.st_size for path, status in self.entries() if _unlink(path))

    def _find(self, key: str, suffix: str) -> tuple[Path, bytes] | None:
        for folder in [self._folder(), *self._spare]:
            if folder is None:
                continue
            path = _path(folder, key, suffix)
            data = _contents(path, key, suffix)
            if data is not None:
                self.used[key, suffix] = None
                return path, data
        return None

    def _folder(self) -> Path | None:
        """The directory with symbolic links resolved; None if it does not exist or may not be used."""
        if self.directory is None:
            return None
        try:
            status = os.stat(self.directory)
            identity = status.st_dev, status.st_ino
            if self._checked is None or self._checked[0] != identity:
                folder = Path(os.path.realpath(self.directory))
                reason = distrust(folder)
                self._checked = identity, reason, folder
        except OSError:
            return None
        _, reason, folder = self._checked
        if reason is not None:
            _warn(f"the cache {self.directory} is not used: {reason}; using temporary directories")
            return None
        return folder

    def _ensure_folder(self) -> Path | None:
        """Like `_folder`, but creates the directory if it does not exist. OSError if that fails."""
        if self.directory is not None and not self.directory.is_dir():
            make_folder(self.directory)
        return self._folder()

    def _write(self, folder: Path, key: str, suffix: str, sealed: bytes) -> Path:
        path = _path(folder, key, suffix)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        replace_file(path, sealed)
        return path

    def _count_write(self, directory: Path) -> None:
        self._writes += 1
        stamp = directory / "trimmed"
        if self._writes == 1:
            try:
                due = stamp.stat().st_mtime < time.time() - _TRIM_SECONDS
            except OSError:
                due = True
        else:
            due = self._writes % _TRIM_EVERY == 0
        if due:
            try:
                stamp.touch()
            except OSError:
                return
            self.trim()


def _path(folder: Path, key: str, suffix: str) -> Path:
    return folder / key[:2] / f"{key}{suffix}"


def _contents(path: Path, key: str, suffix: str) -> bytes | None:
    """What was written to an entry; None if it cannot be read or is damaged."""
    try:
        sealed = read_own_file(path, _MAGIC, _SEAL) or b""
    except OSError:
        return None
    data, magic, digest = sealed[:-_SEAL], sealed[-_SEAL:-32], sealed[-32:]
    return data if magic == _MAGIC and _checksum(key, suffix, data) == digest else None


def _checksum(key: str, suffix: str, data: bytes) -> bytes:
    """The checksum of an entry and its name, so that an entry moved to another key is invalid."""
    return hashlib.sha256(f"{key}{suffix}\0".encode() + data).digest()


def _files(folder: Path, name: re.Pattern[str]) -> list[tuple[Path, os.stat_result]]:
    """The files with such a name where entries and their temporary files are, and their status."""
    found = []
    try:
        paths = list(folder.glob("[0-9a-f][0-9a-f]/*"))
    except OSError:  # the directory was removed meanwhile
        return []
    for path in paths:
        if name.fullmatch(path.name) and (name is _TEMPORARY or path.name.startswith(path.parent.name)):
            try:
                found.append((path, path.lstat()))
            except OSError:  # another process has removed it
                continue
    return found


def _claims(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in folder.glob(f"{_CLAIMS}/*"):
        with suppress(OSError):  # it is released meanwhile
            found.append((path, path.lstat()))
    return found


def _unlink(path: Path) -> bool:
    """Remove a file; False if that fails, as in a read-only directory."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _max_bytes() -> int:
    text = os.environ.get("PYFRAME_CACHE_MAX_BYTES", "")
    try:
        return int(text) if text else DEFAULT_MAX_BYTES
    except ValueError:
        _warn(f"PYFRAME_CACHE_MAX_BYTES={text!r} is not a number of bytes")
        return DEFAULT_MAX_BYTES


def _warn(reason: str) -> None:
    """Warn about the first problem with the cache; later ones are not reported."""
    warn_once("cache", f"compiled kernels: {reason}")


_shared: dict[Path | None, Cache] = {}


def shared_cache() -> Cache:
    """The process's cache in the default directory that the environment variables name now."""
    directory = default_directory()
    if directory not in _shared:
        _shared[directory] = Cache(directory)
    return _shared[directory]
