"""Starts the process that compiles graphs, and has it compile them."""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..runtime.triton_worker import read, write
from .job import Job

_PROGRAM = Path(__file__).resolve().with_name("main.py")
_ROOT = str(Path(__file__).resolve().parents[2])
_TIMEOUT_SECONDS = 600
_STARTS = 3  # processes that may be started, if each of them dies


class WorkerFailed(RuntimeError):
    """The process did not compile a graph: it could not, or it ended."""


_in_this_process: contextvars.ContextVar[bool] = contextvars.ContextVar("in_this_process", default=False)


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """A block in which graphs are compiled without the other process."""
    token = _in_this_process.set(True)
    try:
        yield
    finally:
        _in_this_process.reset(token)


def is_available() -> bool:
    """Whether graphs may be compiled by the other process now."""
    return not _in_this_process.get() and bool(sys.executable) and _worker.can_run()


class CompilerProcess:
    """The process that compiles graphs, one after another. It starts when it is first needed, and ends with this
    process. A forked child starts its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._starts = 0
        self._lock = threading.Lock()  # held while a process is started
        self._ended = False

    def can_run(self) -> bool:
        """Whether it runs, or may be started."""
        if self._owner != os.getpid():
            return True
        running = self._process is not None and self._process.poll() is None
        return running or (self._starts < _STARTS and not self._ended)

    def start(self) -> subprocess.Popen[bytes]:
        """The running process, which is started if there is none. WorkerFailed if that is impossible."""
        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._process, self._starts, self._ended = os.getpid(), None, 0, False
            if self._process is not None and self._process.poll() is None:
                return self._process
            if self._ended or self._starts >= _STARTS:
                raise WorkerFailed("the process that compiles graphs has ended")
            self._starts += 1
            path = [_ROOT, *(entry for entry in sys.path if entry and entry != _ROOT)]
            line = [sys.executable, "-P", str(_PROGRAM), json.dumps(path)]
            try:
                self._process = subprocess.Popen(
                    line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
                )
            except OSError as error:
                raise WorkerFailed(f"the process that compiles graphs could not be started: {error}") from error
            return self._process

    def run(self, job: Job) -> tuple[bytes, dict[str, float]]:
        """The bytes of the compiled graph, and the seconds of each phase. WorkerFailed, which says why, if there are
        none. For one thread at a time, which holds no GIL meanwhile."""
        process = self.start()
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None
        try:
            write(stdin, job)  # type: ignore[arg-type]
            ready, _, _ = select.select([stdout], [], [], _TIMEOUT_SECONDS)
            answer: Any = read(stdout) if ready else None  # type: ignore[arg-type]
        except (OSError, ValueError):  # ValueError: `stop` has closed the pipe
            answer = None
        if answer is None:
            process.kill()
            process.wait()
            raise WorkerFailed("the process that compiles graphs died or hung")
        if isinstance(answer, str):
            raise WorkerFailed(answer)
        data, seconds = answer
        return data, seconds

    def stop(self) -> None:
        """End the process, when this one ends. It notices the end of its input, ends compilers and exits."""
        self._ended = True
        if self._owner == os.getpid() and self._process is not None:
            _let_go(self._process)

    def forget(self) -> None:
        """Close the pipes in a forked child: the process must see the end of its input when the parent ends."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        self._owner = 0
        if process is not None:
            _let_go(process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close this process's ends of the pipes, and wait for the other one no more. The file objects are not closed:
    another thread may be in the middle of one, and would hold its lock."""
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            os.close(pipe.fileno())  # type: ignore[union-attr]
    process.returncode = 0
    _let_go_of.append(process)


_worker = CompilerProcess()
_let_go_of: list[Any] = []  # their file objects must not close descriptors that may be other files by now
start, run, stop = _worker.start, _worker.run, _worker.stop
os.register_at_fork(after_in_child=_worker.forget)
