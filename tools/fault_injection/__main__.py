"""Raises an exception at the k-th point of capture, compilation or a call, and checks that the process is in the same
state as before and that the next call is right.

    python -m tools.fault_injection                     # a sample of the points of each kind
    python -m tools.fault_injection --all               # every point
    python -m tools.fault_injection --all --kind exit --kind lock --keep --out benchmarks/results
    python -m tools.fault_injection --program training --stage first --kind interrupt --at 1234

`points.KINDS` lists the kinds of points. `alloc` makes one allocation of CPython fail (needs `_testcapi`). `signal`
sends Ctrl-C after a number of milliseconds of processor time, wherever the program then is, including torch's code.
Stages: the first call in a process that uses no cached graph, so the whole compiler runs; a first call in a process
that has compiled before and finds the graph in the cache; and a later call of the compiled function.

A program, a stage and a kind together are a part. The report says for each part how many points it has and whether a
fault was raised at every one of them or only at a sample. OUT is written after each part; `--keep` leaves the results
there of parts that are not run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .points import KINDS, ROOT
from .worker import STAGES

PROGRAMS = ("inference", "training", "break")
_ALLOCATIONS = {"first": 1 << 21, "cached": 1 << 19, "call": 1 << 9}  # about what a call makes
_WEIGHTS = {"first": 6.0, "cached": 3.0, "call": 1.0}  # shares of the time, about as long as one fault takes
_EVERY = 300  # with so few points all of them are taken


class Worker:
    """A process that runs faults in one program at one stage."""

    def __init__(self, program: str, stage: str, scratch: str, alone: bool) -> None:
        folder = tempfile.mkdtemp(dir=scratch)
        cache = scratch if alone else tempfile.mkdtemp(dir=scratch)  # others may leave half-written files
        own = {"TMPDIR": folder, "PYFRAME_CACHE_DIR": str(Path(cache) / "cache"), "OMP_NUM_THREADS": "1"}
        env = {**os.environ, **own}
        line = [sys.executable, "-m", "tools.fault_injection.worker", program, stage]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            line, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, kind: str, at: int) -> dict[str, Any]:
        """The answer to one fault."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps({"kind": kind, "at": at}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"kind": kind, "at": at, "wrong": ["the worker ended"]}
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def chosen(points: int, samples: int, rng: random.Random, every: bool) -> list[int]:
    """The numbers of the points to test: all if there are few, otherwise a sample that includes the first and the last
    ones."""
    if every or points <= min(samples, _EVERY):
        return list(range(1, points + 1))
    spread = {1, 2, points - 1, points, *(rng.randint(1, points) for _ in range(samples - 4))}
    return sorted(spread)


def allocations(stage: str, samples: int, rng: random.Random, every: bool) -> list[int]:
    """Like `chosen` for allocations, whose number is unknown: numbers of all magnitudes."""
    most = _ALLOCATIONS[stage]
    if every:
        return list(range(1, most))
    if stage == "call":
        return sorted(rng.sample(range(1, most), min(samples * 3, most - 1)))
    return sorted({int(most ** rng.random()) for _ in range(samples)})


@dataclass
class Part:
    """The faults of one kind in one program at one stage. `points`: how many there are, None if they were not counted.
    `answers`: the worker's answer to each fault."""

    program: str
    stage: str
    kind: str
    points: int | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.program, self.stage, self.kind

    @property
    def tested(self) -> str:
        """How many of the points were tested: every one, or a sample of so many."""
        reached = {answer["at"] for answer in self.answers if answer["at"] > 0}
        if self.points == 0:
            return "none exist"
        return "every one" if len(reached) == self.points else f"sample of {len(reached)}"

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """The answers that report something wrong."""
        return [answer for answer in self.answers if answer["wrong"]]


class Workers:
    """The workers that no part uses now. One serves any number of parts of its program and stage one after another: it
    runs each fault in a fork of itself."""

    def __init__(self, scratch: str, alone: bool) -> None:
        self.scratch, self.alone = scratch, alone
        self.idle = collections.defaultdict[tuple[str, str], list[Worker]](list)

    def take(self, part: Part) -> Worker:
        """A worker for the program and the stage of `part`."""
        try:
            return self.idle[part.program, part.stage].pop()
        except IndexError:
            return Worker(part.program, part.stage, self.scratch, self.alone)

    def give_back(self, part: Part, worker: Worker) -> None:
        """For another part, unless it has ended."""
        if worker.process.poll() is None:
            self.idle[part.program, part.stage].append(worker)
        else:
            worker.close()

    def close(self) -> None:
        """End all that are idle."""
        for worker in itertools.chain(*self.idle.values()):
            worker.close()


