"""Compares eager, torch.compile and pyframe on many models, in inference and in training.

    python -m benchmarks.zoo --workers 15 --budget 300                          # inference, batch 1 and a large batch
    python -m benchmarks.zoo --train --workers 15 --budget 220                  # training, one batch
    python -m benchmarks.zoo --mode reduce-overhead --only bert llama --resume  # adds to the results of that mode
    python -m benchmarks.zoo --device cpu --small --only bert                   # small sizes, as a test
    python -m benchmarks.zoo --train --join part0 part1                         # one table of folders of results

On CUDA inference is in bfloat16 without gradients, and training under autocast to bfloat16 with parameters in float32;
on the CPU both are in float32. A training step is forward, loss and backward; gradients are freed after it, and there
is no optimizer. `--mode` is the mode of torch.compile and of pyframe.

Each row is one model with one batch, in a process of its own. First, `--workers` of these at a time make their model,
check it and make the first calls of both compilers with empty caches, so first calls are measured while other rows use
the machine. "right" is judged as in `benchmarks.accuracy`: outputs or the loss, all gradients and buffers against
eager in float32 on the same device (in float64 for float32). When all rows are ready, they are timed one after the
other, while the other processes wait: the median GPU time of a call, the three systems in turn, with flushed caches and
a queue that is not empty (`harness.gpu_interleaved`); "wall" ratios are of the time of a few calls from an idle GPU to
an idle GPU, which includes the time of the host. Peak memory is what weights, inputs and a call need, in MB; it is not
given for modes that record CUDA graphs, whose memory is not counted per call.

Compiled graphs are compared here, so pyframe does not replace them by ATen where that is faster (`measure` is off).

A row in which pyframe is not right, or not every system was timed, does not count in the means. Results are written
after each row; `--resume` keeps the rows there are and runs the others.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import torch

from pyframe.metrics import counters

from .accuracy import GOOD, in_a_fork, preload
from .accuracy_compare import CALLS, Job, Setting, judge, prepared, reference_of, run
from .harness import (
    MODES,
    RESULTS,
    compiled_by,
    geometric_mean,
    gpu_interleaved,
    in_mode,
    interleaved,
    machine,
    with_idle_gpu,
    write_results,
)
from .programs_zoo import ZOO

SYSTEMS = ("eager", "torch.compile", "pyframe")
COMPILERS = ("pyframe", "torch.compile")
DTYPES = {"cpu": {"infer": "float32", "train": "float32"}, "cuda": {"infer": "bfloat16", "train": "autocast"}}
CALLS_RECORDED = 6  # in modes that record CUDA graphs: by then calls are replayed
PREPARING = 0.6  # of the time budget may be spent on first calls
WARM = 3  # calls of each system before it is timed
WALL_CALLS = 5  # between two waits for the GPU
ROUNDS = (5, 200)  # of the three systems, at least and at most
UNLIMITED = 1e6  # seconds
SMALL_BATCH = 2  # instead of the large ones, with `--small`


@dataclass(frozen=True)
class Case:
    """One row: a model and a batch, in "infer" or "train" mode."""

    model: str
    batch: int
    mode: str
    small: bool

    @property
    def title(self) -> str:
        return f"{self.model}, {self.batch}{ZOO[self.model].shape}{' (small)' * self.small}"

    def make(self, device: str) -> tuple[torch.nn.Module, dict[str, Any]]:
        """The model and its keyword arguments, made on the device; the same ones in each call."""
        torch.manual_seed(0)
        model = ZOO[self.model]
        makes = model.make if self.mode == "infer" else model.loss
        assert makes is not None, f"{self.model} is not trained"
        with torch.device(device):
            return makes(self.batch, **(model.small if self.small else {}))


@dataclass
class Row:
    """What is measured of a case: times by system in seconds, memory in bytes."""

    case: Case
    status: str = "not run"
    detail: str = ""
    graphs: int = 0
    breaks: int = 0
    right: dict[str, str] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    time: dict[str, float] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        return self.right.get("pyframe") in GOOD and len(self.time) == len(SYSTEMS)

    def ratio(self, system: str, wall: bool = False) -> float:
        """The time of a system over that of pyframe."""
        times = self.wall if wall else self.time
        return times[system] / times["pyframe"]

    def cells(self) -> dict[str, Any]:
        timed = len(self.time) == len(SYSTEMS)
        return {
            "model": self.case.title,
            **{f"{system} ms": self.time[system] * 1e3 if system in self.time else "-" for system in SYSTEMS},
            **{f"{system} / pyframe": self.ratio(system) if timed else "-" for system in SYSTEMS[:2]},
            **{f"wall {system} / pyframe": self.ratio(system, wall=True) if timed else "-" for system in SYSTEMS[:2]},
            **{f"first {system} s": self.first.get(system, "-") for system in SYSTEMS[1:]},
            **{f"peak {system} MB": self.peak[system] / 1e6 if system in self.peak else "-" for system in SYSTEMS},
            "graphs": self.graphs,
            "breaks": self.breaks,
            "right": self.right.get("pyframe", self.status),
            "torch.compile right": self.right.get("torch.compile", "-"),
            "detail": " ".join(self.detail.split())[:200],
        }


# ---- in the process of a row


@dataclass
class Measured:
    """A system that runs a model of its own: `call(**setting.inputs)`; `held`: bytes of the model, its inputs and what
    the compiler keeps."""

    setting: Setting
    call: Callable[..., Any]
    held: int

    def step(self) -> Any:
        """One call that is timed: inference, or forward, loss and backward."""
        job = self.setting.job
        with torch.set_grad_enabled(job.train):
            with torch.autocast(job.device, torch.bfloat16, enabled=self.setting.autocast):
                out = self.call(**self.setting.inputs)
            if job.train:
                out.backward()
                self.setting.model.zero_grad(set_to_none=True)
        return None if job.train else out

    def peak(self) -> int:
        """The bytes that a call needs, with what is held before it."""
        before = allocated()
        torch.cuda.reset_peak_memory_stats()
        self.step()
        torch.cuda.synchronize()
        return self.held + torch.cuda.max_memory_allocated() - before


def allocated() -> int:
    """The bytes of tensors on the GPU; 0 without one."""
    if not torch.cuda.is_initialized():
        return 0
    gc.collect()
    return torch.cuda.memory_allocated()


def prepare(case: Case, device: str, mode: str) -> tuple[Row, dict[str, Measured]]:
    """The row without its times, and the systems that have made their first calls."""
    calls = CALLS if mode in ("default", "max-autotune-no-cudagraphs") else CALLS_RECORDED
    job = Job(case.model, device, DTYPES[device][case.mode], case.mode, calls, accumulate=False, reference=device)
    made = lambda: case.make(device)  # noqa: E731  the signature that `accuracy_compare` calls
    torch.backends.cudnn.allow_tf32 = False  # in the reference
    setting = prepared(job, made, keep_dropout=False)
    start = allocated()
    plain = setting.copy()
    systems = {"eager": Measured(plain, plain.model, allocated() - start)}
    want, _ = run(plain, plain.model)
    reference, note = reference_of(job, made)
    row = Row(case, status="ready", detail=note)
    for system in COMPILERS:
        start = allocated()
        own = setting.copy()
        compiled = compiled_by(system, own.model, mode)
        try:
            found = judge(own, made, compiled, want, reference)
        except Exception as error:  # noqa: BLE001  reported as the row's result
            row.right[system] = "error"
            row.detail += f" {system}: {type(error).__name__}: {error}"
            continue
        own.model.zero_grad(set_to_none=True)
        row.right[system], row.first[system] = found["status"], found["first_seconds"]
        row.detail += f" {system}: {found['detail']}" * bool(found["detail"])
        systems[system] = Measured(own, compiled, allocated() - start)
    row.graphs, row.breaks = counters["graphs"], sum(counters["graph_breaks"].values())
    plain.model.zero_grad(set_to_none=True)
    del want, reference, setting
    for name, system in systems.items():
        system.step()
        if device == "cuda" and calls == CALLS:
            row.peak[name] = system.peak()
    if device == "cuda":
        torch.cuda.empty_cache()
    return row, systems


def timed(
    systems: dict[str, Measured], device: str, seconds: float, warm: int = WARM
) -> tuple[dict[str, float], dict[str, float]]:
    """The median seconds of a call by system: of the GPU, and of the wall clock. Takes about `seconds` after `warm`
    calls of pyframe, and a few of the others."""
    variants = {name: systems[name].step for name in SYSTEMS}
    for name, step in variants.items():
        for _ in range(warm if name == "pyframe" else WARM):
            step()

    def rounds(measure: Callable[[int], Any], part: float) -> int:
        start = time.perf_counter()
        measure(1)
        return int(min(max(part * seconds / (time.perf_counter() - start), ROUNDS[0]), ROUNDS[1]))

    if device == "cpu":

        def on_cpu(rounds: int) -> dict[str, float]:
            return interleaved(variants, rounds, calls=1)

        found = on_cpu(rounds(on_cpu, 1.0))
        return found, found
    torch.cuda.synchronize()
    several = {name: with_idle_gpu(step, WALL_CALLS) for name, step in variants.items()}

    def on_gpu(rounds: int) -> dict[str, float]:
        return gpu_interleaved(variants, rounds)

    def wall(rounds: int) -> dict[str, float]:
        return {name: s / WALL_CALLS for name, s in interleaved(several, rounds, calls=1).items()}

    on_gpu(1)
    return on_gpu(rounds(on_gpu, 0.6)), wall(rounds(wall, 0.4))


def child(case: Case, options: argparse.Namespace, cache: str, pipe: connection.Connection) -> None:
    """Sends the row without times, waits for the seconds that timing may take, and sends the times."""
    os.setsid()
    os.environ["PYFRAME_MEASURE"] = str(int(options.warm > WARM))
    os.environ |= {"PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    torch.set_num_threads(options.threads)
    try:
        row, systems = prepare(case, options.device, options.mode)
    except Exception as error:  # noqa: BLE001  reported as the row's result
        pipe.send(Row(case, status="error", detail=f"{type(error).__name__}: {error}"))
        return
    pipe.send(row)
    if len(systems) < len(SYSTEMS):
        return
    pipe.send(timed(systems, options.device, pipe.recv(), options.warm))


# ---- in the parent


@dataclass
class Running:
    """The process of a row."""

    case: Case
    process: Any
    pipe: connection.Connection
    row: Row | None = None

    def stop(self) -> None:
        """Ends the process and those that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.kill()
        self.process.join()
        self.pipe.close()

    def receive(self, seconds: float) -> Any:
        """What the process sends, or None if it ends or sends nothing in time."""
        if not self.pipe.poll(max(0.0, seconds)):
            return None
        try:
            return self.pipe.recv()
        except EOFError:
            return None


