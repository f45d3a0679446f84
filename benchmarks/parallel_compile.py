"""Measures first calls of many functions at once, in threads of one process, beside torch.compile.

    python -m benchmarks.parallel_compile

torch.compile compiles one function at a time. Each way runs in a fresh process with empty caches. The jobs are
different functions, half of them training steps, with constants and sizes that make every kernel different. "one at a
time" calls them one after the other in the main thread; "in threads" gives each job a thread, and all threads start
together. The clock runs from before the import of the compiler to the last result; then results and gradients are
compared with eager's: "wrong" counts jobs that differ, "failed" those that raise. `--only` runs some of the ways and
prints only their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WAYS = ("torch.compile, one at a time", "pyframe, one at a time", "pyframe, in threads")
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


class Block(nn.Module):
    def __init__(self, width: int, slope: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.leaky_relu(self.up(self.norm(x)), self.slope))


def attention(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: ((x @ x.transpose(-1, -2)) * scale).softmax(-1) @ x


def statistics(shift: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.cat([(x - shift).square().mean(0), (x + shift).abs().amax(0), x.std(0) * shift])


def chain(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.tanh(x * factor) + x.sigmoid()
        return x.sum(-1)

    return function


Job = tuple[Callable[..., torch.Tensor], torch.Tensor]


def program(kind: int, width: int, number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """One of four kinds of functions of tensors with `width` columns, with this number in it."""
    if kind == 0:
        return Block(width, number).eval()
    return (attention, statistics, chain)[kind - 1](number)


def jobs(count: int) -> list[Job]:
    """Functions and their inputs; those at odd places record gradients."""
    torch.manual_seed(0)
    made: list[Job] = []
    for i in range(count):
        size, number = 8 + 2 * i, 0.25 + 0.5**4 * i
        made.append((program(i // 2 % 4, size, number), torch.randn(16, size, requires_grad=bool(i % 2))))
    return made


def result(call: Callable[..., torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """The result of a job: its output, and for a training step the gradient of the input."""
    if not x.requires_grad:
        with torch.no_grad():
            return [call(x)]
    out = call(x)
    return [out, *torch.autograd.grad(out.square().sum(), x)]


def is_wrong(job: Job, got: list[torch.Tensor]) -> bool:
    return not all(torch.allclose(a, b, **TOLERANCE) for a, b in zip(got, result(*job), strict=True))


def child(way: str, count: int) -> None:
    """Runs one way and prints its figures."""
    work = jobs(count)
    for job in work:
        result(*job)  # eager's own first calls
    found: dict[int, list[torch.Tensor]] = {}
    failures: list[str] = []

    def run(i: int, compile: Callable[..., Any], go: threading.Barrier | None = None) -> None:
        function, x = work[i]
        if go is not None:
            go.wait()
        try:
            found[i] = result(compile(function), x)
        except Exception as error:
            failures.append(f"job {i}: {type(error).__name__}: {error}")

    start = time.perf_counter()
    if way.startswith("pyframe"):
        import pyframe

        compile: Callable[..., Any] = pyframe.compile
    else:
        compile = torch.compile
    if way.endswith("threads"):
        go = threading.Barrier(count)
        threads = [threading.Thread(target=run, args=(i, compile, go)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for i in range(count):
            run(i, compile)
    seconds = time.perf_counter() - start
    wrong = sum(is_wrong(work[i], got) for i, got in found.items())
    print("RESULT " + json.dumps({"seconds": seconds, "wrong": wrong, "failed": len(failures)}))
    print("\n".join(failures[:3]), file=sys.stderr)


def measured(way: str, count: int) -> dict[str, Any]:
    """The figures of one way."""
    with tempfile.TemporaryDirectory() as cache:
        folders = {"PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        line = [sys.executable, "-m", "benchmarks.parallel_compile", "--child", way, "--jobs", str(count)]
        out = subprocess.run(line, env={**os.environ, **folders}, capture_output=True, text=True, check=False)
    for text in out.stdout.splitlines():
        if text.startswith("RESULT "):
            return dict(json.loads(text.removeprefix("RESULT ")))
    raise SystemExit(f"{' '.join(line)} failed:\n{out.stdout}\n{out.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--child", metavar="WAY")
    parser.add_argument("--only", action="append", choices=WAYS, help="run this way alone and write no file")
    parser.add_argument("--jobs", type=int, default=32)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.jobs)
        return
    from .harness import report, table

    rows: list[dict[str, Any]] = []
    for way in options.only or WAYS:
        figures = measured(way, options.jobs)
        ratio = figures["seconds"] / rows[0]["seconds"] if rows else 1.0
        rows.append({
            "way": way, "functions": options.jobs, "seconds": figures["seconds"],
            "per second": options.jobs / figures["seconds"], "seconds / first row": ratio,
            "wrong": figures["wrong"], "failed": figures["failed"],
        })  # fmt: skip
    if options.only:
        print(table(rows))
    else:
        report("parallel_compile", rows)


if __name__ == "__main__":
    main()
