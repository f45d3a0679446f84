"""Programs in processes of their own that begin with some modules imported.

Importing torch takes a second, which a test that starts several processes spends in each of them. Here one process per
set of modules imports them once and runs nothing else; each program runs in a fork of it, as `python -c` would run it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

_servers: dict[tuple[str, ...], _Server] = {}


def run(
    program: str,
    imports: Sequence[str] = ("torch",),
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """The exit status and the output of `program` after the modules `imports`. `environment` (that of this process by
    default) holds from the end of these imports on. subprocess.TimeoutExpired after `timeout` seconds."""
    key = tuple(imports)
    if key not in _servers or _servers[key].process.poll() is not None:
        _servers[key] = _Server(key)
    with tempfile.TemporaryDirectory(prefix="forked-") as files:
        outputs = [Path(files, name) for name in ("stdout", "stderr")]
        job = {"program": program, "arguments": ["-c", *arguments], "outputs": [str(path) for path in outputs],
               "environment": dict(os.environ if environment is None else environment),
               "folder": os.fspath(folder or os.getcwd())}  # fmt: skip
        status = _servers[key].run(job, timeout)
        texts = [path.read_text(errors="replace") for path in outputs]
    return subprocess.CompletedProcess(job["arguments"], status, *texts)


def run_file(
    path: Path, imports: Sequence[str] = ("torch",), arguments: Sequence[str] = (), timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """`run` for a file, as `python FILE` would run it."""
    program = "import runpy, sys; sys.argv.pop(0); sys.path[0] = {!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    return run(program.format(str(path.parent)), imports, [str(path), *arguments], timeout=timeout)


class _Server:
    """The process that has imported the modules, as seen from this one."""

    def __init__(self, imports: Sequence[str]) -> None:
        command = [sys.executable, __file__, *imports]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lock = threading.Lock()
        atexit.register(self.process.kill)

    def run(self, job: Mapping[str, object], timeout: float) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.lock:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            child = int(self.process.stdout.readline())
            late = threading.Event()

            def stop() -> None:
                late.set()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

            timer = threading.Timer(timeout, stop)
            timer.start()
            status = int(self.process.stdout.readline())
            timer.cancel()
        if late.is_set():
            raise subprocess.TimeoutExpired(str(job["arguments"]), timeout)
        return status


def _serve(imports: Sequence[str]) -> dict[str, object]:
    """Forks for each job that it reads, and writes the child's id and later its exit status. Returns the job in the
    child, so that it runs without this function's frame; ends the process when no more jobs can come."""
    for name in imports:
        __import__(name)
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            return json.loads(line)  # type: ignore[no-any-return]
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


def _prepare(job: dict[str, object]) -> types.CodeType:
    """Makes this process the one that `python -c` would start."""
    environment, folder, outputs, arguments = (job[k] for k in ("environment", "folder", "outputs", "arguments"))
    os.environ.clear()
    os.environ.update(environment)  # type: ignore[call-overload]
    os.chdir(folder)  # type: ignore[arg-type]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, path in zip((1, 2), outputs):  # type: ignore[call-overload]
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    sys.stdin = open(0, closefd=False)
    sys.argv = list(arguments)  # type: ignore[call-overload]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    return compile(str(job["program"]), "<string>", "exec")


if __name__ == "__main__":
    sys.path[0] = ""
    exec(_prepare(_serve(sys.argv[1:])), vars(sys.modules["__main__"]))
