"""Reports the text of each compilation stage: printed with PYFRAME_LOGS, written to files with PYFRAME_DUMP."""

from __future__ import annotations

import collections
import itertools
import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

STAGES = ("sizes", "ir", "schedule", "code", "plan", "cache", "fallbacks", "verify")
_SUFFIX = {"code": "cpp"}
_numbers = itertools.count()


def from_environment(stage: str, message: Any, *args: Any) -> None:
    """The default sink, which reads PYFRAME_LOGS and PYFRAME_DUMP; used if inductor is used without pyframe."""
    dump, enabled = os.environ.get("PYFRAME_DUMP"), os.environ.get("PYFRAME_LOGS", "")
    if not dump and not enabled:
        return
    text = str(message(*args)) if callable(message) else str(message)
    if stage in enabled.split(","):
        print(f"[{stage}] {text}", file=sys.stderr)
    if dump:
        folder = Path(dump)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{next(_numbers):04d}_inductor_{stage}.{_SUFFIX.get(stage, 'txt')}").write_text(text + "\n")


_sink: Callable[..., None] = from_environment
_counts: MutableMapping[str, Any] = collections.Counter()


def set_sink(sink: Callable[..., None], counts: MutableMapping[str, Any]) -> None:
    """Send every stage to `sink(stage, message, *args)`; a message may be a function of `args` that returns the text.
    Counters (cache hits and misses, kernels, graphs compiled per size) are updated in `counts`."""
    global _sink, _counts
    _sink, _counts = sink, counts


def show(stage: str, message: Any, *args: Any) -> None:
    """Send the text of one stage to the sink."""
    _sink(stage, message, *args)


def count(name: str, number: int = 1) -> None:
    """Add to a counter, also for graphs that are compiled at their first call."""
    _counts[name] += number
