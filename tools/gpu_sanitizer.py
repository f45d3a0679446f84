"""Runs compiled programs under NVIDIA's compute-sanitizer: memcheck (accesses outside of allocations) and racecheck
(races in shared memory).

    python -m tools.gpu_sanitizer [--tool memcheck racecheck] [--only PART ...] [--jobs N]

Each program is compiled and run once without the sanitizer, which fills a cache, and then once with each tool, in a
process of its own. Torch's caching allocator is off, so that each tensor is an allocation and an access just outside
of it is found; scratch memory of a graph is one allocation. Sizes are not multiples of a block. Results are also
compared with those in float64. The table goes to benchmarks/results/gpu_sanitizer.txt; exit status 1 if anything was
found or is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import pyframe
from benchmarks.harness import report
from benchmarks.programs import relative_error, tensors
from inductor.autotune import choose

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck")
FOUND = 9  # the exit status of compute-sanitizer if it found something
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any]]
TRAINED = ("layer norm", "softmax and cross-entropy", "embedding", "convolution and batch norm", "flex attention")


def cases() -> dict[str, Case]:
    """Function, arguments, keyword arguments of `pyframe.compile`. Those in TRAINED also run their backward."""

    def normal(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*size, device="cuda", dtype=dtype)

    x, tokens = normal(37, 1001), torch.randint(0, 37, (203,), device="cuda")
    half = normal(129, 200, dtype=torch.bfloat16)
    image, kernel, scale = normal(3, 8, 13, 13), normal(12, 8, 3, 3), normal(12)
    attended = normal(2, 4, 200, 64, dtype=torch.bfloat16)
    tuned = {"mode": "max-autotune-no-cudagraphs"}
    return {
        "pointwise": (lambda x: F.gelu(x + 1).t() * 2, (x,), {}),
        "layer norm": (lambda x, w: F.layer_norm(x.softmax(-1) + x, (1001,), w), (x, normal(1001)), {}),
        "softmax and cross-entropy": (lambda x, t: F.cross_entropy(x, t[:37]), (x, tokens), {}),
        "row, column and full sums": (lambda x: (x.sum(0), x.sum(1), x.sum(), x.argmax(1)), (x,), {}),
        "long sum": (lambda x: (x.sum(), x.var()), (normal(3_000_017),), {}),
        "scans": (lambda x: (x.cumsum(1), x.logcumsumexp(1), x.cumsum(0), x.cummax(1)), (x,), {}),
        "long scan": (lambda x: x.cumsum(0), (normal(300_017),), {}),
        "sorts": (lambda x: (x[:, :77].sort(stable=True), x[:, :200].topk(5)), (x,), {}),
        "embedding": (lambda w, t: F.embedding(t, w).sin(), (normal(37, 65), tokens), {}),
        "sums at indices": (lambda x, t: torch.zeros_like(x).index_add(0, t[:37], x), (x, tokens), {}),
        "writes at indices": (lambda x, t: x.clone().index_copy_(0, t[:1], x[:1] * 2), (x, tokens), {}),
        "convolution and batch norm": (
            lambda x, k, s: F.relu(F.batch_norm(F.conv2d(x, k), None, None, s, s, True)), (image, kernel, scale), {},
        ),
        "product of one row": (lambda x, w: F.silu(x @ w.t()), (half[:1], half.clone()), {}),
        "product templates": (lambda x, w: F.gelu(x @ w.t()), (half, half.clone()), tuned),
        "batched templates": (lambda x: (x @ x.mT).relu(), (normal(3, 65, 40, dtype=torch.bfloat16),), tuned),
        "flex attention": (_flex, (attended, attended.clone(), attended.clone()), {}),
        "optimizer step": (_step, tuple(normal(n) for n in (5, 1000, 33, 4097) for _ in range(2)), {}),
        "dynamic sizes": (lambda x: (x * 2).softmax(-1), (x,), {"dynamic": True}),
    }  # fmt: skip


def _flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -float("inf")))


def _step(*values: torch.Tensor) -> list[torch.Tensor]:
    params, grads = list(values[::2]), list(values[1::2])
    return torch._foreach_add(params, torch._foreach_mul(grads, -0.1))


def results(call: Callable[..., Any], args: Sequence[torch.Tensor], trained: bool, dtype: Any = None) -> list[Any]:
    """The tensors that a program returns and its gradients, computed in `dtype` if one is given."""
    leaves = [x.to(dtype) if dtype and x.is_floating_point() else x.clone() for x in args]
    leaves = [x.requires_grad_(trained and x.is_floating_point()) for x in leaves]
    out = call(*leaves)
    if trained:
        out.to(dtype or torch.float32).square().sum().backward()
    return tensors([out, [x.grad for x in leaves if x.grad is not None]])


def run(name: str) -> None:
    """Compiles and calls one program. AssertionError if a result is further from that in float64 than the tolerance,
    or than three times eager's error."""
    fn, args, keywords = cases()[name]
    choose.MARGIN = 1e9  # templates are used even where ATen is faster
    trained = name in TRAINED
    exact, eager = results(fn, args, trained, torch.float64), results(fn, args, trained)
    ours = results(pyframe.compile(fn, fullgraph=True, **keywords), args, trained)
    torch.cuda.synchronize()
    for got, theirs, want in zip(ours, eager, exact, strict=True):
        assert got.dtype == theirs.dtype and got.shape == theirs.shape
        allowed = 1e-5 if got.dtype == torch.float32 else 1e-2
        assert relative_error(got.double(), want.double()) <= max(
            allowed, 3 * relative_error(theirs.double(), want.double())
        )


def check(name: str, tools: list[str], cache: str) -> dict[str, Any]:
    """One row of the table: what each tool said of a program."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    line = [sys.executable, "-m", "tools.gpu_sanitizer", "--run", name]
    settings = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYFRAME_MEASURE": "0", "PYFRAME_CACHE_DIR": f"{cache}/{name}"}
    environment = {**os.environ, **settings}
    row: dict[str, Any] = {"program": name}
    for tool in ["compiled", *tools]:
        under = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND)] if tool != "compiled" else []
        done = subprocess.run([*under, *line], cwd=ROOT, env=environment, capture_output=True, text=True)
        row[tool] = {0: "right" if tool == "compiled" else "clean", FOUND: "FOUND"}.get(done.returncode, "failed")
        if done.returncode:
            print(f"---- {name}, {tool}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", nargs="*", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--run", help="compile and call this program in this process")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("tools.gpu_sanitizer needs a GPU")
    if options.run:
        run(options.run)
        return 0
    names = [name for name in cases() if not options.only or any(part in name for part in options.only)]
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda name: check(name, options.tool, cache), names))
    report("gpu_sanitizer", rows)
    return int(any(value not in ("right", "clean") for row in rows for tool, value in row.items() if tool != "program"))


if __name__ == "__main__":
    sys.exit(main())