def start(case: Case, options: argparse.Namespace, cache: str) -> Running:
    """Starts the process of a row as a fork of this one, which has imported the libraries and run nothing."""
    fork = get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=child, args=(case, options, cache, theirs))
    process.start()
    theirs.close()
    return Running(case, process, ours)


class Results:
    """The rows by title, written to files after each."""

    case_type = Case

    def __init__(self, name: str, folder: Path, resume: bool) -> None:
        self.name, self.folder = name, folder
        self.machine = in_a_fork(machine)  # asking it here would initialize CUDA, which no fork could use then
        path = folder / f"{name}.json"
        self.rows: dict[str, Row] = {}
        if resume and path.exists():
            self.take(json.loads(path.read_text())["measured"])

    def take(self, measured: Sequence[dict[str, Any]]) -> None:
        """Adds rows that were written to a file."""
        for known in measured:
            row = Row(**{**known, "case": self.case_type(**known["case"])})
            self.rows[row.case.title] = row

    def join(self, folders: Sequence[Path]) -> None:
        """Adds the rows of parts that were measured apart, on machines of one kind."""
        for folder in folders:
            known = json.loads((folder / f"{self.name}.json").read_text())
            self.machine = known["machine"]
            self.take(known["measured"])

    def add(self, row: Row) -> None:
        self.rows[row.case.title] = row
        self.write()

    def write(self) -> str:
        """Writes the files; returns the text."""
        rows = list(self.rows.values())
        extra = {"summary": summary(rows), "measured": [asdict(row) for row in rows]}
        return write_results(self.name, [row.cells() for row in rows], self.folder, self.machine, **extra)


