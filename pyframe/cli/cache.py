"""`python -m pyframe cache`: where compiled graphs and kernels are kept, how many there are, and their removal."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from inductor.cache.file_store import Cache, default_directory
from inductor.cache.trust import distrust

from .finding import Finding, size_text

# What the files of a cache are, by suffix; others are counted under their suffix.
CONTENTS = {".graph": "graphs", ".so": "C++ kernels", ".cubin": "Triton kernels", ".version": "compiler versions"}


def health(directory: Path | None) -> Finding:
    """Whether the cache in this directory is used, and if not, why and what to do."""
    what = "cache"
    if directory is None:
        return Finding(what, "there is no home directory", "set PYFRAME_CACHE_DIR to a directory of your own")
    try:
        place = Path(os.path.realpath(directory))
        existing = next(path for path in (place, *place.parents) if path.exists())
        reason = distrust(existing)
    except OSError as error:
        return Finding(what, f"{directory} cannot be examined: {error}", "set PYFRAME_CACHE_DIR to another directory")
    if reason is not None:
        remedy = "remove the write permission of others, or set PYFRAME_CACHE_DIR to a directory of your own"
        return Finding(what, f"{directory} is not used: {reason}", remedy)
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "make it writable, or set PYFRAME_CACHE_DIR to another directory"
        return Finding(what, f"{directory} cannot be written: {existing} is read-only", remedy)
    return Finding(what, str(directory) if existing == place else f"{directory} (made when it is first needed)")


def summary(cache: Cache) -> list[str]:
    """Lines on the size, the limit and the kinds of entries of a cache."""
    entries = cache.entries()
    total = sum(status.st_size for _, status in entries)
    kinds = Counter(CONTENTS.get(path.suffix, path.suffix) for path, _ in entries)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [
        f"size: {size_text(total)} of at most {size_text(cache.max_bytes)}",
        f"entries: {len(entries)}" + (f" ({listed})" if listed else ""),
    ]


def run(arguments: argparse.Namespace) -> int:
    """The command. Exit status 1 if the cache is not used."""
    state = health(default_directory())
    if state.remedy is not None:
        print(state)
        return 1
    cache = Cache()
    if arguments.clear:
        print(f"removed: {size_text(cache.clear())}")
    elif arguments.prune:
        print(f"removed: {size_text(cache.trim())}")
    print(f"directory: {state.found}", *summary(cache), sep="\n")
    return 0
