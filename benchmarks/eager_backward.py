"""Measures training steps whose forward runs eagerly: the backward by eager, by torch's compiled autograd
(`torch._dynamo.compiled_autograd` with torch.compile), and by `pyframe.compiled_autograd`.

    python -m benchmarks.eager_backward

20 blocks of LayerNorm, Linear, GELU, Linear on the CPU with one thread; with hooks, each gradient is clamped by a hook
of its parameter. torch hands out the derivatives of operators once per process, so each system runs in processes of its
own, in turn; the figures are the least of the processes' median passes, in processor time, so that other programs of
the machine do not count. The first pass includes imports and compilation, with empty caches, in seconds that pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .harness import report

SYSTEMS = ("eager", "torch.compile", "pyframe")
BLOCKS, WARM, STEPS, PROCESSES = 20, 5, 60, 2
CASES = {"32 x 64, hooks": (32, 64, True), "256 x 256": (256, 256, False)}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def scope_of(system: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which backward passes are run by a system."""
    if system == "eager":
        return contextlib.nullcontext()
    if system == "pyframe":
        import pyframe

        return pyframe.compiled_autograd()
    from torch._dynamo.compiled_autograd import _enable

    return _enable(torch.compile)


def measured(system: str, case: str) -> dict[str, float]:
    """Seconds of the first backward pass, processor seconds of a later one, and the sum of all gradients' norms."""
    rows, width, hooks = CASES[case]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*[Block(width) for _ in range(BLOCKS)])
    if hooks:
        for p in model.parameters():
            p.register_hook(lambda gradient: gradient.clamp(-1, 1))
    x, times, first = torch.randn(rows, width), [], 0.0
    begin = time.perf_counter()
    with scope_of(system):
        for _ in range(1 + WARM + STEPS):
            model.zero_grad()
            loss = model(x).square().mean()
            start = time.process_time()
            loss.backward()
            times.append(time.process_time() - start)
            first = time.perf_counter() - begin if len(times) == 1 else first
    norms = sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)
    return {"first": first, "later": statistics.median(times[1 + WARM :]), "norms": norms}


def in_process(system: str, case: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        caches = {"PYFRAME_CACHE_DIR": f"{folder}/own", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch"}
        command = [sys.executable, "-m", "benchmarks.eager_backward", "--system", system, "--case", case]
        out = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def row(case: str, run: Callable[[str, str], dict[str, float]] = in_process) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    for _ in range(PROCESSES):
        for system in SYSTEMS:
            found[system].append(run(system, case))
    later = {s: min(each["later"] for each in found[s]) for s in SYSTEMS}
    first = {s: min(each["first"] for each in found[s]) for s in SYSTEMS}
    norms = [found[s][0]["norms"] for s in SYSTEMS]
    return {
        "case": case,
        **{f"{s} ms": later[s] * 1e3 for s in SYSTEMS},
        "pyframe / eager": later["pyframe"] / later["eager"],
        "pyframe / torch.compile": later["pyframe"] / later["torch.compile"],
        **{f"first {s} s": first[s] for s in SYSTEMS[1:]},
        "relative error": max(abs(each / norms[0] - 1) for each in norms),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=SYSTEMS)
    parser.add_argument("--case", choices=CASES)
    chosen = parser.parse_args()
    if chosen.system:
        print(json.dumps(measured(chosen.system, chosen.case)))
    else:
        report("eager_backward", [row(case) for case in CASES])


if __name__ == "__main__":
    main()
