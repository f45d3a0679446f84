"""Measures a training step (forward, loss, backward, AdamW) of whole models, and the time of the first step.

    python -m benchmarks.training                  # small models on the CPU, in float32
    python -m benchmarks.training --device cuda    # usual sizes, autocast to bfloat16, parameters in float32
    python -m benchmarks.training --device cuda --program bert
    python -m benchmarks.training --device cuda --program gpt --profile    # the GPU time of a step by kernel
    python -m benchmarks.training --device cuda --mode reduce-overhead     # of torch.compile and pyframe
    python -m benchmarks.training --tiny           # the programs of `--device cuda` at small sizes, as a test

Every gradient is checked: its error against float64 (float32 under autocast) may be three times eager's own, or the
tolerance; otherwise the benchmark fails. Step times are medians of interleaved runs in one process. The first step,
peak memory and losses of each system are measured in a process of its own, whose clock starts before the import of the
compiler, with an empty cache, after one eager step. The process that measures step times uses the caches that those
processes filled, so its first steps are the warm ones.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .harness import compiled_by, in_mode, interleaved, report, table
from .programs import make_bert, make_gpt, tensors

SYSTEMS = ("eager", "torch.compile", "pyframe")
STEPS = 4  # after the first, of which the memory is measured
MAX_KERNELS = 45  # that a profile lists
CHECKED_STEP = 6  # whose gradients are checked, in a mode that records CUDA graphs: by then steps are replayed


Gradients = dict[str, torch.Tensor | None]
MAX_WORSE = 3.0  # times eager's error
SMALLEST_PART = 1e-3  # of the largest gradient, by which one is measured at least
GRADIENT_TOLERANCE = {False: 1e-5, True: 1.6e-2}  # in float32, and under autocast to bfloat16


@dataclass(frozen=True)
class Setting:
    """Where and how the programs are run; `tiny`: the GPU programs at small sizes; `mode`: of both compilers."""

    device: str
    tiny: bool
    mode: str = "default"

    @property
    def large(self) -> bool:
        return self.device == "cuda" or self.tiny

    @property
    def arguments(self) -> list[str]:
        return ["--device", self.device, "--mode", self.mode, *["--tiny"] * self.tiny]

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


class SmallLoss(torch.nn.Module):
    """The mean square of a model's first result."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.model = forward

    def forward(self, *args: Any) -> torch.Tensor:
        out = tensors(self.model(*args))[0]
        return F.mse_loss(out, torch.zeros_like(out))


def prepare(name: str, setting: Setting) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module of the loss in training mode, without dropout so that losses can be compared, and its arguments."""
    torch.manual_seed(0)
    if setting.large:
        from .programs_training import GPU

        program = GPU[name]
        model, args = program.make(**(program.tiny if setting.tiny else {}))
    else:
        model, args = {"gpt": make_gpt, "bert": make_bert}[name]()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train().to(setting.device), tuple(x.to(setting.device) for x in args)


def stepper(model: torch.nn.Module, args: tuple[Any, ...], setting: Setting, system: str) -> Callable[[], torch.Tensor]:
    """One step under a system, as a function that returns the loss."""
    call = compiled_by(system, model, setting.mode)
    loss_of = call if setting.large else SmallLoss(call)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=setting.large or None)

    def step() -> torch.Tensor:
        with torch.autocast(setting.device, torch.bfloat16, enabled=setting.large):
            loss = loss_of(*args)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def gradients(model: torch.nn.Module, args: tuple[Any, ...], setting: Setting, call: Callable[..., Any]) -> Gradients:
    """The gradients of all parameters, by name, after one forward and backward."""
    model.zero_grad(set_to_none=True)
    loss_of = call if setting.large else SmallLoss(call)
    with torch.autocast(setting.device, torch.bfloat16, enabled=setting.large):
        loss = loss_of(*args)
    loss.backward()
    return {name: None if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()}


def check_gradients(name: str, systems: tuple[str, ...], setting: Setting) -> dict[str, float]:
    """The largest error of a gradient over eager's own error (or the tolerance, where that is larger), by system.

    Errors are root mean squares against gradients in float64 (in float32 under autocast), relative to the gradient,
    or to a thousandth of the largest one where the gradient is smaller than that."""
    model, args = prepare(name, setting)
    wide = torch.float32 if setting.large else torch.float64
    exact_model = copy.deepcopy(model).to(wide)
    with torch.autocast(setting.device, enabled=False):
        exact_model.zero_grad(set_to_none=True)
        loss_of = exact_model if setting.large else SmallLoss(exact_model)
        loss_of(*(x.to(wide) if x.is_floating_point() else x for x in args)).backward()
    exact = {n: None if p.grad is None else p.grad.double() for n, p in exact_model.named_parameters()}
    del exact_model
    eager = gradients(model, args, setting, model)
    largest = max(float(x.square().mean().sqrt()) for x in exact.values() if x is not None)
    found = {}
    for system in systems:
        twin = copy.deepcopy(model)
        call = compiled_by(system, twin, setting.mode)
        for _ in range(1 if setting.mode == "default" else CHECKED_STEP):
            got = gradients(twin, args, setting, call)
        found[system] = max(_over_eager(got[key], eager[key], want, largest, setting) for key, want in exact.items())
        if system == "pyframe" and not found[system] <= MAX_WORSE:
            raise SystemExit(f"{name}: a gradient is wrong: its error is {found[system]:.3g} times eager's")
    return found


def _over_eager(
    mine: torch.Tensor | None, theirs: torch.Tensor | None, want: torch.Tensor | None, largest: float, setting: Setting
) -> float:
    """The ratio of a gradient's error to eager's error or the tolerance; infinite if only one of the gradients
    exists."""
    if want is None or mine is None or theirs is None:
        return 0.0 if want is None and mine is None and theirs is None else float("inf")
    scale = max(float(want.square().mean().sqrt()), SMALLEST_PART * largest)
    error, own = (float((x.double() - want).square().mean().sqrt()) / scale for x in (mine, theirs))
    return error / max(own, GRADIENT_TOLERANCE[setting.large]) if error == error else float("inf")


def child(name: str, system: str, setting: Setting) -> None:
    """Prints the measurements that are made in a process of their own."""
    model, args = prepare(name, setting)
    stepper(model, args, setting, "eager")().item()
    start = time.perf_counter()
    step = stepper(model, args, setting, system)
    losses = [step().item()]
    setting.synchronize()
    found: dict[str, Any] = {"first": time.perf_counter() - start}
    if setting.device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    losses += [step().item() for _ in range(STEPS)]
    if setting.device == "cuda":
        found["peak"] = torch.cuda.max_memory_allocated() / 1e6
    print("FOUND", json.dumps({**found, "losses": losses}))


def profile(name: str, system: str, setting: Setting) -> None:
    """Prints the GPU time of a step by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    step = stepper(*prepare(name, setting), setting, system)
    for _ in range(3):
        step().item()
    with recorded(activities=[ProfilerActivity.CUDA]) as result:
        for _ in range(STEPS):
            step()
        setting.synchronize()
    kernels = sorted(result.key_averages(), key=lambda k: -k.device_time_total)
    total = sum(k.device_time_total for k in kernels)
    print(f"== {_title(name, setting)} {system}: {total / STEPS / 1e3:.2f} ms of the GPU a step")
    for kernel in kernels[:MAX_KERNELS]:
        print(f"{kernel.device_time_total / STEPS:9.1f} us {kernel.count / STEPS:6.1f}x  {kernel.key[:110]}")


