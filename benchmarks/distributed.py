"""Measures a training step (forward, loss, backward, AdamW) of models that several processes train together.

    python -m benchmarks.distributed --gpus 2
    python -m benchmarks.distributed --gpus 2 --program gpt --kind ddp
    python -m benchmarks.distributed --tiny --device cpu    # small sizes, two processes with gloo, as a test

It starts the processes itself. An 8-layer GPT runs under DDP, FSDP2 (each block and the rest are units) and tensor
parallelism, and ResNet-50 under DDP, in bfloat16 with parameters in float32 (in bfloat16 under tensor parallelism).
`compile` is applied to the wrapped model. All systems of a row run in the same processes; times are medians of
interleaved rounds, of the slowest rank; peak memory is what a step needs on a GPU, parameters and states included.

In the same run the gradients of each system are compared with those of one process without any wrapper, in float32, on
the batches of all ranks: the error may be twice that of eager in the same wrapper, or the tolerance.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.tensor import DTensor

from .distributed_programs import KINDS, PROGRAMS, Kind, Place
from .harness import RESULTS, machine, table, write_results

SYSTEMS = ("eager", "torch.compile", "pyframe")
MAX_WORSE = 2.0  # times eager's error
TOLERANCE = {False: 1e-4, True: 1.6e-2}  # in float32, and in bfloat16
SMALLEST_PART = 1e-3  # of the largest gradient, by which an error is measured at least
WARM = 3  # steps before the first measurement; DDP rebuilds its buckets after the first
CALLS = 5  # steps of one system in a round
LIMIT = timedelta(seconds=300)


def compiler(system: str) -> Callable[[nn.Module], nn.Module]:
    if system == "eager":
        return lambda model: model
    if system == "torch.compile":
        return torch.compile
    import pyframe

    return pyframe.compile


def by_type(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups of an optimizer: fused steps do not take distributed tensors together with others (tensor parallelism)."""
    distributed: dict[bool, list[nn.Parameter]] = {}
    for parameter in parameters:
        distributed.setdefault(isinstance(parameter.data, DTensor), []).append(parameter)
    return [{"params": group} for group in distributed.values()]