def summary(rows: Sequence[Row]) -> list[str]:
    """The geometric means over the rows that count, and the models that are slower."""
    counted = [row for row in rows if row.counts]
    lines = [f"{len(rows)} rows, of which {len(counted)} count"]
    for system in SYSTEMS[:2]:
        if counted:
            mean, wall = (geometric_mean([row.ratio(system, wall=w) for row in counted]) for w in (False, True))
            lines.append(f"{system} / pyframe: geometric mean {mean:.2f}, of wall time {wall:.2f}")
        slower = [f"{row.case.title} ({row.ratio(system):.2f})" for row in counted if row.ratio(system) < 1]
        lines.append(f"slower than {system}: {len(slower)}{': ' * bool(slower)}{'; '.join(slower)}")
    both = [row for row in counted if min(row.peak.values(), default=0)]
    if both:
        peak = geometric_mean([row.peak["torch.compile"] / row.peak["pyframe"] for row in both])
        lines.append(f"peak memory, torch.compile / pyframe: geometric mean {peak:.2f}")
    lines += [f"not counted: {row.case.title}: {row.right or row.status}" for row in rows if not row.counts]
    return lines


def first_calls(
    cases: Sequence[Case], options: argparse.Namespace, cache: str, end: float, started: list[Running]
) -> None:
    """Starts the processes of all rows, `--workers` at a time, until they are ready or the time is over, and appends
    them to `started`."""
    waiting, busy = list(cases), list[Running]()
    while (waiting or busy) and time.monotonic() < end:
        while waiting and len(busy) < options.workers:
            busy.append(start(waiting.pop(0), options, cache))
            started.append(busy[-1])
        for pipe in connection.wait([r.pipe for r in busy], max(0.0, end - time.monotonic())):
            each = next(r for r in busy if r.pipe is pipe)
            busy.remove(each)
            each.row = each.receive(0) or Row(each.case, status="crash")
    for each in busy:
        each.row = Row(each.case, status="first calls took too long")


