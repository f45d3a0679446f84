"""Runs a part of a test in a child process, which starts with the state of this one and leaves no changes in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any


def result_of_child(work: Callable[[], Any]) -> Any:
    """What `work()` returns in a child process, passed as JSON; None if the child fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writing, "w") as file:
                json.dump(work(), file)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None
