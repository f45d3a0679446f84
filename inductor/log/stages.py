"""The text of each stage of a compilation.

The environment variable PYFRAME_LOGS (a comma-separated list of stages) prints them to stderr; PYFRAME_DUMP (a
directory) writes each one to a file. Counters of what happened are kept here, too.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

STAGES = (
    "sizes", "ir", "schedule", "code", "plan", "cache", "keys", "fallbacks", "verify", "cudagraphs", "autotune",
    "measured",
)  # fmt: skip
# Stages of calls of compiled graphs and of lookups on disk, which are shown for kept captures, too.
_AT_CALLS = ("", "cache", "keys", "recompiles", "sizes", "cudagraphs", "measured")
_enabled = set(os.environ.get("PYFRAME_LOGS", "").split(","))
_numbers = itertools.count()
_counts: MutableMapping[str, Any] = collections.Counter()


def print_only(stages: Iterable[str]) -> None:
    """Print these stages to stderr from now on, and no others."""
    _enabled.clear()
    _enabled.update(stages)


def count_in(counts: MutableMapping[str, Any]) -> None:
    """Keep the counters in `counts`: cache hits and misses, kernels, graphs compiled per size."""
    global _counts
    _counts = counts


def show(stage: str, message: Any, *args: Any) -> None:
    """Print or write the text of a stage, if that is enabled. If `message` is a function, it is called with `args` to
    make the text, only when the text is needed."""
    if not is_shown(stage):
        return
    dump = os.environ.get("PYFRAME_DUMP")
    text = str(message(*args)) if callable(message) else str(message)
    if stage in _enabled:
        print(f"[{stage}] {text}", file=sys.stderr)
    if dump:
        Path(dump).mkdir(parents=True, exist_ok=True)
        (Path(dump) / f"{next(_numbers):04d}_{stage}.txt").write_text(text + "\n")


def is_shown(stage: str) -> bool:
    """Whether `show` prints or writes a stage."""
    return stage in _enabled or bool(os.environ.get("PYFRAME_DUMP"))


def compiling_is_shown() -> bool:
    """Whether stages of captures and compilations are printed or written, which a kept capture does not go through."""
    return bool(_enabled.difference(_AT_CALLS) or os.environ.get("PYFRAME_DUMP"))


def count(name: str, number: int = 1) -> None:
    """Add to a counter, also for graphs that are compiled at their first call."""
    _counts[name] += number
