"""Measures the first call in a fresh process, in seconds, with a cold and a warm cache.

    python -m benchmarks.compile_time [--programs small convnets layers] [--without-peer] [--frame-cache]

The clock runs from before the import of the compiler to the end of the first call, or of the first backward if the
program trains; `import torch`, the libraries of models and the construction of the model come before it for all
compilers. "CPU s" is the processor time of the process and of child processes that have ended; it hardly depends on
other work on the machine. torch.compile's pool of compile workers does not end and is not included. Python may write
the bytecode of this project's files beside them, as that of an installed package is; torch's is there already.

The groups: "small", a trivial function and BERT; "convnets", convolutional networks of 50 to 150 layers, which train on
images of 64 by 64; "layers", a GPT of 6 and of 24 layers, whose time should hardly grow, since the layers are equal.
With --frame-cache captures are kept on disk, as by default; without it a warm first call traces.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .large_graphs import processor_seconds

SYSTEMS = ("torch.compile", "pyframe")
CONVNETS = ("resnet50", "resnet101", "resnet152", "densenet121", "efficientnet_b0", "regnety_032")
LAYERS = (6, 24)
TRAINING = ", training"
GROUPS = {
    "small": ("trivial", "bert"),
    "convnets": tuple(f"{name}{TRAINING}" for name in CONVNETS),
    "layers": tuple(f"gpt of {n} layers{mode}" for mode in ("", TRAINING) for n in LAYERS),
}


def make_program(program: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function or module of a program of GROUPS, and its arguments."""
    import torch

    from .programs import GPT, make_bert
    from .programs_gpu import make_timm

    name = program.removesuffix(TRAINING)
    if name == "bert":
        return make_bert()
    if name in CONVNETS:
        return make_timm(name, batch=2, side=64)
    if name.startswith("gpt"):
        return GPT(layers=int(name.split()[2]), d=64, heads=4), (torch.randint(0, 512, (2, 64)),)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    return fn, (torch.randn(4),)


def child(program: str, system: str) -> None:
    import torch

    fn, args = make_program(program)
    trains = program.endswith(TRAINING)

    def call(run: Callable[..., Any]) -> None:
        result = run(*args)
        if trains:
            result.sum().backward()

    with contextlib.nullcontext() if trains else torch.no_grad():
        call(fn)
        start, used = time.perf_counter(), processor_seconds()
        if system == "pyframe":
            import pyframe

            call(pyframe.compile(fn))
        else:
            call(torch.compile(fn))
        print(f"SECONDS {time.perf_counter() - start} {processor_seconds() - used}")


def first_call(program: str, system: str, cache: str) -> tuple[float, float]:
    """Wall and processor seconds in a new process."""
    env = {**os.environ, "PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "benchmarks.compile_time", "--child", program, system]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in out.stdout.splitlines():
        if line.startswith("SECONDS "):
            wall, used = map(float, line.split()[1:])
            return wall, used
    raise SystemExit(f"{' '.join(command)} failed:\n{out.stdout}\n{out.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=2, metavar=("PROGRAM", "SYSTEM"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="+", choices=GROUPS, default=["small"], metavar="GROUP")
    parser.add_argument("--frame-cache", action="store_true", help="captures are kept on disk, as by default")
    parser.add_argument("--without-peer", action="store_true", help="do not run torch.compile")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    from .harness import report

    os.environ["PYFRAME_FRAME_CACHE"] = "on" if options.frame_cache else "off"
    systems = SYSTEMS[1:] if options.without_peer else SYSTEMS
    rows = [row for group in options.programs for name in GROUPS[group] for row in measure(name, systems, options)]
    groups = [group for group in options.programs if group != "small"]
    report("_".join(["compile_time", *groups, *(["frame_cache"] * options.frame_cache)]), rows)


def measure(program: str, systems: tuple[str, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two rows: with a cold and with a warm cache."""
    cold: dict[str, list[tuple[float, float]]] = {s: [] for s in systems}
    warm: dict[str, list[tuple[float, float]]] = {s: [] for s in systems}
    for _ in range(options.rounds):
        for system in systems:
            with tempfile.TemporaryDirectory() as cache:
                cold[system].append(first_call(program, system, cache))
                warm[system].append(first_call(program, system, cache))
    rows = []
    for label, samples in (("cold", cold), ("warm", warm)):
        row: dict[str, Any] = {"program": program, "cache": label}
        for name, k in (("s", 0), ("CPU s", 1)):
            taken = {system: statistics.median(each[k] for each in samples[system]) for system in systems}
            row |= {f"{system} {name}": seconds for system, seconds in taken.items()}
            if len(systems) > 1:
                row[f"pyframe / torch.compile, {name}"] = taken["pyframe"] / taken["torch.compile"]
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
