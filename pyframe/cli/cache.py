"""`python -m pyframe cache`: where compiled graphs and kernels are kept, how many there are, and their removal."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from inductor.cache.file_store import Cache, default_directory
from inductor.cache.trust import distrust

from ..frame_cache import record as records
from ..frame_cache.record import SUFFIX
from ..report.counts import counted
from .finding import Finding, size_text

# What the files of a cache are, by suffix; others are counted under their suffix.
CONTENTS = {
    ".frame": "capture", ".graph": "graph", ".so": "C++ kernel", ".cubin": "Triton kernel",
    ".version": "compiler version", ".measured": "measured graph", ".product": "tuned product",
    ".refused": "refused graph",
}  # fmt: skip
ELSEWHERE = "set PYFRAME_CACHE_DIR to another directory"


def health(directory: Path | None) -> Finding:
    """Whether the cache in this directory is used, and if not, why and what to do."""
    what = "cache"
    if directory is None:
        return Finding(what, "there is no home directory", "set PYFRAME_CACHE_DIR to a directory of your own")
    try:
        place = Path(os.path.realpath(directory))
        existing = next(path for path in (place, *place.parents) if path.exists())
        if not existing.is_dir():
            return Finding(what, f"{directory} is not used: {existing} is not a directory", ELSEWHERE)
        reason = distrust(existing) if existing == place else None
    except OSError as error:
        return Finding(what, f"{directory} cannot be examined: {error}", ELSEWHERE)
    try:
        # The permissions alone do not tell whether files can be created. A directory that is missing is created as this
        # one is, so that the same is true of it.
        with tempfile.TemporaryDirectory(dir=existing, prefix=".pyframe-doctor-") as created:
            reason = reason or distrust(Path(created))
    except OSError as error:
        if reason is None:
            remedy = f"make {existing} writable, or {ELSEWHERE}"
            return Finding(what, f"{directory} cannot be written: {error.strerror}", remedy)
    if reason is not None:
        remedy = "remove the write permission of others, or set PYFRAME_CACHE_DIR to a directory of your own"
        return Finding(what, f"{directory} is not used: {reason}", remedy)
    return Finding(what, str(directory) if existing == place else f"{directory} (made when it is first needed)")


def summary(cache: Cache) -> list[str]:
    """Lines on the size, the limit and the kinds of entries of a cache."""
    entries = cache.entries()
    total = sum(status.st_size for _, status in entries)
    kinds = Counter(CONTENTS.get(path.suffix, path.suffix) for path, _ in entries)
    listed = ", ".join(counted(count, kind) for kind, count in sorted(kinds.items()))
    return [
        f"size: {size_text(total)} of at most {size_text(cache.max_bytes)}",
        f"entries: {len(entries)}" + (f" ({listed})" if listed else ""),
    ]


def listed(cache: Cache) -> list[str]:
    """A line for each entry, most recently used first: kind, size, time of the last use, and file."""
    lines = []
    for path, status in sorted(cache.entries(), key=lambda entry: -entry[1].st_mtime):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        kind = CONTENTS.get(path.suffix, path.suffix)
        lines.append(f"{kind:<18} {size_text(status.st_size):>10}  {used}  {path.name}{_captured(cache, path)}")
    return lines


def _captured(cache: Cache, path: Path) -> str:
    """For a capture, what to add to its line: the function."""
    data = cache.get(path.stem, path.suffix) if path.suffix == SUFFIX else None
    record = None if data is None else records.load(data)
    return "" if record is None else f"  of {record.function}"


def run(arguments: argparse.Namespace) -> int:
    """The command. Exit status 1 if the cache is not used."""
    state = health(default_directory())
    if state.remedy is not None:
        print(state)
        return 1
    cache = Cache()
    damaged: list[Path] = []
    if arguments.clear or arguments.action == "clear":
        print(f"removed: {size_text(cache.clear())}")
    elif arguments.prune or arguments.action == "prune":
        print(f"removed: {size_text(cache.trim())}")
    elif arguments.action == "list":
        print(*listed(cache), sep="\n")
    elif arguments.action == "verify":
        damaged = [path for path, _ in cache.entries() if not cache.is_intact(path)]
        for path in damaged:
            print(f"damaged, removed: {path}")
            path.unlink(missing_ok=True)
        print(f"verified: {len(damaged)} entries were damaged" if damaged else "verified: all entries are intact")
    print(f"directory: {state.found}", *summary(cache), sep="\n")
    return int(bool(damaged))