def measured(name: str, system: str, setting: Setting) -> dict[str, Any]:
    """The measurements of `child`, run in a new process."""
    command = [sys.executable, "-m", "benchmarks.training", "--child", name, system, *setting.arguments]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in out.stdout.splitlines():
        if line.startswith("FOUND "):
            return json.loads(line.removeprefix("FOUND "))
    raise SystemExit(f"{' '.join(command)} failed:\n{out.stdout}\n{out.stderr}")


def step_times(name: str, setting: Setting, rounds: int, calls: int) -> tuple[dict[str, float], dict[str, float]]:
    """The median seconds of a step of each system, and the seconds of its first step with a filled cache."""
    made, args = prepare(name, setting)
    steps: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    for system in SYSTEMS:
        model = copy.deepcopy(made)
        start = time.perf_counter()
        steps[system] = stepper(model, args, setting, system)
        steps[system]().item()
        first[system] = time.perf_counter() - start
        for _ in range(2):
            steps[system]().item()

    def several(step: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(calls):
                step()
            setting.synchronize()

        return run

    times = interleaved({system: several(step) for system, step in steps.items()}, rounds=rounds, calls=1)
    return {system: seconds / calls for system, seconds in times.items()}, first


def row(name: str, setting: Setting, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        alone = {system: measured(name, system, setting) for system in SYSTEMS}
        step, warm = step_times(name, setting, rounds, calls=4 if setting.device == "cuda" else 1)
        gradient_errors = check_gradients(name, SYSTEMS[1:], setting)
    cells: dict[str, Any] = {"model": _title(name, setting)}
    for system in SYSTEMS:
        cells[f"{system} ms"] = step[system] * 1e3
    for system in SYSTEMS[:2]:
        cells[f"{system} / pyframe"] = step[system] / step["pyframe"]
    if setting.device == "cuda":
        cells |= {f"{system} peak MB": alone[system]["peak"] for system in SYSTEMS}
    for system in SYSTEMS[1:]:
        cells[f"first step {system} s"] = alone[system]["first"]
        cells[f"warm first step {system} s"] = warm[system]
    cells["first: pyframe / torch.compile"] = alone["pyframe"]["first"] / alone["torch.compile"]["first"]
    for system in SYSTEMS[1:]:
        pairs = zip(alone["eager"]["losses"], alone[system]["losses"])
        cells[f"relative loss difference {system}"] = max(abs(a - b) / abs(a) for a, b in pairs)
        cells[f"gradient error / eager's {system}"] = gradient_errors[system]
    return cells


def _title(name: str, setting: Setting) -> str:
    if not setting.large:
        return name
    from .programs_training import GPU

    return f"{GPU[name].title} (tiny)" if setting.tiny else GPU[name].title


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--program", choices=["gpt", "bert", "resnet"], help="only this one (resnet: GPU sizes only)")
    parser.add_argument("--tiny", action="store_true", help="the programs of --device cuda in sizes that run anywhere")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--mode", default="default", help="of torch.compile and pyframe")
    parser.add_argument("--child", nargs=2, metavar=("PROGRAM", "SYSTEM"), help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help="the GPU time of a step by kernel, and nothing else")
    options = parser.parse_args()
    setting = Setting(options.device, options.tiny, options.mode)
    names = [options.program] if options.program else ["gpt", "bert", *["resnet"] * setting.large]
    if options.child:
        child(*options.child, setting)
        return
    if options.profile:
        for name, system in itertools.product(names, SYSTEMS):
            profile(name, system, setting)
        return
    rows = []
    for name in names:
        rows.append(row(name, setting, options.rounds))
        print(table([{"": k, name: v} for k, v in rows[-1].items()]), flush=True)
    if not setting.tiny:
        parts = ["training", *["cuda"] * setting.large, *[options.program] * bool(options.program)]
        report(in_mode("_".join(parts), setting.mode), rows)


if __name__ == "__main__":
    main()
