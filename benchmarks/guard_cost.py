"""Measures the time from a call to its first kernel as a model grows: the guards, and passing the inputs to the graph.

    python -m benchmarks.guard_cost

The model is Hugging Face's Llama from a config (width 32), with 4, 16 and 64 layers; both compilers capture it as one
graph. The backend is the same for both: its compiled function raises `Reached` at once, so a call ends where the first
kernel would start. The measured time includes raising and catching that exception (the row "exception alone").
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import pyframe

from .harness import report

LAYERS = (4, 16, 64)


class Reached(BaseException):
    """Raised when the compiled graph is called. It is not an Exception, because a frame that handles exceptions would
    run again after one."""


def stop(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose graphs only raise Reached."""

    def compiled(*inputs: Any) -> Any:
        raise Reached

    return compiled


def llama(layers: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    return LlamaModel(config).eval()


def until_kernel(fn: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def call() -> None:
        try:
            fn(*args)
        except Reached:
            return
        raise AssertionError("the graph was not called")

    return call


def _raise() -> None:
    raise Reached


def measure(side: str, layers: int, calls: int) -> float:
    """Microseconds of this thread's CPU in a call until the graph, for one compiler."""
    ids = torch.arange(16).reshape(1, 16)
    compile = {"pyframe": pyframe.compile, "torch.compile": torch.compile}[side] if side != "exception" else None
    fn = until_kernel(compile(llama(layers), backend=stop, fullgraph=True), ids) if compile else until_kernel(_raise)
    for _ in range(10):
        fn()
    taken = []
    for _ in range(31):
        start = time.thread_time()
        for _ in range(calls):
            fn()
        taken.append((time.thread_time() - start) / calls)
    return statistics.median(taken) * 1e6


def in_process(side: str, layers: int, calls: int) -> float:
    """`measure` in a process of its own: torch.compile patches nn.Module for the whole process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.guard_cost", "--calls", str(calls)]
    done = subprocess.run(
        [*command, "--side", side, "--layers", str(layers)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def row(layers: int, calls: int, processes: int) -> dict[str, Any]:
    sides = ("torch.compile", "pyframe", "exception")
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(processes):
        for side in sides:
            taken[side].append(in_process(side, layers, calls))
    t = {side: statistics.median(values) for side, values in taken.items()}
    return {
        "layers": layers,
        "torch.compile us": t["torch.compile"],
        "pyframe us": t["pyframe"],
        "exception alone us": t["exception"],
        "pyframe / torch.compile": t["pyframe"] / t["torch.compile"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20, help="calls in each of 31 rounds")
    parser.add_argument("--processes", type=int, default=3, help="processes for each figure")
    parser.add_argument("--side", choices=("pyframe", "torch.compile", "exception"))
    parser.add_argument("--layers", type=int)
    given = parser.parse_args()
    if given.side:
        with torch.no_grad():
            print(measure(given.side, given.layers, given.calls))
        return
    rows = [row(layers, given.calls, given.processes) for layers in LAYERS]
    for each in rows:
        each["pyframe / 4 layers"] = each["pyframe us"] / rows[0]["pyframe us"]
    report("guard_cost", rows)


if __name__ == "__main__":
    main()