class Variant:
    """A wrapped copy of a model under one system, with its optimizer."""

    def __init__(self, model: nn.Module, args: Sequence[torch.Tensor], kind: Kind, system: str, place: Place) -> None:
        self.model, self.args, self.kind, self.place = copy.deepcopy(model).to(place.device), args, kind, place
        self.call = kind.wrap(self.model, compiler(system), place)
        groups = by_type(self.model.parameters())
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=place.kind == "cuda" or None)

    def backward(self) -> torch.Tensor:
        with torch.autocast(self.place.kind, torch.bfloat16, enabled=self.place.half and self.kind.autocast):
            loss = self.call(*self.args)
        loss.backward()
        return loss

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def gradients(self) -> dict[str, torch.Tensor]:
        """The gradients by name, whole and in float32, after one forward and backward."""
        self.backward()
        found = {name: whole(x.grad).float() for name, x in self.model.named_parameters() if x.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        return found


def whole(x: torch.Tensor) -> torch.Tensor:
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().clone()


def synchronize(place: Place) -> None:
    if place.kind == "cuda":
        torch.cuda.synchronize()


def reference(model: nn.Module, args: Sequence[torch.Tensor], place: Place) -> dict[str, torch.Tensor]:
    """The mean over ranks of the gradients that the model has in float32 for the batch of a rank."""
    twin = copy.deepcopy(model).to(place.device, torch.float32)
    twin(*args).backward()
    found = {}
    for name, x in twin.named_parameters():
        if x.grad is not None:
            dist.all_reduce(x.grad)
            found[name] = x.grad / place.world
    return found


def error(got: Mapping[str, torch.Tensor], exact: Mapping[str, torch.Tensor]) -> float:
    """The largest relative error (root mean square) of a gradient; small gradients count as a part of the largest."""
    if got.keys() != exact.keys():
        raise ValueError(f"gradients of {got.keys() ^ exact.keys()} are missing")
    size = {name: float(x.double().square().mean().sqrt()) for name, x in exact.items()}
    least = SMALLEST_PART * max(size.values())
    return max(
        float((got[name].double() - x.double()).square().mean().sqrt()) / max(size[name], least)
        for name, x in exact.items()
    )


def measure(name: str, kind_name: str, systems: Sequence[str], place: Place, tiny: bool, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    kind = KINDS[kind_name]
    torch.manual_seed(0)
    model, args = PROGRAMS[name][0](tiny)
    if kind.split:  # another batch on each rank
        generator = torch.Generator().manual_seed(place.rank)
        order = [torch.randperm(x.shape[-1], generator=generator) for x in args]
        args = tuple(x[..., k] if x.dim() > 1 else x[k] for x, k in zip(args, order))
    elif place.half:
        model = model.to(torch.bfloat16)
    args = tuple(x.to(place.device) for x in args)
    exact = reference(model, args, place)
    cells: dict[str, Any] = {"model": name, "kind": kind_name}
    variants, errors, first, peak = {}, {}, {}, {}
    for system in systems:
        before = _memory(place)
        start = time.perf_counter()
        variants[system] = variant = Variant(model, args, kind, system, place)
        variant.step()
        synchronize(place)
        first[system] = time.perf_counter() - start
        for _ in range(WARM):
            variant.step()
        _reset_peak(place)
        variant.step()
        peak[system] = (_peak(place) - before) / 2**20
        _restore(variant, model)
        errors[system] = error(variant.gradients(), exact)
    allowed = max(TOLERANCE[place.half], MAX_WORSE * errors.get("eager", 0.0))
    for system in systems:
        if not errors[system] <= allowed:
            raise AssertionError(f"{name}, {kind_name}, {system}: gradients differ by {errors[system]} > {allowed}")
    del exact
    times = interleaved(variants, rounds, place)
    for system in systems:
        cells[f"{system} ms"] = times[system] * 1e3
    for system in systems:
        if system != "pyframe" and "pyframe" in systems:
            cells[f"{system} / pyframe"] = times[system] / times["pyframe"]
    cells |= {f"{system} peak MB": peak[system] for system in systems if place.kind == "cuda"}
    cells |= {f"first step {system} s": first[system] for system in systems}
    cells |= {f"gradient error {system}": errors[system] for system in systems}
    return cells


def _restore(variant: Variant, model: nn.Module) -> None:
    """Give the parameters the values from before the first step."""
    with torch.no_grad():
        start = dict(model.named_parameters())
        for name, x in variant.model.named_parameters():
            value = start[name].detach().to(x.device)
            if isinstance(x, DTensor):
                value = torch.distributed.tensor.distribute_tensor(value, x.device_mesh, x.placements)
            x.copy_(value)


def interleaved(variants: Mapping[str, Variant], rounds: int, place: Place) -> dict[str, float]:
    """Median seconds per step of the slowest rank, for each system."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            synchronize(place)
            dist.barrier()
            start = time.perf_counter()
            for _ in range(CALLS):
                variant.step()
            synchronize(place)
            spent = torch.tensor((time.perf_counter() - start) / CALLS, device=place.device, dtype=torch.float64)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            samples[name].append(float(spent))
    return {name: statistics.median(given) for name, given in samples.items()}


def _memory(place: Place) -> int:
    gc.collect()
    return torch.cuda.memory_allocated() if place.kind == "cuda" else 0


def _reset_peak(place: Place) -> None:
    if place.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak(place: Place) -> int:
    return torch.cuda.max_memory_allocated() if place.kind == "cuda" else 0


def run_rank(rank: int, world: int, folder: str, options: argparse.Namespace) -> None:
    """The main function of a process. Rank 0 writes each row to a file of the folder as soon as it is measured."""
    device = f"cuda:{rank}" if options.device == "cuda" else "cpu"
    place = Place(rank, world, device)
    given: dict[str, Any] = {}
    if place.kind == "cuda":
        torch.cuda.set_device(rank)
        given = {"device_id": torch.device(device)}
    else:
        torch.set_num_threads(1)
    kind = "nccl" if place.kind == "cuda" else "gloo"
    store = f"file://{folder}/store"
    dist.init_process_group(kind, init_method=store, rank=rank, world_size=world, timeout=LIMIT, **given)
    systems = [system for system in SYSTEMS if system in options.systems]
    for name, kind_name in chosen(options):
        row = measure(name, kind_name, systems, place, options.tiny, options.rounds)
        gc.collect()
        if rank == 0:
            print(table([{"": key, f"{name} {kind_name}": value} for key, value in row.items()]), flush=True)
            with open(f"{folder}/rows", "a") as rows:
                rows.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


def chosen(options: argparse.Namespace) -> list[tuple[str, str]]:
    """The programs and kinds to measure."""
    return [
        (name, kind) for name, (_, kinds) in PROGRAMS.items() for kind in kinds
        if options.program in (None, name) and options.kind in (None, kind)
    ]  # fmt: skip


def merged(rows: Sequence[Mapping[str, Any]], world: int, name: str) -> list[Mapping[str, Any]]:
    """The new rows, and those of earlier runs of other programs on as many GPUs of the same machine."""
    path = RESULTS / f"{name}.json"
    old = json.loads(path.read_text()) if path.exists() else {"rows": [], "machine": None, "gpus": 0}
    same = old["machine"] == machine() and old["gpus"] == world
    new = {(row["model"], row["kind"]) for row in rows}
    kept = [row for row in old["rows"] if same and (row["model"], row["kind"]) not in new]
    return [*kept, *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--gpus", type=int, default=2, help="the number of processes, one per GPU")
    parser.add_argument("--program", choices=list(PROGRAMS))
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="small sizes, which run anywhere; writes no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.tiny:  # the first steps are cold
            os.environ |= {"PYFRAME_CACHE_DIR": f"{folder}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        try:
            processes.spawn(run_rank, (options.gpus, folder, options), nprocs=options.gpus)
        finally:  # the rows that were measured before one that failed
            path = Path(f"{folder}/rows")
            if path.exists() and not options.tiny:
                write([json.loads(line) for line in path.read_text().splitlines()], options.gpus)


def write(rows: Sequence[Mapping[str, Any]], gpus: int) -> None:
    name = "distributed_cuda" if gpus == 2 else f"distributed_cuda_{gpus}"  # noqa: PLR2004
    print(write_results(name, merged(rows, gpus, name), RESULTS, machine(), gpus=gpus))


if __name__ == "__main__":
    sys.exit(main())
