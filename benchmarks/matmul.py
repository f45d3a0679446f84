"""Matrix products and convolutions with what follows them, on a GPU: eager, torch.compile and ours.

    python -m benchmarks.matmul [--cases NAME ...] [--peer MODE] [--out DIR]

Times are those of the GPU, in microseconds per call: calls are queued while the GPU waits, with inputs that are rotated
so that they are not in its cache. Every result is compared with float64: its error may be 2 % of the largest element,
or three times eager's. Exit status 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import pyframe
from inductor.autotune.measure import gpu_microseconds

ROTATED_BYTES, MAX_SETS = 256 << 20, 64
CALLS, ROUNDS = 20, 5
SLEEP_CYCLES = 150_000  # per call; longer than the host takes for any of them
TOLERANCE = 2e-2


@dataclass(frozen=True)
class Case:
    """A program and the sizes of its arguments, which are bfloat16 except number `codes`, which is int8. Arguments with
    four dimensions are in channels_last."""

    fn: Callable[..., torch.Tensor]
    sizes: tuple[tuple[int, ...], ...]
    codes: int | None = None


def gated(x: Any, gate: Any, up: Any) -> Any:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def residual(x: Any, w: Any, b: Any, r: Any) -> Any:
    return F.linear(x, w, b) + r


def activated(x: Any, w: Any, b: Any) -> Any:
    return F.gelu(F.linear(x, w, b))


def quantized(x: Any, codes: Any, scale: Any) -> Any:
    return F.linear(x, (codes * scale).to(x.dtype))


def convolved(x: Any, w: Any, mean: Any, variance: Any) -> Any:
    y = F.conv2d(x, w, padding=w.shape[-1] // 2)
    return F.batch_norm(y, mean, variance.abs() + 1).relu()


def halved(x: Any, w: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(F.conv2d(x, w, stride=2), mean, variance.abs() + 1)


def scores(q: Any, k: Any) -> Any:
    return torch.softmax((q @ k.mT * 0.125).float(), -1)


def vocabulary(x: Any, w: Any) -> Any:
    return torch.log_softmax(F.linear(x, w).float(), -1)[:, :64]


CASES = {
    "1 row, 4096 -> 4096, residual": Case(residual, ((1, 4096), (4096, 4096), (4096,), (1, 4096))),
    "1 row, 2048 -> 2 x 5504, gated": Case(gated, ((1, 2048), (5504, 2048), (5504, 2048))),
    "1 row, 768 -> 50257": Case(F.linear, ((1, 768), (50257, 768))),
    "1 row, 4096 -> 4096, int8 weight": Case(quantized, ((1, 4096), (4096, 4096), (4096, 1)), 1),
    "16 rows, 4096 -> 4096, residual": Case(residual, ((16, 4096), (4096, 4096), (4096,), (16, 4096))),
    "512 rows, 768 -> 3072, gelu": Case(activated, ((512, 768), (3072, 768), (3072,))),
    "4096 rows, 4096 -> 4096, gelu": Case(activated, ((4096, 4096), (4096, 4096), (4096,))),
    "4096 rows, 4096 -> 4096, residual": Case(residual, ((4096, 4096), (4096, 4096), (4096,), (4096, 4096))),
    "attention scores, 197 tokens": Case(scores, ((192, 197, 64), (192, 197, 64))),
    "convolution 3x3, 32 x 64 x 56 x 56": Case(convolved, ((32, 64, 56, 56), (64, 64, 3, 3), (64,), (64,))),
    "convolution 3x3, 32 x 128 x 28 x 28": Case(convolved, ((32, 128, 28, 28), (128, 128, 3, 3), (128,), (128,))),
    "convolution 3x3, 32 x 512 x 7 x 7": Case(convolved, ((32, 512, 7, 7), (512, 512, 3, 3), (512,), (512,))),
    "convolution 3x3, 1 x 256 x 14 x 14": Case(convolved, ((1, 256, 14, 14), (256, 256, 3, 3), (256,), (256,))),
    "convolution 1x1, 32 x 64 x 56 x 56": Case(convolved, ((32, 64, 56, 56), (256, 64, 1, 1), (256,), (256,))),
    "convolution 1x1 / 2, 32 x 256 x 56 x 56": Case(halved, ((32, 256, 56, 56), (512, 256, 1, 1), (512,), (512,))),
    "4096 rows, 768 -> 50257, log softmax": Case(vocabulary, ((4096, 768), (50257, 768))),
}


def inputs(case: Case) -> list[list[torch.Tensor]]:
    """Sets of arguments that together exceed the GPU's cache."""
    scale = case.sizes[0][-1] ** -0.5
    nbytes = sum(2 * torch.Size(s).numel() for s in case.sizes)
    count = min(MAX_SETS, -(-ROTATED_BYTES // nbytes))

    def tensor(k: int, size: tuple[int, ...]) -> torch.Tensor:
        if k == case.codes:
            return torch.randint(-127, 128, size, device="cuda", dtype=torch.int8)
        x = torch.randn(size, device="cuda", dtype=torch.bfloat16)
        if len(size) == 4:
            x = x.contiguous(memory_format=torch.channels_last)
            return x * torch.Size(size[1:]).numel() ** -0.5 if k else x
        return x * scale if k and len(size) > 1 else x

    return [[tensor(k, size) for k, size in enumerate(case.sizes)] for _ in range(count)]


def microseconds(fn: Callable[..., Any], sets: list[list[torch.Tensor]]) -> float:
    """The median time per call on the GPU."""
    return statistics.median(gpu_microseconds(fn, sets, CALLS, SLEEP_CYCLES) for _ in range(ROUNDS))


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error, as a share of the largest element."""
    return float((got.double() - exact).abs().max() / exact.abs().max())


def run(name: str, case: Case, peer: str | None) -> dict[str, Any]:
    """One row of the table."""
    sets = inputs(case)
    exact = case.fn(*[x.double() for x in sets[0]])
    row: dict[str, Any] = {"case": name, "right": True}
    variants: dict[str, Callable[..., Any]] = {"eager": case.fn, "ours": pyframe.compile(case.fn, dynamic=False)}
    variants["ours, tuned"] = pyframe.compile(case.fn, mode="max-autotune-no-cudagraphs", dynamic=False)
    if peer is not None:
        torch._dynamo.reset()
        variants["torch.compile"] = torch.compile(case.fn, mode=peer, dynamic=False)
    for label, fn in variants.items():
        pyframe.metrics.counters.clear()
        start = time.perf_counter()
        with torch.no_grad():
            off = error(fn(*sets[0]), exact)
            row[f"{label}, first call s"] = round(time.perf_counter() - start, 2)
            row[label] = round(microseconds(fn, sets), 1)
        row[f"{label}, error"] = off
        if label == "ours, tuned":
            row["templates"] = pyframe.metrics.counters["templates"]
        row["right"] &= off <= max(TOLERANCE, 3 * row["eager, error"])
    return row


def main() -> int:
    """Prints the table, and writes it as JSON with --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="names, or parts of names")
    parser.add_argument("--peer", default="max-autotune-no-cudagraphs", help="torch.compile's mode, or none")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; microseconds on the GPU, bfloat16")
    columns = ["eager", "torch.compile", "ours", "ours, tuned"]
    print(f"{'':40}" + "".join(f"{c:>16}" for c in columns) + "   templates  first call s (torch.compile / tuned)")
    rows = []
    for name, case in CASES.items():
        if not any(part in name for part in given.cases):
            continue
        row = run(name, case, None if given.peer == "none" else given.peer)
        rows.append(row)
        first = f"{row.get('torch.compile, first call s', '-')} / {row['ours, tuned, first call s']}"
        cells = "".join(f"{row.get(c, '-'):>16}" for c in columns)
        print(f"{name:40}{cells}   {row['templates']:9}  {first}{'' if row['right'] else '   WRONG'}", flush=True)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "matmul.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
