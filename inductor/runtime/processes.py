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
    """`Processes.stop` came first."""


class Processes:
    """Runs commands, from any number of threads, each in a process group of its own.

    So what a command starts (a compiler's passes) ends with it, when its time is up as when everything is to stop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(
        self, line: Sequence[str], seconds: float, temporary: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The finished command with its output. OSError, subprocess.TimeoutExpired, Stopped. `temporary`: the folder
        for its temporary files, some of which a killed compiler leaves."""
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
            if process.returncode is None:  # too late, or the user interrupts us
                _kill(process)
                process.communicate()
        if self._stopped and process.returncode == -signal.SIGKILL:
            raise Stopped
        return subprocess.CompletedProcess(line, process.returncode, out, err)

    def stop(self) -> None:
        """Ends what runs and lets nothing start."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