def run_part(part: Part, args: argparse.Namespace, workers: Workers, seconds: float) -> Part:
    """Fills in `part`; no fault is started `seconds` after the points were counted."""
    if part.kind == "alloc" and importlib.util.find_spec("_testcapi") is None:
        return part
    rng = random.Random(f"{args.seed} {part.program} {part.stage} {part.kind}")
    worker = workers.take(part)
    try:
        if part.kind == "alloc":
            numbers = allocations(part.stage, args.samples, rng, args.all)
        else:
            counted = worker.run(part.kind, 0)
            part.points = counted.get("points")
            numbers = chosen(part.points or 0, args.samples, rng, args.all)
            part.answers += [counted] if counted.get("wrong") else []
        rng.shuffle(numbers)
        until = time.monotonic() + seconds
        for at in [args.at] if args.at else numbers:
            if time.monotonic() > until or worker.process.poll() is not None:
                break
            part.answers.append(worker.run(part.kind, at))
            for reason in part.answers[-1]["wrong"]:
                print(*part.key, f"{at}: {part.answers[-1].get('where')}: {reason}", flush=True)
        print(*part.key, f"of {'?' if part.points is None else part.points} points: {part.tested}", flush=True)
    finally:
        workers.give_back(part, worker)
    return part


def table(parts: Sequence[Part]) -> str:
    """The outcomes, a line for each part."""
    head = f"{'program':<11}{'stage':<8}{'kind':<11}{'points':>8}  {'tested':<16}{'raised':>8}{'result':>8}{'wrong':>7}"
    lines = [head, "-" * len(head)]
    for part in parts:
        ended = collections.Counter(x.get("ended", "wrong") for x in part.answers)
        result = ended.pop("result", 0)
        ended.pop("not reached", 0)
        points = "?" if part.points is None else part.points
        lines.append(
            f"{part.program:<11}{part.stage:<8}{part.kind:<11}{points:>8}  {part.tested:<16}{sum(ended.values()):>8}"
            f"{result:>8}{len(part.wrong):>7}"
        )
    total, wrong = sum(len(part.answers) for part in parts), sum(len(part.wrong) for part in parts)
    every = sum(not part.tested.startswith("sample") for part in parts)
    lines += ["", f"{total} faults, {wrong} after which something was wrong"]
    lines += [f"{every} of {len(parts)} parts (program, stage, kind) were tested at every point"]
    for part in parts:
        for answer in part.wrong:
            name = " ".join(str(each) for each in (*part.key, answer.get("at"), answer.get("where")))
            lines += [f"  {name}: {reason.splitlines()[0][:160]}" for reason in answer["wrong"]]
    return "\n".join(lines) + "\n"


class Results:
    """The parts that have results, and the files in `folder` (if there is one) that list them."""

    def __init__(self, folder: Path | None, keep: bool) -> None:
        self.folder, self.parts = folder, dict[tuple[str, str, str], Part]()
        if folder and keep and (folder / "fault_injection.json").exists():
            for fields in json.loads((folder / "fault_injection.json").read_text()):
                self.parts[fields["program"], fields["stage"], fields["kind"]] = Part(**fields)

    def add(self, part: Part) -> None:
        """Replaces an earlier result of the same part, and writes the files."""
        self.parts[part.key] = part
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "fault_injection.txt").write_text(self.table())
            parts = ",\n".join(json.dumps(asdict(each)) for each in self.sorted())
            (self.folder / "fault_injection.json").write_text(f"[\n{parts}\n]\n")

    def sorted(self) -> list[Part]:
        """By program, stage and kind, in the order of the options."""
        return sorted(
            self.parts.values(), key=lambda x: (PROGRAMS.index(x.program), STAGES.index(x.stage), KINDS.index(x.kind))
        )

    def table(self) -> str:
        """See the function `table`."""
        return table(self.sorted())


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.fault_injection")
    parser.add_argument("--program", action="append", choices=PROGRAMS)
    parser.add_argument("--stage", action="append", choices=STAGES)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--at", type=int, help="this point only")
    parser.add_argument("--samples", type=int, default=40, help="points of each program, stage and kind")
    parser.add_argument("--all", action="store_true", help="every point")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all, shared by stages")
    parser.add_argument("--out", type=Path, help="folder for fault_injection.txt and .json")
    parser.add_argument("--keep", action="store_true", help="keep the results in OUT of parts that are not run now")
    args = parser.parse_args()
    results = Results(args.out, args.keep)
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch, ThreadPoolExecutor(args.jobs) as pool:
        parts = [
            Part(*names)
            for names in itertools.product(args.program or PROGRAMS, args.stage or STAGES, args.kind or KINDS)
        ]
        share = args.seconds * args.jobs / sum(_WEIGHTS[part.stage] for part in parts)
        workers = Workers(scratch, args.jobs == 1)
        try:
            for part in pool.map(lambda part: run_part(part, args, workers, share * _WEIGHTS[part.stage]), parts):
                results.add(part)
        finally:
            workers.close()
    print(results.table(), end="")
    return int(any(part.wrong for part in parts))


if __name__ == "__main__":
    sys.exit(main())