def measure(cases: Sequence[Case], options: argparse.Namespace, results: Results) -> None:
    """Runs the rows and adds them to the results."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zoo", ignore_cleanup_errors=True) as cache:
        ready: list[Running] = []
        try:
            first_calls(cases, options, cache, begun + (PREPARING * options.budget or UNLIMITED), ready)
            able = [r for r in ready if r.row and len(r.row.first) == len(COMPILERS)]
            for each in ready:
                if each not in able:
                    each.stop()
                    results.add(each.row or Row(each.case))
            end = begun + (options.budget or UNLIMITED)
            for k, each in enumerate(able):
                seconds = min(options.seconds, max(1.0, (end - time.monotonic()) / (len(able) - k)))
                time_one(each, seconds, end, results)
        finally:
            for each in ready:
                if each.process.is_alive():
                    each.stop()


def time_one(each: Running, seconds: float, end: float, results: Results) -> None:
    """Times a row that is ready, and adds it to the results."""
    row = each.row
    assert row is not None
    if time.monotonic() < end:
        each.pipe.send(seconds)
        found = each.receive(10 * seconds + 30)
        if found is None:
            row.status = "crash in timing"
        else:
            row.status = "timed"
            row.time, row.wall = found
    else:
        row.status = "not timed in the budget"
    each.stop()
    results.add(row)


def selected(options: argparse.Namespace) -> list[Case]:
    """The rows asked for: all models with the large batch, then all with a batch of 1."""
    mode = "train" if options.train else "infer"
    cases = []
    for name, model in ZOO.items():
        if options.only and not any(o.lower() in name.lower() for o in options.only):
            continue
        if model.package is not None and importlib.util.find_spec(model.package) is None:
            continue
        if options.train:
            batches = [model.trained] if model.loss is not None else []
        else:
            batches = [max(model.batches), min(model.batches)]
        if options.small:
            batches = [min(batch, SMALL_BATCH) for batch in batches]
        if options.large_batch:
            batches = batches[:1]
        cases += [Case(name, batch, mode, options.small) for batch in batches]
    return sorted(cases, key=lambda case: case.batch == 1)


def with_measuring_options(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, seconds: float
) -> argparse.Namespace:
    """The options of a benchmark that measures rows as this one does. Sets the number of compiler threads of each row.
    `seconds`: of timing per row, by default."""
    parser.add_argument("--workers", type=int, default=1, help="rows at a time that make their first calls")
    parser.add_argument("--threads", type=int, default=0, help="of each row (by default the cores over the workers)")
    parser.add_argument("--seconds", type=float, default=seconds, help="of timing per row")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds for all; what is left then is not run")
    parser.add_argument("--resume", action="store_true", help="keep the rows there are, and run the others")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--join", nargs="*", type=Path, default=[], help="folders of parts; measures nothing")
    options = parser.parse_args(arguments)
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.workers)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(options.threads)  # of each process, as pyframe's
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--train", action="store_true", help="training instead of inference")
    parser.add_argument("--mode", choices=MODES, default="default", help="of torch.compile and pyframe")
    parser.add_argument("--small", action="store_true", help="small models, which run anywhere")
    parser.add_argument("--only", nargs="*", default=[], help="models whose name contains one of these")
    parser.add_argument("--large-batch", action="store_true", help="not the rows with a batch of 1")
    options = with_measuring_options(parser, arguments, seconds=6.0)
    options.warm = WARM
    what = "training" if options.train else "inference"
    name = in_mode(f"zoo_{options.device}_{what}{'_small' * options.small}", options.mode)
    results = Results(name, options.output, options.resume)
    results.join(options.join)
    if not options.join:
        preload()
        cases = [c for c in selected(options) if not (c.title in results.rows and results.rows[c.title].counts)]
        measure(cases, options, results)
    print(results.write())


if __name__ == "__main__":
    main()
