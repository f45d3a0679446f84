"""Raises an exception at the k-th point of capture, compilation or a call, and checks that the process is in the same
state as before and that the next call is right.

    python -m tools.fault_injection                     # a sample of the points of each kind
    python -m tools.fault_injection --all               # every point
    python -m tools.fault_injection --program training --stage first --kind interrupt --at 1234

`points.KINDS` lists the kinds of points. `alloc` makes one allocation of CPython fail (needs `_testcapi`). `signal`
sends Ctrl-C after a number of milliseconds of processor time, wherever the program then is, including torch's code.
Stages: the first call in a process that uses no cached graph, so the whole compiler runs; a first call in a process
that has compiled before and finds the graph in the cache; and a later call of the compiled function.
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
from concurrent.futures import ThreadPoolExecutor
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


def run_kind(
    program: str, stage: str, kind: str, args: argparse.Namespace, scratch: str, seconds: float
) -> list[dict[str, Any]]:
    """All faults of one kind in one program at one stage; none is started `seconds` after the points were counted."""
    if kind == "alloc" and importlib.util.find_spec("_testcapi") is None:
        return []
    rng = random.Random(f"{args.seed} {program} {stage} {kind}")
    worker = Worker(program, stage, scratch, args.jobs == 1)
    answers: list[dict[str, Any]] = []
    names = {"program": program, "stage": stage}
    try:
        points = 0
        if kind == "alloc":
            numbers = allocations(stage, args.samples, rng, args.all)
        else:
            counted = worker.run(kind, 0)
            points = counted.get("points", 0)
            numbers = chosen(points, args.samples, rng, args.all)
            if counted.get("wrong"):
                answers.append({**names, "points": 0, **counted})
        rng.shuffle(numbers)
        until = time.monotonic() + seconds
        for at in [args.at] if args.at else numbers:
            if time.monotonic() > until or worker.process.poll() is not None:
                break
            answers.append({**names, "points": points, **worker.run(kind, at)})
            for reason in answers[-1]["wrong"]:
                print(f"{program} {stage} {kind} {at}: {answers[-1].get('where')}: {reason}", flush=True)
        print(f"{program} {stage} {kind}: {len(answers)} of {points or '?'} points", flush=True)
    finally:
        worker.close()
    return answers


def table(answers: list[dict[str, Any]]) -> str:
    """The outcomes, a line for each program, stage and kind."""
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    for answer in answers:
        rows[answer["program"], answer["stage"], answer["kind"]].append(answer)
    head = f"{'program':<11}{'stage':<8}{'kind':<11}{'points':>8}{'run':>6}{'raised':>8}{'result':>8}{'wrong':>7}"
    lines = [head, "-" * len(head)]
    for (program, stage, kind), found in rows.items():
        ended = collections.Counter(x.get("ended", "wrong") for x in found)
        result = ended.pop("result", 0)
        ended.pop("not reached", 0)
        wrong = sum(bool(x["wrong"]) for x in found)
        points = found[0]["points"] or "?"
        raised = sum(ended.values())
        lines.append(f"{program:<11}{stage:<8}{kind:<11}{points:>8}{len(found):>6}{raised:>8}{result:>8}{wrong:>7}")
    total = sum(bool(x["wrong"]) for x in answers)
    lines += ["", f"{len(answers)} faults, {total} after which something was wrong"]
    for answer in answers:
        for reason in answer["wrong"]:
            name = " ".join(str(answer.get(key)) for key in ("program", "stage", "kind", "at", "where"))
            lines.append(f"  {name}: {reason.splitlines()[0][:160]}")
    return "\n".join(lines) + "\n"


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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch, ThreadPoolExecutor(args.jobs) as pool:
        parts = list(itertools.product(args.program or PROGRAMS, args.stage or STAGES, args.kind or KINDS))
        share = args.seconds * args.jobs / sum(_WEIGHTS[stage] for _, stage, _ in parts)
        found = pool.map(lambda part: run_kind(*part, args, scratch, share * _WEIGHTS[part[1]]), parts)
        answers = [answer for part in found for answer in part]
    text = table(answers)
    print(text, end="")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "fault_injection.txt").write_text(text)
        (args.out / "fault_injection.json").write_text(json.dumps(answers, indent=0) + "\n")
    return int(any(answer["wrong"] for answer in answers))


if __name__ == "__main__":
    sys.exit(main())
