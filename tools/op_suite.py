"""Runs torch's operator database through the whole stack, and compares each call with eager.

    python tools/op_suite.py                                   # CPU, every operator, some samples of each
    python tools/op_suite.py --full                            # all samples
    python tools/op_suite.py --ops sgn,nn.functional.pad --modes backward --dtypes float32
    python tools/op_suite.py --device cuda --workers 14 --seconds 480 --out results
    python tools/op_suite.py --peer 24                         # torch.compile and ours on a sample of operators

Each operator of `torch.testing._internal.common_methods_invocations.op_db`, with each dtype that it lists, is compiled
by `pyframe.compile` with the default backend and called twice (the second call must not compile again), in these modes:

    forward    its samples, and the same with non-contiguous tensors
    inplace    the variant that writes to its input
    backward   gradients of every input that has one
    dynamic    `dynamic=True`, and a call with other sizes if the database has one
    errors     inputs for which the database expects an exception: its type must be eager's
    special    (if named in --modes, with special_backward) samples with NaN, infinities and -0.0; an
               element is right if it equals that of one of ATen's kernels (vectors, single elements, float64)

Containers, values, classes, dtypes, shapes, strides, devices, layouts, requires_grad, conjugate and negative bits,
shared memory, and the inputs afterwards are compared. A value is right if it is within the tolerance of
`torch.testing.assert_close`, or if its error against float64 is at most 3 times eager's. Cases run in worker processes;
if one dies, the case that it ran is a "crash".

Each result is appended to OUT/op_suite.jsonl at once, and OUT/op_suite.{json,txt} are written from that file, so a
later run of some operators updates their rows. `--resume` skips operators that have a row. Exit status 1 if something
is not right that `op_suite_exceptions.py` does not list, or if something that it lists is right.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).resolve().parent)]

from op_suite_report import OPERATOR_TABLES, Row, Tables, commit, failures, merge, write_report  # noqa: E402

WORKER = Path(__file__).with_name("op_suite_worker.py")
DTYPES = "float32,float64,bfloat16,float16,int64,int32,uint8,bool,complex64"
CUDA_DTYPES = "float32,bfloat16,int64,complex64"
MODES = "forward,inplace,backward,dynamic,errors"
UNITS_OF_A_WORKER = 120  # then it is replaced: libraries that it loaded stay in memory


class Worker:
    """One worker process; `ask` yields the answers to a request one by one."""

    def __init__(self, engine: str, seconds: float, script: Path = WORKER) -> None:
        self.seconds, self.units = seconds, 0
        reads, writes = os.pipe()
        self.errors = tempfile.TemporaryFile()
        environment = {**with_path(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(script), str(writes), engine],
            stdin=subprocess.PIPE, stdout=self.errors, stderr=self.errors, pass_fds=(writes,), env=environment,
            text=True,
        )  # fmt: skip
        os.close(writes)
        self.reads = reads
        self.rest = b""
        self.alive = self._next(max(seconds, 300)).get("ready", False)

    def _next(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reads], [], [], left)[0]:
                return {"dead": f"took more than {seconds:.0f} s", "hang": True}
            data = os.read(self.reads, 1 << 16)
            if not data:
                status = self.process.wait()
                return {"dead": f"the process ended with status {status}: {self._last_output()}"}
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def _last_output(self) -> str:
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        fatal = [k for k, line in enumerate(lines) if "Fatal Python error" in line or "terminate called" in line]
        return "; ".join(lines[fatal[-1]: fatal[-1] + 4] if fatal else lines[-3:])[:400]

    def ask(self, request: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Yields answers until one that says that the unit is done or that the process has died."""
        assert self.process.stdin is not None
        self.units += 1
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        while True:
            answer = self._next(self.seconds)
            yield answer
            if "done" in answer:
                return
            if "dead" in answer:
                self.alive = False
                self.stop()
                return

    def stop(self) -> None:
        """Ends the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        os.close(self.reads)
        self.errors.close()


def run_unit(
    worker: list[Worker], engine: str, request: dict[str, Any], seconds: float, script: Path = WORKER
) -> Row:
    """The verdict of each case of one operator in one mode. `worker[0]` is replaced if the process dies."""
    chosen = request["samples"], " ".join(request["dtypes"]), request["commit"]
    row = Row(request["op"], request["mode"], request["device"], engine, *chosen)
    begun = time.monotonic()
    plan: list[list[str]] | None = None
    while plan is None or plan:
        if not worker[0].alive or worker[0].units >= UNITS_OF_A_WORKER:
            if worker[0].alive:
                worker[0].stop()
            worker[0] = Worker(engine, seconds, script)
        started: list[str] = []
        last: dict[str, Any] = {}
        for last in worker[0].ask({**request, **({"plan": plan} if plan else {})}):
            if "plan" in last and plan is None:
                plan = last["plan"]
            elif "start" in last:
                started = last["start"]
            elif "remarks" in last:
                row.remarks.update(last["remarks"])
            elif "case" in last:
                row.cases[last["case"]] = [last["verdict"], last.get("detail", "")]
        if "done" in last:
            break
        plan = _after_death(row, plan, started, last)
    row.seconds = round(time.monotonic() - begun, 1)
    return row


def _after_death(
    row: Row, plan: list[list[str]] | None, started: list[str], last: dict[str, Any]
) -> list[list[str]]:
    """The cases that remain after the process died while it ran the cases `started`."""
    if not started:
        row.cases["samples"] = ["crash", last["dead"]]
    if len(started) == 1:
        row.cases[started[0]] = ["hang" if "hang" in last else "crash", last["dead"]]
    left = [[name for name in group if name not in row.cases] for group in plan or []]
    parts: list[list[str]] = []
    for group in left:
        if len(started) > 1 and set(group) & set(started):
            first = [name for name in group if name in started]
            middle = (len(first) + 1) // 2
            parts += [first[:middle], first[middle:], [name for name in group if name not in started]]
        else:
            parts.append(group)
    return [group for group in parts if group] if started else []


def run_all(
    units: Sequence[dict[str, Any]], engine: str, args: argparse.Namespace, log: Path | None, script: Path = WORKER,
    tables: Tables = OPERATOR_TABLES,
) -> list[Row]:
    """The rows of all units that can be run in the time. `script`: the program of the worker processes."""
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    for unit in units:
        waiting.put(unit)
    rows: list[Row] = []
    lock = threading.Lock()
    begun = time.monotonic()

    def serve() -> None:
        worker = [Worker(engine, args.timeout, script)]
        while time.monotonic() - begun < args.seconds:
            try:
                request = waiting.get_nowait()
            except queue.Empty:
                break
            row = run_unit(worker, engine, request, args.timeout, script)
            with lock:
                rows.append(row)
                if log is not None:
                    with log.open("a") as file:
                        file.write(json.dumps(row.data()) + "\n")
                bad = failures(row, tables)
                if bad or args.verbose or len(rows) % 20 == 0:
                    clock = f"{time.monotonic() - begun:6.0f} s {len(rows):5}/{len(units)}"
                    print(f"{clock} {row.op} {row.mode}: {row.summary()}", flush=True)
                for case, (verdict, detail) in list(bad.items())[: args.show]:
                    print(f"      {verdict:12}{case}: {detail}", flush=True)
        if worker[0].alive:
            worker[0].stop()

    threads = [threading.Thread(target=serve) for _ in range(min(args.workers, len(units)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not waiting.empty():
        print(f"out of time: {waiting.qsize()} of {len(units)} units were not run", flush=True)
    return rows


def select_units(args: argparse.Namespace, names: Sequence[str], done: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """One request for each operator and mode, one mode after the other."""
    wanted = [name for name in names if matches(name, args.ops)]
    first, _, of = args.shard.partition("/")
    wanted = wanted[int(first) - 1 :: int(of)]
    here = commit()
    return [
        {
            "op": name, "mode": mode, "device": args.device, "dtypes": args.dtypes.split(","),
            "samples": 0 if args.full else args.samples, "batch": args.batch, "commit": here,
        }
        for mode in args.modes.split(",") for name in wanted if (name, mode) not in done
    ]  # fmt: skip


def matches(name: str, patterns: str) -> bool:
    """Whether a name matches one of the patterns, which are separated by commas: a name, or a prefix followed by *."""
    words = [word for word in patterns.split(",") if word]
    return not words or any(word == name or (word.endswith("*") and name.startswith(word[:-1])) for word in words)


def peer_units(args: argparse.Namespace, names: Sequence[str]) -> list[dict[str, Any]]:
    """Every k-th operator, so that there are `args.peer` of them; two samples in float32, forward and backward."""
    step, here = max(1, len(names) // args.peer), commit()
    return [
        {
            "op": name, "mode": mode, "device": args.device, "dtypes": ["float32"], "samples": 2, "batch": args.batch,
            "commit": here,
        }
        for name in list(names)[step // 2 :: step][: args.peer] for mode in ("forward", "backward")
    ]


def common_arguments(parser: argparse.ArgumentParser, unit: str, samples: int, batch: int, timeout: int) -> None:
    """The options of every suite that runs cases in worker processes. `unit`: the noun for what it takes samples of."""
    parser.add_argument("--samples", type=int, default=samples, help=f"of each {unit} and dtype; 0: all")
    parser.add_argument("--batch", type=int, default=batch, help="cases that are compiled as one function")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shard", default="1/1", help="k/n: the k-th of n parts of the work")
    parser.add_argument("--seconds", type=float, default=float("inf"), help=f"no {unit} is begun after so long")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds for one compiled function")
    parser.add_argument("--resume", action="store_true", help="leave out what OUT has rows of")
    parser.add_argument("--failed", action="store_true", help="only what failed in OUT's rows")
    parser.add_argument("--peer", type=int, default=0, metavar="N", help="torch.compile and ours on a sample of N")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--show", type=int, default=3, help="failures that are printed at a time")
    parser.add_argument("--verbose", action="store_true")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line, or of `given`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names, or beginnings followed by *, separated by commas")
    parser.add_argument("--modes", default=MODES)
    parser.add_argument("--dtypes", default="", help=f"on the CPU: {DTYPES}; on a GPU: {CUDA_DTYPES}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true", help="all samples")
    parser.add_argument("--name", default="", help="of the files in OUT; op_suite or op_suite_cuda")
    common_arguments(parser, "operator", samples=6, batch=24, timeout=150)
    args = parser.parse_args(given)
    args.dtypes = args.dtypes or (DTYPES if args.device == "cpu" else CUDA_DTYPES)
    args.name = args.name or ("op_suite" if args.device == "cpu" else "op_suite_cuda")
    return args


def with_path(folder: Path) -> dict[str, str]:
    """The environment with `folder` as the first entry of PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(":")}


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / f"{args.name}.jsonl"
    listing = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import op_suite_cases as c; print(*c.operators(), sep='\\n')"],
        env=with_path(WORKER.parent), capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = listing.stdout.split()
    kept = merge(log)
    if args.peer:
        rows = {engine: run_all(peer_units(args, names), engine, args, None) for engine in ("ours", "peer")}
        return write_report(args.out / args.name, kept, args.device, rows)
    done = {(row.op, row.mode) for row in kept if row.device == args.device} if args.resume else set()
    units = select_units(args, names, done)
    if args.failed:
        bad = {(row.op, row.mode) for row in kept if failures(row)}
        units = [unit for unit in units if (unit["op"], unit["mode"]) in bad]
    print(f"{len(units)} units (operator x mode), {args.workers} workers", flush=True)
    run_all(units, "ours", args, log)
    return write_report(args.out / args.name, merge(log), args.device)


if __name__ == "__main__":
    sys.exit(main())
