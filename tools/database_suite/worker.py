"""The worker process of the database suite: runs units "database:entry", which `op_suite_worker.serve` reads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from op_suite_worker import serve  # noqa: E402

from tools.database_suite.databases import database  # noqa: E402


def run(request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
    """A unit."""
    name, _, entry = request["op"].partition(":")
    database(name).run(entry, request, engine, tell)


if __name__ == "__main__":
    serve(run)
