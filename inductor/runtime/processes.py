"""Runs child processes (compilers) with time limits, and can terminate all of them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path


class Stopped(RuntimeError):
    """Raised for a command that was not started, or was killed, because of `Processes.stop`."""


class Processes:
    """Runs commands from any number of threads, each in its own process group.

    On a timeout, and in `stop`, the whole group is killed, including processes that the command started (such as the
    passes of a compiler).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(
        self, line: Sequence[str], seconds: float, temporary: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command and returns it with its output. Raises OSError, subprocess.TimeoutExpired or Stopped.

        `temporary` is the folder for its temporary files, since a killed compiler leaves some behind.
        """
        environment = None if temporary is None else {**os.environ, "TMPDIR": str(temporary)}
        with self._lock:
            if self._stopped:
                raise Stopped
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", process_group=0, env=environment,
            )  # fmt: skip
            self._running.add(process)
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            with self._lock:
                self._running.discard(process)
            if process.returncode is None:  # a timeout or a KeyboardInterrupt
                _kill(process)
                process.communicate()
        if self._stopped and process.returncode == -signal.SIGKILL:
            raise Stopped
        return subprocess.CompletedProcess(line, process.returncode, out, err)

    def stop(self) -> None:
        """Kills all running commands and prevents new ones from starting."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
