"""Where the time of a first call goes: seconds of each phase of the compiler, for whole networks, most in training.

    python -m benchmarks.compile_phases                               # every program, for the CPU
    python -m benchmarks.compile_phases --target sm_90                # as for a GPU, without one; no kernel is built
    python -m benchmarks.compile_phases --target sm_90 --build        # the Triton kernels are built, too
    python -m benchmarks.compile_phases --only resnet50 --against DIR # beside another checkout of this project
    python -m benchmarks.compile_phases --only resnet50 --profile     # functions by time
    python -m benchmarks.compile_phases --layers                      # networks of 6 and of 24 equal layers

Each run is a process of its own with an empty cache. The networks have their usual layers and small widths or images,
so that compiling takes nearly all of the time. Phases are processor seconds of the thread that compiles, which other
work on the machine hardly changes, except `build`, which is the wall time in which this thread waits for kernels;
`CPU s` is the processor time of the process and of the processes that it started. `capture` is the tracing of the
Python code, `rest` what no phase counts. `kernels` counts distinct kernels, in both halves.

For sm_90 the network is captured on the CPU under autocast to bfloat16, and its joint graph is compiled as if its
tensors were on a GPU; the change of the graph's devices is not counted. With `--against`, the two checkouts take turns.

`--layers` prints a second table: the seconds of each phase with 6 and with 24 layers, all of them (`sum`: without the
waiting for kernels; `CPU s`: with the building of them), and how many times as much 24 layers take.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

CONVNETS = {
    "resnet50": "resnet50", "mobilenetv3_large": "mobilenetv3_large_100", "efficientnet_b0": "efficientnet_b0",
    "regnety_032": "regnety_032", "densenet121": "densenet121",
}  # fmt: skip
LAYERS = {"bert": (6, 12, 24), "llama": (6, 24)}
INFERENCE = "_inference"
FEW, MANY = 6, 24  # layers that are compared
PROGRAMS = (
    *CONVNETS,
    *(f"{name}_{layers}{mode}" for name, counts in LAYERS.items() for mode in ("", INFERENCE) for layers in counts),
)
COMPARED = tuple(f"{name}_{layers}{mode}" for name in LAYERS for mode in ("", INFERENCE) for layers in (FEW, MANY))
PHASES = ("capture", "cache", "aot", "joint", "passes", "partition", "lower", "schedule", "codegen", "build", "rest")
ROOT = Path(__file__).resolve().parent.parent
TARGETS = {"cpu": None, "sm_80": 80, "sm_90": 90}


def make(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A program of PROGRAMS: a function, in training mode one to a tensor with gradients, and its arguments."""
    import torch

    from benchmarks.programs_gpu import make_timm

    torch.manual_seed(0)
    if name in CONVNETS:
        model, (images,) = make_timm(CONVNETS[name], batch=2, side=64)
        return model.train(), {"x": images}
    import transformers

    kind, layers = name.removesuffix(INFERENCE).split("_")
    ids = torch.randint(0, 512, (2, 64))
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512}
    config, of = {
        "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    }[kind]
    training = not name.endswith(INFERENCE)
    model = of(config(num_hidden_layers=int(layers), **sizes)).train(training).requires_grad_(training)
    return (lambda **inputs: model(**inputs).loss), {"input_ids": ids, "labels": ids}


class Compiler:
    """A backend that compiles each graph for a target and keeps the seconds of its phases. `arch`: of a GPU; None for
    the CPU. `own`: seconds spent on what only this program does."""

    def __init__(self, arch: int | None, build: bool) -> None:
        self.arch, self.build = arch, build
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.used = self.own = 0.0
        self.kernels = self.graphs = 0

    def __call__(self, gm: Any, inputs: Sequence[Any]) -> Any:
        start = time.thread_time()
        waited = self.phases["build"]
        try:
            return self._on_cpu(gm, inputs) if self.arch is None else self._on_gpu(gm, inputs)
        finally:
            self.graphs += 1
            self.used += time.thread_time() - start + self.phases["build"] - waited

    def _on_cpu(self, gm: Any, inputs: Sequence[Any]) -> Any:
        from inductor.compile import compile_fx

        call = compile_fx(gm, inputs, options={"strict": True})
        report = gm.meta["compile_report"]
        self._add(report.seconds)
        self.kernels += report.kernels
        return call

    def _on_gpu(self, gm: Any, inputs: Sequence[Any]) -> Any:
        """Compiles the graph as for a GPU; returns what runs it with ATen."""
        from inductor import generate
        from inductor.aot import batch_norm
        from inductor.aot.functionalize import records_gradients
        from inductor.compile_report import CompileReport
        from inductor.options import DEFAULT
        from inductor.passes import without_known_masks

        report = CompileReport()
        training = records_gradients(gm, inputs)
        with (
            mock.patch.object(generate, "to_aten", self._moved(generate.to_aten)),
            mock.patch.object(generate, "to_joint", self._moved(generate.to_joint)),
            mock.patch.object(generate, "build_kernels", self._cubins),
            mock.patch.object(batch_norm, "_rewritten", lambda x: x.numel() > 0),
            mock.patch("torch._C._conv_determine_backend_memory_format", _channels_last_if_given),
        ):
            if training:
                both = generate.generate_training(without_known_masks(gm), inputs, report, None, DEFAULT)
                parts = [both.forward, *both.backward]
            else:
                parts = [generate.generate(without_known_masks(gm), inputs, report, DEFAULT)]
        report.seconds["joint" if training else "aot"] -= self.own
        self._add(report.seconds)
        self.kernels += len({source.name for part in parts for source in part.sources})
        return gm.forward

    def _add(self, seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            self.phases[name] += value

    def _moved(self, to_graph: Callable[..., Any]) -> Callable[..., Any]:
        from tools.fake_gpu import on_gpu

        def moved(*args: Any) -> Any:
            traced = to_graph(*args)
            start = time.thread_time()
            on_gpu(traced.graph)
            self.own += time.thread_time() - start
            return traced

        return moved

    def _cubins(self, artifact: Any, processes: Any = None) -> list[Any]:
        """Takes the place of `build_kernels`: builds the kernels without loading them, if they are to be built."""
        if not self.build:
            return []
        from inductor.runtime import triton_build

        assert self.arch is not None
        return triton_build.build_all(artifact.sources, self.arch)


def _channels_last_if_given(x: Any, weight: Any, *rest: Any) -> Any:
    """What cuDNN says of the layout of a convolution's result."""
    import torch

    last = [y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous() for y in (x, weight)]
    return torch.channels_last if any(last) else torch.contiguous_format


@contextlib.contextmanager
def _phase(report: Any, name: str) -> Iterator[None]:
    """Takes the place of `CompileReport.phase`: counts processor time, except while kernels are built."""
    clock = time.perf_counter if name == "build" else time.thread_time
    start = clock()
    try:
        yield
    finally:
        report.seconds[name] = report.seconds.get(name, 0.0) + clock() - start


def processor_seconds() -> float:
    """Of this process and of the processes that it started and that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Samples:
    """Where the main thread is, every two milliseconds of processor time. A profile or trace function would not do:
    while one is active, all frames run eagerly."""

    SECONDS = 0.002

    def __init__(self) -> None:
        self.own: collections.Counter[str] = collections.Counter()  # samples by innermost function
        self.within: collections.Counter[str] = collections.Counter()  # and by all functions on the stack
        self.count = 0

    def __enter__(self) -> Samples:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, self.SECONDS, self.SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, frame: types.FrameType | None) -> None:
        stack = []
        while frame is not None:
            code = frame.f_code
            file = "/".join(code.co_filename.split("/")[-2:])
            stack.append(f"{file}:{code.co_firstlineno} {code.co_qualname}")
            frame = frame.f_back
        if any(where.startswith("tools/fake_gpu.py") for where in stack):  # only this program needs that
            return
        self.count += 1
        self.own[stack[0]] += 1
        self.within.update(set(stack))

    def text(self, most: int = 70) -> str:
        """The functions with the most samples, in percent of all."""
        lines = [f"{self.count} samples of {self.SECONDS} s"]
        for title, counts in (("in the function itself", self.own), ("in the function and what it calls", self.within)):
            lines += ["", f"percent {title}"]
            lines += [f"{100 * n / self.count:6.1f}  {where}" for where, n in counts.most_common(most)]
        return "\n".join(lines)


def child(name: str, target: str, build: bool, profile: bool) -> None:
    """Prints the row of one program."""
    import torch

    import pyframe
    from inductor.compile_report import CompileReport

    torch.set_num_threads(1)
    fn, arguments = make(name)
    arch = TARGETS[target]
    compiler = Compiler(arch, build)
    casts = torch.autocast("cpu", torch.bfloat16) if arch else contextlib.nullcontext()
    samples = Samples()
    wall, used, here = time.perf_counter(), processor_seconds(), time.thread_time()
    with mock.patch.object(CompileReport, "phase", _phase), casts, samples if profile else contextlib.nullcontext():
        pyframe.compile(fn, backend=compiler)(**arguments)
    phases = compiler.phases
    phases["capture"] = time.thread_time() - here - compiler.used + phases["build"]
    phases["rest"] = compiler.used - compiler.own - sum(v for k, v in phases.items() if k not in ("capture", "rest"))
    row = {
        "program": name, "target": target, **{k: round(v, 3) for k, v in phases.items()},
        "s": round(time.perf_counter() - wall - compiler.own, 3),
        "CPU s": round(processor_seconds() - used - compiler.own, 3),
        "kernels": compiler.kernels, "graphs": compiler.graphs,
    }  # fmt: skip
    if profile:
        print(samples.text())
    print("ROW " + json.dumps(row))


def measure(name: str, checkout: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a program in a process of its own, which imports the project from `checkout`."""
    command = [sys.executable, "-P", __file__, "--child", name, "--target", options.target]
    command += ["--build"] * options.build + ["--profile"] * options.profile
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYFRAME_CACHE_DIR": cache, "PYTHONPATH": str(checkout), "PYFRAME_STRICT": "internal"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode on disk
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    lines = out.stdout.splitlines()
    rows = [line.removeprefix("ROW ") for line in lines if line.startswith("ROW ")]
    if not rows:
        raise SystemExit(f"{' '.join(command)} failed:\n{out.stdout}\n{out.stderr}")
    if options.profile:
        print(out.stdout)
    row: dict[str, Any] = json.loads(rows[0])
    return row


def median(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The medians of the numbers of some rows of one program."""
    return {
        key: statistics.median(row[key] for row in rows) if isinstance(value, float) else value
        for key, value in rows[0].items()
    }


def growth(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each phase and pair of programs in `rows` that differ in nothing but their FEW or MANY layers."""
    found = {(row.get("checkout", ""), row["program"]): row for row in rows}
    out = []
    for (checkout, name), few in found.items():
        many = found.get((checkout, name.replace(f"_{FEW}", f"_{MANY}")))
        if many is None or many is few:
            continue
        for phase in (*PHASES, "sum", "CPU s"):
            both = [row[phase] if phase != "sum" else _without_waiting(row) for row in (few, many)]
            if max(both) < 0.0005:  # seconds
                continue
            out.append(({"checkout": checkout} if checkout else {}) | {
                "program": name.replace(f"_{FEW}", ""), "target": few["target"], "phase": phase,
                f"{FEW} layers s": round(both[0], 3), f"{MANY} layers s": round(both[1], 3),
                "times": round(both[1] / both[0], 2) if both[0] else "",
            })  # fmt: skip
    return out


def _without_waiting(row: Mapping[str, Any]) -> float:
    return float(sum(row[phase] for phase in PHASES if phase != "build"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--layers", action="store_true", help=f"compare {FEW} with {MANY} layers")
    parser.add_argument("--target", choices=TARGETS, default="cpu")
    parser.add_argument("--build", action="store_true", help="for a GPU: build the kernels")
    parser.add_argument("--profile", action="store_true", help="print a profile of each program")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout of this project, with extensions")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/compile_phases_TARGET")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.target, options.build, options.profile)
        return
    if options.layers:
        options.only = list(COMPARED)
    sys.path.insert(0, str(ROOT))
    from benchmarks.harness import report, table

    checkouts = {"": ROOT} if options.against is None else {"against": options.against.resolve(), "here": ROOT}
    rows = []
    for name in options.only:
        found: dict[str, list[dict[str, Any]]] = {label: [] for label in checkouts}
        for _ in range(options.rounds):
            for label, checkout in checkouts.items():
                found[label].append(measure(name, checkout, options))
        mine = [({"checkout": label} if label else {}) | median(each) for label, each in found.items()]
        rows += mine
        print(table(mine), flush=True)
    compared = growth(rows)
    if options.save:
        name = "compile_layers" if options.layers else "compile_phases"
        report(f"{name}_{options.target}", compared if options.layers else rows)
    elif len(rows) > 1:
        print(table(rows))
    if compared and not (options.save and options.layers):
        print(table(compared))


if __name__ == "__main__":
    main()
