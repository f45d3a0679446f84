"""Checks whether models compiled by the default backend compute what they should, in inference and in training.

    python -m benchmarks.accuracy                                   # CPU: float32 and bfloat16
    python -m benchmarks.accuracy --device cuda --workers 12 --budget 400
    python -m benchmarks.accuracy --only convnext bert --dtype autocast --train
    python -m benchmarks.accuracy --peer                            # torch.compile as well
    python -m benchmarks.accuracy --reuse                           # torch.compile's columns from the last results

Each job is one model in one dtype in one mode, in a process of its own, with an empty cache. The compiled model is
called twice on the same inputs; in training each call is followed by a backward pass, and gradients accumulate. The
outputs of both calls, the loss, the gradients of all parameters and floating-point inputs, and all buffers are compared
with a reference: the same model in float64, run by eager on the CPU (in float32 for bfloat16 and autocast).

A tensor is right if its error is at most three times eager's own error against that reference, or at most the dtype's
tolerance (`TOLERANCES`), or if it equals eager's result within that tolerance. Both the root mean square and single
elements are checked. The tolerance of half precision is wide, so two more errors are measured there: the part that is a
multiple of the tensor, which a wrong factor causes, and the largest error of an element relative to the other elements.
Large constants, such as the -1e9 of a mask, do not count as the scale of the elements beside them, and a small gradient
is measured on its own scale unless it is noise.

If ours is further off, the compiled model runs once more, and both run with parameters that differ in their last bits,
against the reference for the same parameters. A tensor is then judged by the medians of the errors, ours and eager's,
at all these points, because a discrete choice (a mask, an expert) that rounding decides at one of them is not a defect
of a kernel; the detail says how many were. An error that is not reproduced with the same parameters is not excused.
`tests/test_accuracy_faults.py` injects faults that must be detected.

"eager wrong" counts jobs in which ours is right, and eager is off by more than rounding explains. Dropout is disabled,
so that systems can be compared, except in blocks that test dropout; their reference uses the numbers that eager drew.

`--dtype autocast` keeps parameters and inputs in float32 and runs the forward pass under autocast to bfloat16. Results
are written after each job. Exit status 1 if any result is wrong or any job failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

from .accuracy_compare import Job, run_job
from .accuracy_jobs import GROUPS, eager_cannot, make, selected
from .harness import command_line, machine, table

RESULTS = Path(__file__).parent / "results"
DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "autocast", "bfloat16")}
SYSTEMS = ("pyframe", "torch.compile")
# "eager wrong": ours are right, eager's are not. "not for this setting": eager cannot run it so (`EAGER_CANNOT`).
GOOD = ("right", "eager wrong", "not for this setting")


# ---- in the child ----
def child(job: Job, system: str, threads: int, cache: str, pipe: connection.Connection) -> None:
    """Runs a job and sends its row to the parent; output of the libraries is discarded."""
    os.setsid()
    os.environ |= {"PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    import torch

    torch.set_num_threads(threads)
    try:
        found = run_job(job, make(job.model), system)
        if found["status"] == "eager failed" and (reason := eager_cannot(job)):
            found |= {"status": "not for this setting", "detail": f"{reason} ({found['detail']})"}
    except Exception as error:  # noqa: BLE001  reported as the job's result
        found = {"status": "error", "detail": f"{type(error).__name__}: {error}"}
    pipe.send(found)


# ---- in the parent ----
@dataclass
class Running:
    """A job in progress."""

    job: Job
    system: str
    process: Any
    pipe: connection.Connection
    cache: tempfile.TemporaryDirectory[str]
    start: float

    def stop(self) -> None:
        """Ends the process and those that it started."""
        if self.process.pid is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()
        self.process.join()
        self.pipe.close()
        self.cache.cleanup()


def start(job: Job, system: str, options: argparse.Namespace) -> Running:
    """Starts a job in a fork of this process, which has imported the libraries and run nothing."""
    fork = get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    cache = tempfile.TemporaryDirectory(prefix="accuracy", ignore_cleanup_errors=True)
    process = fork.Process(target=child, args=(job, system, options.threads, cache.name, theirs))
    process.start()
    theirs.close()
    return Running(job, system, process, ours, cache, time.monotonic())


def finished(running: list[Running], timeout: float, deadline: float) -> list[tuple[Running, dict[str, Any]]]:
    """Waits until a job ends or exceeds its time; yields each with its row."""
    wake = min(min(r.start + timeout for r in running), deadline)
    connection.wait([r.pipe for r in running], max(0.0, wake - time.monotonic()))
    done = []
    for each in running:
        if each.pipe.poll():
            try:
                found = each.pipe.recv()
            except EOFError:
                each.process.join()
                found = {"status": "crash", "detail": f"the process ended with exit code {each.process.exitcode}"}
        elif time.monotonic() >= each.start + timeout:
            found = {"status": "timeout", "detail": f"no end after {timeout:.0f} s"}
        elif time.monotonic() >= deadline:
            found = {"status": "not run", "detail": "stopped at the end of the time budget"}
        else:
            continue
        done.append((each, {**found, "total_seconds": time.monotonic() - each.start}))
    for each, _ in done:
        each.stop()
    return done


def in_a_fork(fn: Callable[[], Any]) -> Any:
    """The result of `fn`, called in a child process."""
    fork = get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: theirs.send(fn()))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


class Results:
    """The rows by key of the job and system; each is written to files at once."""

    def __init__(self, folder: Path, device: str, keep: bool, reuse: bool) -> None:
        self.folder, self.device = folder, device
        self.machine = in_a_fork(machine)  # asking it here would initialize CUDA, which no fork could use then
        self.json = folder / f"accuracy_{device}.json"
        known = json.loads(self.json.read_text())["measured"] if self.json.exists() else {}
        self.measured: dict[str, dict[str, Any]] = known if keep else {}
        self.peer = {key: each["torch.compile"] for key, each in known.items() if "torch.compile" in each and reuse}

    def add(self, job: Job, system: str, found: dict[str, Any]) -> None:
        entry = self.measured.setdefault(job.key, {})
        entry[system] = found
        if system == "pyframe" and job.key in self.peer:
            entry["torch.compile"] = self.peer[job.key]
        self.write()

    def rows(self) -> list[dict[str, Any]]:
        return [row(key, each) for key, each in self.measured.items()]

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        command = command_line("benchmarks.accuracy", sys.argv[1:])
        facts = {"benchmark": "accuracy", "command": command, "date": time.strftime("%Y-%m-%d")}
        facts |= {"machine": self.machine}
        text = f"{command}  ({facts['date']}, {facts['machine']})\n\n{summary(rows)}\n\n{table(rows)}\n"
        for path, content in ((self.json, json.dumps({**facts, "measured": self.measured}, indent=1) + "\n"),
                              (self.json.with_suffix(".txt"), text)):  # fmt: skip
            part = path.with_suffix(".part")
            part.write_text(content)
            part.replace(path)


def row(key: str, systems: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = systems.get("pyframe", {}), systems.get("torch.compile", {})
    model, dtype, mode = key.rsplit(" ", 2)
    return {
        "model": model,
        "dtype": dtype,
        "mode": mode,
        "result": ours.get("status", "-"),
        "tensors": ours.get("tensors", "-"),
        "error / eager's": ours.get("ratio", "-"),
        "graphs": ours.get("graphs", "-"),
        "first s": ours.get("first_seconds", "-"),
        "peer result": theirs.get("status", "-"),
        "peer first s": theirs.get("first_seconds", "-"),
        "detail": " ".join(str(ours.get("detail", "")).split())[:240],
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Counts of the results, ours and the peer's, and the models by result."""
    counts: dict[str, int] = {}
    for each in rows:
        counts[each["result"]] = counts.get(each["result"], 0) + 1
    lines = [f"{len(rows)} jobs: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))]
    both = [r for r in rows if isinstance(r["first s"], float) and isinstance(r["peer first s"], float)]
    if both:
        wrong = sum(r["peer result"] not in GOOD for r in rows if r["peer result"] != "-")
        slower = [f"{r['model']} {r['dtype']} {r['mode']}" for r in both if r["first s"] > r["peer first s"]]
        ratio = sorted(r["peer first s"] / r["first s"] for r in both)[len(both) // 2]
        times = f"its first call takes {ratio:.1f} x ours (median of {len(both)})"
        lines.append(f"torch.compile: {wrong} not right; {times}")
        lines.append(f"slower to compile than torch.compile: {len(slower)}: {', '.join(slower)}")
    return "\n".join(lines)


def preload() -> None:
    """Imports what every child needs."""
    import importlib
    import importlib.util

    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    names = ["pyframe", "inductor.compile"]
    if importlib.util.find_spec("transformers"):
        names.append("transformers.modeling_utils")
    for library in names:
        importlib.import_module(library)


def run(queue: list[tuple[Job, str]], results: Results, options: argparse.Namespace) -> None:
    """Runs the jobs, several at a time, until the time budget is spent."""
    deadline = time.monotonic() + (options.budget or 1e9)
    running: list[Running] = []
    count, total = 0, len(queue)
    while queue or running:
        while queue and len(running) < options.workers and time.monotonic() < deadline:
            running.append(start(*queue.pop(0), options))
        if not running:
            break
        for each, found in finished(running, options.timeout, deadline):
            running.remove(each)
            count += 1
            if found["status"] != "not run":
                results.add(each.job, each.system, found)
            first = f"{found['first_seconds']:.1f}" if "first_seconds" in found else "-"
            detail = " ".join(str(found.get("detail", "")).split())[:400]
            print(f"{count}/{total} {each.job.key} {each.system}: {found['status']} "
                  f"({first} s first call, {found['total_seconds']:.0f} s) {detail}", flush=True)  # fmt: skip
    if queue:
        print(f"{len(queue)} jobs not run within the time budget", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", nargs="*", choices=["float32", "bfloat16", "float16", "autocast"])
    parser.add_argument("--train", action="store_true", help="only training")
    parser.add_argument("--infer", action="store_true", help="only inference")
    parser.add_argument("--only", nargs="*", default=[], help="models whose name contains one of these")
    parser.add_argument("--group", nargs="*", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--quick", action="store_true", help="a small selection")
    parser.add_argument("--peer", action="store_true", help="torch.compile, too")
    parser.add_argument("--reuse", action="store_true", help="torch.compile's columns from the last results")
    parser.add_argument("--merge", action="store_true", help="keep the last results of the jobs not run")
    parser.add_argument("--skip-known", action="store_true", help="with --merge: not the jobs that were right")
    parser.add_argument("--workers", type=int, default=1, help="jobs at a time")
    parser.add_argument("--threads", type=int, default=0, help="of each job (by default the cores over the workers)")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for one job")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds for all; what is left then is not run")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args()
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.workers)
    modes = [m for m in ("train", "infer") if not (options.train or options.infer) or getattr(options, m)]
    preload()
    jobs = selected(options.device, options.dtype or DTYPES[options.device], modes, options.group, options.only,
                    options.quick)  # fmt: skip
    if not jobs:
        raise SystemExit(f"no model matches {options.only}")
    results = Results(options.output, options.device, options.merge, options.reuse)
    if options.skip_known:
        jobs = [j for j in jobs if results.measured.get(j.key, {}).get("pyframe", {}).get("status") not in GOOD]
    systems = SYSTEMS if options.peer else SYSTEMS[:1]
    run([(job, system) for job in jobs for system in systems], results, options)
    rows = results.rows()
    bad = [r for r in rows if r["result"] not in GOOD]
    print(table(bad) if bad else "nothing wrong")
    print(summary(rows))
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
