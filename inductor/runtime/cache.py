"""A content-addressed store of files on disk, shared by processes.

An entry is a file named by its key, with a header that holds a checksum of the rest: whatever is truncated or
corrupt counts as absent. Writers write a temporary file and rename it, so readers never see half an entry.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

_MAGIC = b"pyframe1"
_HEADER = len(_MAGIC) + 32
DEFAULT_MAX_BYTES = 2 << 30
_TRIM_EVERY = 64  # writes between two looks at the total size


def default_directory() -> Path:
    """PYFRAME_CACHE_DIR, or pyframe/ in the user's XDG cache directory."""
    chosen = os.environ.get("PYFRAME_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyframe"


def content_key(*parts: str | bytes) -> str:
    """A key for these contents: no two lists of parts share one."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class Cache:
    """The store under one directory.

    An unwritable directory costs one warning and is replaced by a private temporary one. At most about `max_bytes`
    are kept (PYFRAME_CACHE_MAX_BYTES): what was used longest ago goes first.
    """

    def __init__(self, directory: Path | None = None, max_bytes: int | None = None) -> None:
        self.directory = _writable(directory or default_directory())
        self.max_bytes = max_bytes or int(os.environ.get("PYFRAME_CACHE_MAX_BYTES", DEFAULT_MAX_BYTES))
        self._writes = 0

    def path(self, key: str, suffix: str) -> Path:
        """Where the entry of a key lies, whether or not it exists."""
        return self.directory / key[:2] / f"{key}{suffix}"

    def get(self, key: str, suffix: str = ".bin") -> bytes | None:
        """The bytes of an entry, or None if it is absent or damaged."""
        path = self.path(key, suffix)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data[_HEADER:]).digest() != data[len(_MAGIC) : _HEADER]:
            return None
        _touch(path)
        return data[_HEADER:]

    def put(self, key: str, data: bytes, suffix: str = ".bin") -> None:
        """Stores an entry; a disk that refuses is not an error, since everything stored can be made again."""
        self._write(self.path(key, suffix), _MAGIC + hashlib.sha256(data).digest() + data)

    def get_file(self, key: str, suffix: str) -> Path | None:
        """The path of an entry stored by `put_file`, or None if it is absent or damaged."""
        path = self.path(key, suffix)
        expected = self.get(key, suffix + ".sum")
        if expected is None:
            return None
        try:
            actual = hashlib.sha256(path.read_bytes()).digest()
        except OSError:
            return None
        if actual != expected:
            return None
        _touch(path)
        return path

    def put_file(self, key: str, suffix: str, data: bytes) -> Path:
        """Stores bytes as a plain file (for dlopen), with its checksum beside it. OSError if that fails."""
        path = self.path(key, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, data)
        self.put(key, hashlib.sha256(data).digest(), suffix + ".sum")
        return path

    def get_or_make_file(self, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
        """The file of a key, made by `make` if there is none: by one process even when many ask at once."""
        found = self.get_file(key, suffix)
        if found is not None:
            return found
        with self.lock(key):
            return self.get_file(key, suffix) or self.put_file(key, suffix, make())

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held by one process at a time for a key."""
        folder = self.directory / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder / f"{key[:32]}.lock")):
            yield

    def trim(self) -> None:
        """Removes what was used longest ago until at most `max_bytes` remain."""
        entries = []
        for path in self.directory.glob("??/*"):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, data)
        except OSError:
            return
        self._writes += 1
        if self._writes % _TRIM_EVERY == 0:
            self.trim()


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:  # a read-only cache still serves
        return


def _writable(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError as error:
        private = Path(tempfile.mkdtemp(prefix="pyframe-cache-"))
        warnings.warn(f"cannot write to the cache {directory} ({error}); using {private}", stacklevel=3)
        return private


_shared: dict[Path, Cache] = {}


def shared_cache() -> Cache:
    """The process's cache in the default directory, as the environment names it now."""
    directory = default_directory()
    if directory not in _shared:
        _shared[directory] = Cache(directory)
    return _shared[directory]
