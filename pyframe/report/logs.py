"""Logs of the compilation stages, as text.

The environment variable PYFRAME_LOGS (a comma-separated list of stages) prints them to stderr; PYFRAME_DUMP (a
directory) writes each one to a file.
"""

from __future__ import annotations

import dis
import io
import itertools
import os
import sys
import types
from pathlib import Path
from typing import Any

from ..errors import UserError

STAGES = (
    "graph", "guards", "bytecode", "breaks", "recompiles", "sizes", "ir", "schedule", "code", "plan", "cache",
    "fallbacks", "verify",
)  # fmt: skip
_enabled: set[str] = set()
_numbers = itertools.count()


def set_logs(*stages: str) -> None:
    """Print these stages to stderr from now on; without arguments, print none."""
    for stage in stages:
        if stage not in STAGES:
            raise UserError(f"unknown log stage {stage!r}; accepted: {', '.join(STAGES)}")
    _enabled.clear()
    _enabled.update(stages)


def log(stage: str, message: Any, *args: Any) -> None:
    """Print or dump `message` if the stage is enabled.  If `message` is a function, it is called with `args` to make
    the text, only when the text is needed."""
    dump = os.environ.get("PYFRAME_DUMP")
    if stage not in _enabled and not dump:
        return
    text = str(message(*args)) if callable(message) else str(message)
    if stage in _enabled:
        print(f"[{stage}] {text}", file=sys.stderr)
    if dump:
        Path(dump).mkdir(parents=True, exist_ok=True)
        (Path(dump) / f"{next(_numbers):04d}_{stage}.txt").write_text(text + "\n")


def disassembly(code: types.CodeType) -> str:
    """The disassembly of `code`, with its exception table and the code objects among its constants."""
    text = io.StringIO()
    dis.dis(code, file=text)
    return f"{code.co_qualname}\n{text.getvalue()}"


set_logs(*filter(None, os.environ.get("PYFRAME_LOGS", "").split(",")))
