"""Random tensor programs through the default backend, compared with eager.

    python -m tools.fuzz_graphs --programs 5000 --out benchmarks/results
    python -m tools.fuzz_graphs --device cuda --programs 500 --workers 14 --seconds 180 --out benchmarks/results
    python -m tools.fuzz_graphs --device fake-cuda --programs 500     # Triton kernels, interpreted on the CPU
    python -m tools.fuzz_graphs --seed 17 --show                      # one program

Each program is made from its seed by running random operators in eager. Compared are values (with the program in
float64 as reference: at most three times eager's error, or the tolerance of the dtype), dtypes, shapes, strides,
gradients, inputs that were written, and which results and inputs share memory. Failing programs are shrunk and written
as standalone files. Exit status 1 where one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LEAST_COMPILED = 0.6  # the share of programs that must have kernels of their own
PROGRAMS_PER_WORKER = 150  # it keeps every library that it loaded


class Worker:
    """A process that checks programs, started again when it died."""

    def __init__(self, device: str, timeout: float) -> None:
        self.device, self.timeout, self.process, self.done = device, timeout, None, 0
        self.folder = tempfile.mkdtemp(prefix="fuzz-graphs-")

    def start(self) -> None:
        environment = dict(
            os.environ,
            PYFRAME_CACHE_DIR=self.folder,
            OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "2"),
            OMP_WAIT_POLICY="passive",
            PYTHONPATH=str(ROOT),
            PYTHONWARNINGS="ignore",
            PYFRAME_STRICT="internal",
        )
        line = [sys.executable, "-m", "tools.fuzz_graphs.worker", self.device]
        self.errors = open(f"{self.folder}/stderr", "w+")
        self.process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env=environment,
            text=True,
        )
        self.done = 0
        if self.line(300) != "ready\n":
            raise RuntimeError("a worker did not start: " + self.last_errors())

    def line(self, seconds: float) -> str:
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else "hang"

    def last_errors(self) -> str:
        self.errors.flush()
        return Path(f"{self.folder}/stderr").read_text()[-1500:]

    def check(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer of a worker; a crash or a hang are answers too."""
        if self.process is None or self.process.poll() is not None or self.done >= PROGRAMS_PER_WORKER:
            self.stop()
            self.start()
        self.done += 1
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.line(self.timeout)
            if line.startswith('{"start"'):
                job = {**job, "program": json.loads(line)["start"]}
                line = self.line(self.timeout)
        except OSError:
            line = ""
        if line and line != "hang":
            return dict(json.loads(line))
        kind = "hang" if line == "hang" else f"crash {self.process.wait()}"
        detail = self.last_errors()
        self.stop()
        return {
            "kind": kind,
            "detail": detail,
            "sensitive": 0,
            "notes": {},
            "program": job.get("program"),
            "seed": job.get("seed"),
        }

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.errors.close()
            for path in Path(self.folder).iterdir():  # what it compiled
                shutil.rmtree(path, ignore_errors=True)
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def whole_program(answer: dict[str, Any], mode: str | None) -> dict[str, Any]:
    """The program of an answer; made again where the worker died of it."""
    if answer["program"] is None:
        sys.path.insert(0, str(ROOT))
        from .generate import compact, generate
        from .grammar import ALL

        answer["program"] = compact(generate(answer["seed"], ALL, mode)).to_json()
    return answer


def eager_ends_too(answer: dict[str, Any], timeout: float) -> bool:
    """Whether the process ends in the same way where nothing is compiled."""
    worker = Worker("eager", timeout)
    try:
        return bool(worker.check({"program": answer["program"]})["kind"] == answer["kind"])
    finally:
        worker.close()


def same_failure(kind: str, other: str) -> bool:
    values = ("value", "gradient", "written input")
    return kind == other or kind in values and other in values


