"""Measures the speed of whole models against eager and torch.compile.

    python -m benchmarks.models --suite demo
    python -m benchmarks.models --suite cpu [--threads 1] [--resume]
    python -m benchmarks.models --suite gpu [--mode reduce-overhead]

The suite cpu runs fourteen models in inference, with and without freezing, and in training, in float32 and bfloat16
(`models_cpu`).
The suite gpu runs bfloat16 inference on CUDA; times are wall time of a few calls, from an idle GPU to an idle GPU.
Errors are given against eager's outputs and, like eager's own, against float32 arithmetic on the same weights and
inputs: the norm of the difference in percent of the norm of the outputs.
`--mode` is the mode of torch.compile and of pyframe.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import pyframe

from . import models_cpu
from .harness import MODES, geometric_mean, host_interleaved, in_mode, interleaved, report, systems, with_idle_gpu
from .programs import DEMO, mean_error, relative_error
from .programs_gpu import GPU, on


def compared(
    fn: Callable[..., Any], args: Sequence[Any], warm: int, rounds: int, calls: int
) -> tuple[dict[str, float], float]:
    """Median seconds per call of `fn` run by eager, torch.compile and pyframe, after `warm` calls of the compiled ones,
    and the relative error of pyframe's result against eager's."""
    ours, theirs = pyframe.compile(fn), torch.compile(fn)
    want = fn(*args)
    error = relative_error(ours(*args), want)
    for _ in range(warm):
        ours(*args), theirs(*args)
    return interleaved(systems(fn, args, theirs, ours), rounds=rounds, calls=calls), error


def row(name: str, make: Any, rounds: int) -> dict[str, Any]:
    fn, args = make()
    t, error = compared(fn, args, warm=3, rounds=rounds, calls=3)
    return {
        "model": name,
        "eager ms": t["eager"] * 1e3,
        "torch.compile ms": t["torch.compile"] * 1e3,
        "pyframe ms": t["pyframe"] * 1e3,
        "eager / pyframe": t["eager"] / t["pyframe"],
        "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
        "relative error": error,
    }


def exact(model: torch.nn.Module, args: Sequence[torch.Tensor]) -> Any:
    """The results of float32 arithmetic for the model's weights and inputs."""
    wide = copy.deepcopy(model).float()
    with torch.backends.cudnn.flags(allow_tf32=False):
        return wide(*(x.float() if x.is_floating_point() else x for x in args))


def gpu_row(name: str, make: Callable[[], Any], rounds: int, calls: int, mode: str) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.compiler.reset()
    pyframe.reset()
    model, args = on("cuda", torch.bfloat16, make())
    ours, theirs = pyframe.compile(model, mode=mode), torch.compile(model, mode=mode)
    want, truth = model(*args), exact(model, args)
    before = counts()
    got = ours(*args)
    made = {key: value - before[key] for key, value in counts().items()}
    for _ in range(5):
        last = ours(*args)
        theirs(*args)
    torch.cuda.synchronize()
    got = last  # of a recorded call, in a mode that records
    fns = systems(model, args, theirs, ours)
    t = interleaved({key: with_idle_gpu(fn, calls) for key, fn in fns.items()}, rounds=rounds, calls=1)
    host = host_interleaved(fns, rounds=rounds, calls=1)
    mine, eager = mean_error(got, truth), mean_error(want, truth)
    return {
        "model": name,
        "eager ms": t["eager"] / calls * 1e3,
        "torch.compile ms": t["torch.compile"] / calls * 1e3,
        "pyframe ms": t["pyframe"] / calls * 1e3,
        "eager / pyframe": t["eager"] / t["pyframe"],
        "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
        "torch.compile host ms": host["torch.compile"] * 1e3,
        "pyframe host ms": host["pyframe"] * 1e3,
        **made,
        "% off eager": 100 * mean_error(got, want),
        "% off fp32": 100 * mine,
        "eager % off fp32": 100 * eager,
        "right": mine <= 2 * eager,
    }


def counts() -> dict[str, int]:
    found: Mapping[str, Any] = pyframe.counters
    return {"graphs": found["graphs"], "breaks": sum(found["graph_breaks"].values()), "kernels": found["kernels"]}


def gpu_suite(options: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("the suite gpu needs a GPU")
    names = [name for name in GPU if options.only.lower() in name.lower()]
    rows = [gpu_row(name, GPU[name], options.rounds, options.calls, options.mode) for name in names]
    ratios = [r["torch.compile / pyframe"] for r in rows]
    mean = geometric_mean(ratios)
    report(in_mode("models_gpu", options.mode), rows, geomean_over_torch_compile=mean, calls=options.calls)
    print(f"geometric mean over torch.compile: {mean:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=["demo", "cpu", "gpu"], default="demo")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=5, help="suite gpu: calls between two waits for the GPU")
    parser.add_argument("--only", default="", help="suites cpu and gpu: models whose name contains this")
    parser.add_argument("--mode", choices=MODES, default="default", help="suite gpu: of torch.compile and pyframe")
    parser.add_argument("--modes", nargs="*", choices=["infer", "train"], default=["infer", "train"], help="suite cpu")
    parser.add_argument(
        "--dtypes", nargs="*", choices=["float32", "bfloat16"], default=["float32", "bfloat16"], help="suite cpu"
    )
    parser.add_argument("--threads", type=int, help="suite cpu: by default the number of cores")
    parser.add_argument("--seconds", type=float, default=3.0, help="suite cpu: of timing for each row")
    parser.add_argument("--resume", action="store_true", help="suite cpu: keep the rows there are, and run the others")
    options = parser.parse_args()
    if options.suite == "cpu":
        chosen = options.modes, options.dtypes, options.seconds, options.threads, options.resume
        models_cpu.main(options.only, *chosen)
        return
    with torch.no_grad():
        if options.suite == "gpu":
            gpu_suite(options)
            return
        report("models_demo", [row(name, make, options.rounds) for name, make in DEMO.items()])


if __name__ == "__main__":
    main()
