"""flex_attention on a GPU: torch.compile and ours, forward and backward.

    python -m benchmarks.flex [--cases NAME ...] [--dims D ...] [--length S] [--peer] [--rounds N] [--tune] [--forward]

bfloat16, 4 batches of 16 heads. Times are medians in milliseconds; TFLOP/s count the blocks that the mask keeps, the
backward as two and a half forwards. Every result is compared with the whole matrix of scores computed in float32 for
one head. Exit status 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import pyframe

BATCH, HEADS, WINDOW, DOCUMENT = 4, 16, 1024, 700
WARMUP, TOLERANCE, BACKWARD = 3, 2e-2, 2.5


def masks(length: int) -> dict[str, Callable[..., torch.Tensor] | None]:
    documents = torch.arange(length, device="cuda") // DOCUMENT
    return {
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k < WINDOW),
        "document": lambda b, h, q, k: (q >= k) & (documents[q] == documents[k]),
        "alibi": lambda b, h, q, k: q >= k,
        "full": None,
    }


def program(case: str, slopes: torch.Tensor, mask: BlockMask | None) -> Callable[..., torch.Tensor]:
    def alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + slopes[h] * (k - q)

    score = alibi if case == "alibi" else None
    return lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=mask)


def exact(case: str, mod: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: float) -> torch.Tensor:
    """The first head of the first batch in float32."""
    q, k, v = (x[0, 0].float() for x in (q, k, v))
    rows = torch.arange(q.shape[0], device=q.device)
    scores = q @ k.T / q.shape[1] ** 0.5
    if case == "alibi":
        scores = scores + slope * (rows - rows[:, None])
    if mod is not None:
        kept = mod(0, 0, rows[:, None], rows[None, :])
        scores = scores.masked_fill(~kept, -float("inf"))
    return scores.softmax(-1) @ v


def milliseconds(run: Callable[[], Any], rounds: int) -> float:
    for _ in range(WARMUP):
        run()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measured(fn: Any, inputs: list[torch.Tensor], work: float, rounds: int) -> tuple[torch.Tensor, str]:
    """The result, and the times and rates of forward and backward as text."""
    out = fn(*inputs)
    grad = torch.randn_like(out)
    forward = milliseconds(lambda: fn(*inputs), rounds)
    if not out.requires_grad:
        return out, f"{forward:7.3f} ms {work / forward / 1e9:6.0f}"
    out = fn(*inputs)
    backward = milliseconds(lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True), rounds)
    rates = work / forward / 1e9, BACKWARD * work / backward / 1e9
    return out.detach(), f"{forward:7.3f} ms {rates[0]:6.0f} | {backward:7.3f} ms {rates[1]:6.0f}"


def run(case: str, mod: Any, length: int, dim: int, arguments: argparse.Namespace) -> bool:
    torch.manual_seed(0)
    shape = BATCH, HEADS, length, dim
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    inputs = [x.requires_grad_(not arguments.forward) for x in inputs]
    mask = None if mod is None else create_block_mask(mod, None, None, length, length, device="cuda")
    slopes = torch.exp2(-torch.arange(1.0, HEADS + 1, device="cuda") / 2)
    fn = program(case, slopes, mask)
    density = 1.0 if mask is None else 1 - mask.sparsity() / 100
    work = 4 * BATCH * HEADS * length * length * dim * density
    want = exact(case, mod, *inputs, slopes[0].item()).detach()
    ours = pyframe.compile(fn, mode="max-autotune" if arguments.tune else None)
    systems = {"ours": ours} | ({"torch.compile": torch.compile(fn)} if arguments.peer else {})
    good = True
    for name, system in systems.items():
        found, text = measured(system, inputs, work, arguments.rounds)
        off = (found[0, 0].float() - want).abs().max().item()
        good = good and off < TOLERANCE * want.abs().max().item()
        print(f"{case:9} S={length} D={dim:3} {name:14} forward {text} TFLOP/s   error {off:.4f}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="*", default=["causal", "window", "document", "alibi"])
    parser.add_argument("--dims", nargs="*", type=int, default=[64, 128])
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--forward", action="store_true", help="without gradients")
    arguments = parser.parse_args()
    mods = masks(arguments.length)
    good = [run(c, mods[c], arguments.length, dim, arguments) for dim in arguments.dims for c in arguments.cases]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