def shrunk(worker: Worker, answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    from .program import Program
    from .shrink import shrink

    last = [answer]

    def fails(program: Program) -> bool:
        found = worker.check({"program": program.to_json()})
        if same_failure(answer["kind"], found["kind"]):
            last[0] = found
            return True
        return False

    program = shrink(Program.from_json(answer["program"]), fails, seconds)
    return {**answer, "shrunk": program.to_json(), "shrunk_detail": last[0]["detail"]}


def run(options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every program; the failures, shrunk, and the totals."""
    seeds: queue.Queue[int] = queue.Queue()
    for seed in [options.seed] if options.show else range(options.seed, options.seed + options.programs):
        seeds.put(seed)
    failures: list[dict[str, Any]] = []
    totals: dict[str, Counter[str]] = {"modes": Counter(), "kinds": Counter(), "notes": Counter()}
    lock, begin = threading.Lock(), time.monotonic()

    def work() -> None:
        worker = Worker(options.device, options.timeout)
        try:
            while not options.seconds or time.monotonic() - begin < options.seconds:
                try:
                    seed = seeds.get_nowait()
                except queue.Empty:
                    return
                one(worker, seed)
        finally:
            worker.close()

    def one(worker: Worker, seed: int) -> None:
        answer = whole_program(worker.check({"seed": seed, "mode": options.mode}), options.mode)
        if answer["kind"].startswith(("crash", "hang")) and eager_ends_too(answer, options.timeout):
            answer = {**answer, "kind": "skip", "notes": {f"eager itself: {answer['kind']}": 1}}
        failed = answer["kind"] not in ("", "skip")
        if failed and options.shrink:
            answer = shrunk(worker, answer, options.shrink)
        with lock:
            totals["modes"][answer["program"]["mode"]] += 1
            totals["kinds"][answer["kind"] or "right"] += 1
            totals["notes"].update(answer["notes"])
            totals["notes"]["programs with numbers that rounding elsewhere changes as much"] += bool(
                answer["sensitive"]
            )
            if failed:
                failures.append(answer)
                report(answer, options)
            count = sum(totals["kinds"].values())
            if count % options.progress == 0:
                print(f"[{time.monotonic() - begin:6.0f} s] {count} programs, {len(failures)} failed", flush=True)

    threads = [threading.Thread(target=work) for _ in range(options.workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return failures, {
        **{k: dict(v.most_common()) for k, v in totals.items()},
        "seconds": round(time.monotonic() - begin),
    }


def report(answer: dict[str, Any], options: argparse.Namespace) -> None:
    from .program import Program, standalone

    program = Program.from_json(answer.get("shrunk") or answer["program"])
    detail = answer.get("shrunk_detail") or answer["detail"]
    print(f"--- seed {answer['seed']}: {answer['kind']} ({program.mode})\n{detail[: options.detail]}", flush=True)
    for k, spec in enumerate(program.inputs):
        print(f"    x{k}: {spec}")
    print(program.source(), flush=True)
    if options.failures:
        folder = Path(options.failures)
        folder.mkdir(parents=True, exist_ok=True)
        device = "cuda" if options.device == "cuda" else "cpu"
        why = f"Seed {answer['seed']} of tools/fuzz_graphs: {answer['kind']}: {detail}"
        (folder / f"seed{answer['seed']}.py").write_text(standalone(program, why, device))
        (folder / f"seed{answer['seed']}.json").write_text(json.dumps(answer))


def summary(options: argparse.Namespace, failures: list[dict[str, Any]], totals: dict[str, Any]) -> str:
    import torch

    count = sum(totals["kinds"].values())
    wrong = sum(totals["kinds"].values()) - totals["kinds"].get("right", 0) - totals["kinds"].get("skip", 0)
    lines = [
        f"tools/fuzz_graphs: {count} random tensor programs from seed {options.seed}, device {options.device}",
        f"torch {torch.__version__}, Python {platform.python_version()}",
        f"{options.workers} workers, {totals['seconds']} s",
        f"failed: {wrong}",
        "outcomes: " + ", ".join(f"{k} {n}" for k, n in totals["kinds"].items()),
        "modes: " + ", ".join(f"{k} {n}" for k, n in totals["modes"].items()),
        *[f"{n:6d}  {k}" for k, n in totals["notes"].items() if n],
    ]
    lines += [
        f"failed: seed {f['seed']}: {f['kind']}: {(f.get('shrunk_detail') or f['detail']).splitlines()[:1]}"
        for f in failures
    ]
    return "\n".join(lines) + "\n"


def exercised(options: argparse.Namespace, totals: dict[str, Any]) -> bool:
    """Whether most programs were compiled at all: a run in which every graph fell back to eager would say nothing."""
    count = sum(totals["kinds"].values()) - totals["kinds"].get("skip", 0)
    compiled = totals["notes"].get("programs with kernels", 0)
    enough = options.device == "peer" or compiled >= LEAST_COMPILED * count
    if not enough:
        print(f"only {compiled} of {count} programs had kernels: this run says nothing of the compiler", flush=True)
    return enough


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda", "fake-cuda", "peer"), default="cpu")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--mode", help="forward, backward, dynamic, dynamic_backward or threads; by default each program's own"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="start no further program after so long")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a program hangs")
    parser.add_argument(
        "--shrink", type=float, default=60, help="seconds spent on making a failing program smaller; 0: none"
    )
    parser.add_argument("--out", help="folder for the results, as text and JSON")
    parser.add_argument("--failures", help="folder for failing programs")
    parser.add_argument("--progress", type=int, default=50)
    parser.add_argument("--detail", type=int, default=1200, help="characters printed of what is wrong")
    parser.add_argument("--show", action="store_true", help="only the program of --seed")
    options = parser.parse_args()
    failures, totals = run(options)
    text = summary(options, failures, totals)
    print(text, flush=True)
    if options.out:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"fuzz_graphs_{options.device.replace('-', '_')}"
        (folder / f"{name}.txt").write_text(text)
        (folder / f"{name}.json").write_text(json.dumps({"totals": totals, "failures": failures}, indent=1))
    return 1 if failures or not exercised(options, totals) else 0


if __name__ == "__main__":
    sys.exit(main())
