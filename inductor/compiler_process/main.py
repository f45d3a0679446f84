"""The program of the process that compiles graphs: `python -P main.py PATH`, where PATH is the `sys.path` of the
process that starts it, as JSON.

Jobs arrive on standard input and answers leave on the original standard output, as in `runtime/triton_worker.py`. An
answer is the bytes of the compiled graph and the seconds of each phase, or the text of an error. The process ends when
its input ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import sys
import threading
import traceback
from typing import Any, BinaryIO

NICENESS = 5  # the program's own threads come first


def answer_of(job: Any, processes: Any) -> Any:
    """The compiled graph, (bytes, seconds by phase), or why there is none. `processes`: where the compilers of kernels
    run, which are then found in the disk cache."""
    from inductor.artifact import Artifact, TrainingArtifact, load_or_make
    from inductor.assembly import build_kernels
    from inductor.cache import graph_store
    from inductor.compile_report import CompileReport
    from inductor.compiler_process.job import key_of
    from inductor.generate import generate, generate_training
    from inductor.options import CompileOptions
    from inductor.process.compile_lock import compile_lock
    from inductor.process.garbage import without_full_collections
    from inductor.process.thread_state import restored_on_error
    from inductor.runtime.cpp_build import BuildError

    report, options = CompileReport(), CompileOptions(bucket_collectives=job.buckets, background=True)
    with compile_lock, job.settings.applied():
        gm, inputs = job.rebuilt()
        if key_of(job.kind, gm, inputs) != job.key:
            return "the graph or the settings differ in another process"
        kind: Any = Artifact if job.kind == "inference" else TrainingArtifact

        def make() -> Any:
            if job.kind == "inference":
                return generate(gm, inputs, report, options, frozen=job.frozen)
            return generate_training(gm, inputs, report, None, options)

        load = functools.partial(load_or_make, job.stored_as, kind, report, make)
        artifact, _ = restored_on_error(lambda: without_full_collections(load))
        data = graph_store.dump(artifact)
    if data is None:
        return "the compiled graph is no plain data"
    parts = [artifact] if job.kind == "inference" else [artifact.forward, *artifact.backward]
    with report.phase("build"), contextlib.suppress(BuildError):  # which the other process finds as well
        for part in parts:
            build_kernels(part, processes)
    return data, report.seconds


def _jobs(stream: BinaryIO, read: Any, jobs: queue.SimpleQueue[Any], processes: Any) -> None:
    """Put the jobs into the queue. When the input ends, end the compilers and the process at once."""
    while (job := read(stream)) is not None:
        jobs.put(job)
    processes.stop()
    os._exit(0)


def main() -> None:
    """Answer jobs until the input ends."""
    sys.path[:] = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed are logs
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    from inductor.runtime.processes import Processes
    from inductor.runtime.triton_worker import read, write

    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    processes = Processes()
    threading.Thread(target=_jobs, args=(sys.stdin.buffer, read, jobs, processes), daemon=True).start()
    import inductor.generate  # noqa: F401  while no job is there yet

    while True:
        job = jobs.get()
        try:
            answer: Any = answer_of(job, processes)
        except Exception:  # noqa: BLE001  whatever the compiler raises is the answer: the other process raises it again
            answer = traceback.format_exc()
        write(answers, answer)


if __name__ == "__main__":
    main()
