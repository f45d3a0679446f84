"""Counts the ATen calls that compiled graphs make on a GPU, over the programs of `benchmarks.capture` and optimizers.

    python -m benchmarks.aten_calls [--only SUBSTRING ...] [--jobs N] [--save]

Needs no GPU: each program is captured on the CPU, and its graphs are lowered as if their tensors were on one. Every
graph is lowered for inference and, if it has gradients, for training (forward and backward). Matrix products,
convolutions, attention and the seeds of random numbers are calls by design; they are counted apart from the operators
that loops could compute. `--save` writes `benchmarks/results/aten_calls`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

import pyframe
from inductor.aot import batch_norm
from inductor.errors import Unsupported
from inductor.ir.buffer import ExternKernel
from inductor.ir.nodes import GraphIR
from inductor.schedule import schedule
from tools.fake_gpu import lowered_inference, lowered_training

from .capture_models import CASES
from .harness import report, table

# Operators with libraries of their own. A call that has another name is one that loops could do.
LIBRARIES = frozenset(
    "mm addmm bmm baddbmm _addmm_activation mv addmv dot convolution convolution_backward _scaled_mm "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward "
    "_fft_c2c _fft_r2c _fft_c2r randint".split()
)
Calls = dict[str, Counter[str]]  # by mode: "inference" or "training"


class CountingBackend:
    """A backend that lowers each graph as for a GPU, counts kernels and ATen calls, and runs the graph as it is."""

    def __init__(self) -> None:
        self.calls: Calls = {"inference": Counter(), "training": Counter()}
        self.kernels: Counter[str] = Counter()
        self.not_lowered: Counter[str] = Counter()  # reasons, by mode

    def __call__(self, gm: Any, inputs: Sequence[Any]) -> Any:
        grads = any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
        grads = grads or any(p.requires_grad for p in gm.parameters())
        ways: dict[str, Callable[..., Sequence[GraphIR]]] = {"inference": lambda *args: [lowered_inference(*args)]}
        if grads and torch.is_grad_enabled():
            ways["training"] = lowered_training
        for mode, lowered in ways.items():
            try:
                for graph in lowered(gm, inputs):
                    self.count(mode, graph)
            except (Unsupported, NotImplementedError, RuntimeError) as error:
                self.not_lowered[f"{mode}: {type(error).__name__}: {str(error).splitlines()[0]}"[:150]] += 1
        return gm.forward

    def count(self, mode: str, graph: GraphIR) -> None:
        """Adds the calls and kernels of a lowered graph."""
        for group in schedule(graph):
            if isinstance(group, ExternKernel):
                self.calls[mode][group.target._schema.name.removeprefix("aten::")] += 1
            else:
                self.kernels[mode] += 1


def _optimizer(make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]) -> Callable[[], Any]:
    def case() -> Any:
        params = [torch.nn.Parameter(torch.randn(4 + i % 3, 8)) for i in range(24)]
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer = make(params)
        optimizer.step()
        return optimizer.step, {}

    return case


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "optimizer/adam": _optimizer(lambda p: torch.optim.Adam(p, 1e-3)),
    "optimizer/adamw": _optimizer(lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1)),
    "optimizer/adam one by one": _optimizer(lambda p: torch.optim.Adam(p, 1e-3, foreach=False)),
    "optimizer/adam fused": _optimizer(lambda p: torch.optim.Adam(p, 1e-3, fused=True)),
    "optimizer/sgd momentum": _optimizer(lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9)),
    "optimizer/rmsprop": _optimizer(lambda p: torch.optim.RMSprop(p, 1e-3)),
}


def cases() -> dict[str, Callable[[], Any]]:
    """All programs: name to a function that returns a callable and its keyword arguments."""
    return {**{name: case for name, case in CASES.items() if not name.startswith("hard/")}, **OPTIMIZERS}


def measure(name: str) -> dict[str, Any]:
    """The row of one program."""
    torch.set_num_threads(1)
    backend = CountingBackend()
    try:
        fn, kwargs = cases()[name]()
        compiled = pyframe.compile(fn, backend=backend)
        with mock.patch.object(batch_norm, "_rewritten", lambda x: x.numel() > 0):
            compiled(**kwargs)
    except Exception as error:  # noqa: BLE001  # a program that does not run is a row that says so
        backend.not_lowered[f"failed: {type(error).__name__}: {error}".splitlines()[0][:150]] += 1
    return {"name": name, "calls": backend.calls, "kernels": backend.kernels, "not lowered": backend.not_lowered}


def _row(found: dict[str, Any], mode: str) -> dict[str, Any]:
    calls = found["calls"][mode]
    others = {op: n for op, n in calls.items() if op not in LIBRARIES}
    return {
        "program": found["name"], "mode": mode, "kernels": found["kernels"][mode],
        "library calls": sum(calls.values()) - sum(others.values()), "other ATen calls": sum(others.values()),
        "which": ", ".join(f"{op} {n}" for op, n in sorted(others.items(), key=lambda item: -item[1])),
    }  # fmt: skip


def ranking(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators that loops could do, most frequent first: calls and programs, in inference and training."""
    total: dict[str, Counter[str]] = {}
    for one in found:
        for mode, calls in one["calls"].items():
            for op, n in calls.items():
                if op not in LIBRARIES:
                    counts = total.setdefault(op, Counter())
                    counts[f"{mode} calls"] += n
                    counts[f"{mode} programs"] += 1
    columns = [f"{mode} {what}" for mode in ("inference", "training") for what in ("programs", "calls")]
    rows = [{"operator": op, **{column: counts[column] for column in columns}} for op, counts in total.items()]
    return sorted(rows, key=lambda row: (-row[columns[0]] - row[columns[2]], row["operator"]))


def main() -> None:
    """Measures each program in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    names = [name for name in cases() if any(part in name for part in options.only)]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=12) as pool:
        found = []
        for one in pool.imap(measure, names):
            found.append(one)
            print(one["name"], dict(one["not lowered"]) or "", file=sys.stderr, flush=True)
    ranked = ranking(found)
    rows = [_row(one, mode) for one in found for mode in ("inference", "training") if sum(one["calls"][mode].values())]
    rows = [row for row in rows if row["other ATen calls"]]
    failures = [f"{one['name']}: {reason}" for one in found for reason in one["not lowered"]]
    print(table(ranked), table(rows), f"{len(found)} programs; not lowered:", *failures, sep="\n\n")
    if options.save:
        report("aten_calls", ranked, programs=rows, not_lowered=failures)


if __name__ == "__main__":
    main()
