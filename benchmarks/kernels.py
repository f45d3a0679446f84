"""Measures the GPU time of fused kernels, compares it with the time to move the data, and measures host time per call.

    python -m benchmarks.kernels --device cpu [--threads 1]
    python -m benchmarks.kernels --device cuda
    python -m benchmarks.kernels --host-time --mode reduce-overhead

On the CPU the patterns of `programs_kernels` are timed in three sizes each: samples of some calls, the systems in turn;
ratios are medians over the samples. Each row is compared with float64.

The floor of a kernel is the number of bytes that it must read and write, divided by the bandwidth of a copy of 1 GiB
that is measured in the same run. Smaller transfers do not reach that bandwidth: "copy us" is the time of a copy that
reads and writes as many bytes as the kernel must, measured in the same rounds as the kernel.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import pyframe

from . import kernels_cpu
from .harness import MODES, gpu_interleaved, host_interleaved, in_mode, report, systems
from .programs import relative_error, tensors
from .programs_kernels import SIZES

ROWS, COLUMNS = 8192, 4096
TOLERANCE = 5e-2  # of the largest value, in bfloat16, unless eager's own error is greater: it adds up in bfloat16


def softmax_layernorm(x, w, b):
    return F.layer_norm(x.softmax(-1) + x, x.shape[-1:], w, b)


def dropout_residual_layernorm(x, y, w, b):
    return F.layer_norm(F.dropout(x, 0.1, True) + y, x.shape[-1:], w, b)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.float(), targets)


def residual_rmsnorm(x, y, w):
    z = x + y
    return z, z * torch.rsqrt(z.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(z.dtype) * w


def bias_gelu(x, b):
    return F.gelu(x + b)


def argmax(x):
    return x.argmax(-1)


def row_sum(x):
    return x.sum(-1)


def column_sum(x):
    return x.sum(0)


def transpose_add(x, y):
    return x.t() + y


def write_cache(keys, values, at, k, v, cos, sin):
    half = k.shape[-1] // 2
    turned = torch.cat((-k[..., half:], k[..., :half]), -1)
    keys.index_copy_(2, at, k * cos + turned * sin)
    values[:, :, at] = v
    return k.sum()


def sums_of_groups(x, groups):
    return torch.zeros_like(x[:1024]).index_add(0, groups, x.sin())


def running_sum(x):
    return x.cumsum(-1)


def running_sum_of_columns(x):
    return x.cumsum(0)


def running_log_sum_exp(x):
    return x.logcumsumexp(-1)


def full_sum(x):
    return x.sum()


def normalize_batch(x, weight, bias):
    return F.relu(F.batch_norm(x, None, None, weight, bias, True))


def routing(x):
    values, experts = x.softmax(-1).topk(8)
    return values / values.sum(-1, keepdim=True), experts


def greatest(x):
    return x.topk(64)


def sorted_rows(x):
    return x.sort(dim=-1, stable=True)


def nucleus(x):
    values, tokens = x.float().sort(dim=-1, descending=True, stable=True)
    p = values.softmax(-1)
    return torch.where(p.cumsum(-1) - p > 0.9, 0.0, p), tokens


def embedding_gradient(g, tokens):
    return torch.ops.aten.embedding_dense_backward(g, tokens, 32000, -1, False)


def depthwise_gradient(g, x, w):
    """Of the weight of a depthwise convolution that moves by one pixel."""
    rest = None, [1, 1], [1, 1], [1, 1], False, [0, 0], x.shape[1], [False, True, False]
    return torch.ops.aten.convolution_backward(g, x, w, *rest)[1]


def cases() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]]:
    """Function, arguments, bytes that it has to move."""
    make = lambda *size: torch.randn(*size, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    x, y, w, b = make(ROWS, COLUMNS), make(ROWS, COLUMNS), make(COLUMNS), make(COLUMNS)
    one = x.numel() * 2
    logits, targets = make(4096, 32000), torch.randint(0, 32000, (4096,), device="cuda")
    keys, k = make(1, 32, 4096, 128), make(1, 32, 1, 128)
    cache = keys, keys.clone(), torch.tensor([77], device="cuda"), k, k.clone(), make(128), make(128)
    wide, groups = x.float(), torch.randint(0, 1024, (ROWS,), device="cuda")
    images = make(64, 128, 56, 56).to(memory_format=torch.channels_last), make(128).float(), make(128).float()
    short = make(8192, 1024)
    distinct = lambda rows, n: torch.rand(rows, n, device="cuda").argsort(-1).float() / 16  # noqa: E731
    pixels = [make(32, 144, 56, 56).to(memory_format=torch.channels_last) for _ in range(2)]
    grads, tokens = make(16384, 1024), torch.randint(0, 32000, (16384,), device="cuda")
    return {
        "softmax + x, LayerNorm": (softmax_layernorm, (x, w, b), 2 * one),
        "dropout + residual + LayerNorm": (dropout_residual_layernorm, (x, y, w, b), 3 * one),
        "cross-entropy 4096x32000": (cross_entropy, (logits, targets), logits.numel() * 2),
        "residual + RMSNorm": (residual_rmsnorm, (x, y, w), 4 * one),
        "bias + GELU": (bias_gelu, (x, b), 2 * one),
        "argmax over rows": (argmax, (x,), one),
        "row sum": (row_sum, (x,), one),
        "column sum": (column_sum, (x,), one),
        "cumsum over rows 8192x4096": (running_sum, (x,), 2 * one),
        "cumsum of 32M": (running_sum, (x.view(-1),), 2 * one),
        "cumsum over columns 8192x4096": (running_sum_of_columns, (x,), 2 * one),
        "logcumsumexp over rows": (running_log_sum_exp, (x,), 2 * one),
        "sum of 32M": (full_sum, (x,), one),
        "batch norm (training) + ReLU, NHWC": (normalize_batch, images, 2 * images[0].numel() * 2),
        "depthwise weight gradient 3x3, NHWC": (
            depthwise_gradient, (*pixels, make(144, 1, 3, 3)), 2 * pixels[0].numel() * 2),
        "softmax, topk 8 of 64, normalized": (routing, (distinct(1 << 17, 64),), (1 << 17) * (64 * 4 + 8 * (4 + 8))),
        "topk 64 of 1024": (greatest, (distinct(8192, 1024),), 8192 * (1024 * 4 + 64 * (4 + 8))),
        "sort rows of 128": (sorted_rows, (short.view(-1, 128),), short.numel() * (2 + 2 + 8)),
        "sort rows of 1024": (sorted_rows, (short,), short.numel() * (2 + 2 + 8)),
        "sort rows of 4096, float32": (sorted_rows, (wide,), wide.numel() * (4 + 4 + 8)),
        "sort, softmax, cumsum of 4096": (nucleus, (x[:512],), 512 * 4096 * (2 + 4 + 8)),
        "embedding backward 16384x1024": (embedding_gradient, (grads, tokens), grads.numel() * 2 + 32000 * 1024 * 2),
        "transpose + add": (transpose_add, (x, make(COLUMNS, ROWS)), 3 * one),
        "rotary + write of a KV cache": (write_cache, cache, 4 * k.numel() * 2),
        "index_add of rows": (sums_of_groups, (wide, groups), 4 * (wide.numel() + 2 * wide[:1024].numel())),
    }


def copy_of(moved: int) -> Callable[[], Any]:
    """A copy that reads and writes `moved` bytes together."""
    source = torch.empty(moved // 2, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def bandwidth() -> float:
    """Bytes a second that a copy of 1 GiB reads and writes."""
    return (2 << 30) / gpu_interleaved({"copy": copy_of(2 << 30)}, 20)["copy"]


def errors(fn: Callable[..., Any], ours: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> tuple[float, float]:
    """The largest error of `ours` as a share of the largest value, and what is allowed; the reference is float64."""

    def results(fn: Callable[..., Any], precise: bool) -> list[torch.Tensor]:
        copies = [x.double() if precise and x.is_floating_point() else x.clone() for x in args]
        out = tensors(fn(*copies))
        return [x.double() for x in (*out, *copies)] if precise else [*out, *copies]

    exact, eager = results(fn, True), results(fn, False)
    got = results(ours, False)
    if any(x.dtype != y.dtype for x, y in zip(got, eager)):
        return math.inf, 0.0
    error, of_eager = (relative_error([x.double() for x in each], exact) for each in (got, eager))
    return error, max(TOLERANCE, of_eager)


def kernel_rows(rounds: int, speed: float, only: str | None) -> list[dict[str, Any]]:
    rows = []
    for name, (fn, args, moved) in cases().items():
        if only and only not in name:
            continue
        torch.compiler.reset()
        ours, theirs = pyframe.compile(fn), torch.compile(fn)
        random = "dropout" in name
        error, allowed = (0.0, 0.0) if random else errors(fn, ours, args)
        for _ in range(3):
            ours(*args), theirs(*args)
        t = gpu_interleaved(systems(fn, args, theirs, ours) | {"copy": copy_of(moved)}, rounds)
        floor = moved / speed
        rows.append(
            {
                "kernel": name,
                "eager us": t["eager"] * 1e6,
                "torch.compile us": t["torch.compile"] * 1e6,
                "pyframe us": t["pyframe"] * 1e6,
                "floor us": floor * 1e6,
                "copy us": t["copy"] * 1e6,
                "floor / pyframe": floor / t["pyframe"],
                "copy / pyframe": t["copy"] / t["pyframe"],
                "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
                "relative error": "random" if random else error,
                "right": random or error <= allowed,
            }
        )
    return rows


def chain(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Softmaxes along one dimension and the other in turn, which cannot be one kernel."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in range(count):
            x = x.softmax(k % 2)
        return x

    return fn


def host_rows(rounds: int, mode: str) -> list[dict[str, Any]]:
    rows = []
    for count in (1, 5, 50):
        torch.compiler.reset()
        fn, x = chain(count), torch.randn(64, 64, device="cuda")
        ours, theirs = pyframe.compile(fn, mode=mode), torch.compile(fn, mode=mode)
        for _ in range(10):
            ours(x), theirs(x)
        error = relative_error(ours(x), fn(x))
        calls = max(1, 500 // count)
        t = host_interleaved(systems(fn, (x,), theirs, ours), rounds, calls)
        rows.append(
            {
                "tiny dependent softmaxes": count,
                "eager us": t["eager"] * 1e6,
                "torch.compile us": t["torch.compile"] * 1e6,
                "pyframe us": t["pyframe"] * 1e6,
                "pyframe kernels": pyframe.counters["kernels"],
                "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
                "relative error": error,
            }
        )
        pyframe.reset()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", help="kernels whose name contains this")
    parser.add_argument("--host-time", action="store_true", help="only the host time of calls")
    parser.add_argument("--mode", choices=MODES, default="default", help="of torch.compile and pyframe; for host time")
    parser.add_argument("--threads", type=int, help="cpu: of each kernel; by default the number of cores")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, help="cpu: not all three")
    parser.add_argument("--seconds", type=float, default=1.0, help="cpu: of timing for each row")
    options = parser.parse_args()
    if options.device == "cpu":
        kernels_cpu.main(options.only, options.sizes, options.seconds, options.threads)
        return
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.kernels needs a GPU")
    with torch.no_grad():
        if options.host_time or options.mode != "default":
            report(in_mode("host_time_cuda", options.mode), host_rows(options.rounds, options.mode))
            return
        speed = bandwidth()
        rows = kernel_rows(options.rounds, speed, options.only)
        ratios = [r["torch.compile / pyframe"] for r in rows]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        report("kernels_cuda", rows, bandwidth_bytes_per_second=speed, geomean_over_torch_compile=mean)
        print(f"geometric mean over torch.compile: {mean:.2f}; copy bandwidth {speed / 1e12:.2f} TB/s")
        if not options.only:
            report("host_time_cuda", host_rows(options.rounds, options.mode))


if __name__ == "__main__":
    main()
