"""A training step (forward, loss, backward, AdamW) of whole models, and the seconds of the first one.

    python -m benchmarks.training

Step times are medians of interleaved runs in one process. The first step is taken in a process of its own with an empty
cache; its clock runs from before the import of the compiler under test to the end of the step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .programs import make_bert, make_gpt, tensors

PROGRAMS = {"gpt": make_gpt, "bert": make_bert}
SYSTEMS = ("torch.compile", "pyframe")


def prepare(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The model in training mode, without dropout so that losses can be compared, and its arguments."""
    model, args = PROGRAMS[name]()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train(), args


def stepper(model: torch.nn.Module, args: tuple[Any, ...], forward: Callable[..., Any]) -> Callable[[], float]:
    """One step as a function that returns the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        out = tensors(forward(*args))[0]
        loss = F.mse_loss(out, torch.zeros_like(out))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def wrapped(system: str, model: torch.nn.Module) -> Callable[..., Any]:
    """The model under one of the systems."""
    if system == "eager":
        return model
    if system == "torch.compile":
        return torch.compile(model)
    import pyframe

    return pyframe.compile(model)


def child(program: str, system: str) -> None:
    model, args = prepare(program)
    stepper(model, args, model)()
    start = time.perf_counter()
    stepper(model, args, wrapped(system, model))()
    print(f"SECONDS {time.perf_counter() - start}")


def first_step(program: str, system: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        command = [sys.executable, "-m", "benchmarks.training", "--child", program, system]
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in out.stdout.splitlines():
        if line.startswith("SECONDS "):
            return float(line.split()[1])
    raise SystemExit(f"{' '.join(command)} failed:\n{out.stdout}\n{out.stderr}")


def row(program: str, rounds: int, firsts: int) -> dict[str, Any]:
    from .harness import interleaved

    steps, losses = {}, {}
    for system in ("eager", *SYSTEMS):
        model, args = prepare(program)
        steps[system] = stepper(model, args, wrapped(system, model))
        losses[system] = [steps[system]() for _ in range(4)]
    t = interleaved(steps, rounds=rounds, calls=1)
    samples: dict[str, list[float]] = {s: [] for s in SYSTEMS}
    for _ in range(firsts):
        for system in SYSTEMS:
            samples[system].append(first_step(program, system))
    first = {s: statistics.median(v) for s, v in samples.items()}
    difference = max(abs(a - b) / abs(a) for a, b in zip(losses["eager"], losses["pyframe"]))
    return {
        "model": program,
        "eager ms": t["eager"] * 1e3,
        "torch.compile ms": t["torch.compile"] * 1e3,
        "pyframe ms": t["pyframe"] * 1e3,
        "eager / pyframe": t["eager"] / t["pyframe"],
        "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
        "first step torch.compile s": first["torch.compile"],
        "first step pyframe s": first["pyframe"],
        "first: pyframe / torch.compile": first["pyframe"] / first["torch.compile"],
        "relative loss difference, 4 steps": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, metavar=("PROGRAM", "SYSTEM"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--firsts", type=int, default=1)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    from .harness import report

    report("training", [row(name, options.rounds, options.firsts) for name in PROGRAMS])


if __name__ == "__main__":
    main()
