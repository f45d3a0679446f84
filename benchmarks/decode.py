"""Time of one token of a decoder with a static key and value cache, batch 1, in bfloat16.

    python -m benchmarks.decode
    python -m benchmarks.decode --tiny --device cpu

Each mode of pyframe beside the same mode of torch.compile, and eager. Wall time from an idle GPU to an idle GPU over
several tokens. The floor is the time to read the weights at the bandwidth of a copy of 1 GiB. Errors: the logits of
several tokens in a row against eager's on a cache of its own, in percent of the norm; "right" if pyframe's are at most
twice torch.compile's, or under 5 %. ATen calls are those that the host makes for one token.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pyframe

from .harness import report
from .programs import mean_error

CHECKED = 8  # tokens whose logits are compared


@dataclass(frozen=True)
class Config:
    """`llama`: RMSNorm, rotary positions and a gated MLP; otherwise LayerNorm, learned positions and GELU."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocab: int
    length: int
    llama: bool


CONFIGS = {
    "decoder 1.26B": Config(22, 2048, 16, 5632, 32000, 1024, True),
    "GPT 124M": Config(12, 768, 12, 3072, 50304, 1024, False),
}
TINY = {"tiny decoder": Config(2, 32, 2, 64, 64, 16, True), "tiny GPT": Config(2, 32, 2, 64, 64, 16, False)}


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, width = config, config.width
        norm = nn.RMSNorm if config.llama else nn.LayerNorm
        self.one, self.two = norm(width), norm(width)
        bias = not config.llama
        self.qkv, self.out = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        self.up, self.down = nn.Linear(width, config.hidden, bias), nn.Linear(config.hidden, width, bias)
        self.gate = nn.Linear(width, config.hidden, False) if config.llama else None
        shape = 1, config.heads, config.length, width // config.heads
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        heads = self.config.heads
        q, k, v = self.qkv(self.one(x)).view(1, 1, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind()
        if self.gate is not None:
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(1, 1, -1))
        h = self.two(x)
        if self.gate is not None:
            return x + self.down(F.silu(self.gate(h)) * self.up(h))
        return x + self.down(F.gelu(self.up(h), approximate="tanh"))


class Decoder(nn.Module):
    """`forward(token, at)`: the logits after one more token, of shape (1,), at position `at`, of shape (1,)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.positions = None if config.llama else nn.Embedding(config.length, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = (nn.RMSNorm if config.llama else nn.LayerNorm)(config.width)
        self.head = nn.Linear(config.width, config.vocab, False)
        half = config.width // config.heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half), persistent=False)
        self.register_buffer("places", torch.arange(config.length), persistent=False)
        if not config.llama:
            self.head.weight = self.embedding.weight

    def forward(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token)[None]
        if self.positions is not None:
            x = x + self.positions(at)[None]
        mask = (self.places <= at)[None, None, None]
        angles = at.float() * self.frequencies.float()
        for layer in self.layers:
            x = layer(x, at, mask, angles)
        return self.head(self.norm(x))[0, 0]


def made(config: Config, device: str) -> Decoder:
    torch.manual_seed(0)
    return Decoder(config).eval().to(device, torch.bfloat16)


def logits(model: Decoder, step: Callable[..., torch.Tensor], count: int, device: str) -> torch.Tensor:
    """The logits of `count` tokens in a row, from an empty cache; results are kept as they are."""
    for layer in model.layers:
        layer.keys.zero_(), layer.values.zero_()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.config.vocab, (count, 1), generator=generator).to(device)
    kept = [step(token, torch.tensor([k], device=device)) for k, token in enumerate(tokens)]
    return torch.stack(kept).float()


def aten_calls(run: Callable[[], Any]) -> int:
    """The calls of ATen operators that the host makes, those within other ATen operators apart."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    events = [event for event in profile.events() if event.name.startswith("aten::")]
    return sum(event.cpu_parent is None or not event.cpu_parent.name.startswith("aten::") for event in events)


def token_time(run: Callable[[], Any], device: str, rounds: int, tokens: int) -> float:
    """Median seconds per token."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    samples = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        for _ in range(tokens):
            run()
        wait()
        samples.append((time.perf_counter() - start) / tokens)
    return statistics.median(samples)


def bandwidth(device: str) -> float:
    """Bytes a second that a copy reads and writes."""
    source = torch.empty(1 << (30 if device == "cuda" else 24), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / token_time(lambda: target.copy_(source), device, 5, 10)


def read_bytes(model: Decoder) -> int:
    """Bytes of weights that one token reads: not those of embeddings, of which it reads a row."""
    skipped = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} - {id(model.head.weight)}
    return sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in skipped)


def rows_of(name: str, config: Config, modes: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    device, rows = options.device, []
    model = made(config, device)
    want = logits(model, model, CHECKED, device)
    floor = read_bytes(model) / bandwidth(device)
    token, at = torch.tensor([3], device=device), torch.tensor([config.length // 2], device=device)
    peer_error = None
    for system, mode in [("eager", ""), *((s, mode) for mode in modes for s in ("torch.compile", "pyframe"))]:
        torch.compiler.reset()
        pyframe.reset()
        compiler = {"torch.compile": torch.compile, "pyframe": pyframe.compile}.get(system)
        start = time.perf_counter()
        step = model if compiler is None else compiler(model, mode=mode)
        marked = keep_or_clone(step, system)
        got = logits(model, marked, CHECKED, device)
        first = time.perf_counter() - start
        error = mean_error(got, want)
        peer_error = error if system == "torch.compile" else peer_error
        run = lambda step=step: step(token, at)  # noqa: E731
        for _ in range(5):
            run()
        seconds = token_time(run, device, options.rounds, options.tokens)
        rows.append(
            {
                "model": name, "system": system, "mode": mode, "ms a token": seconds * 1e3, "floor ms": floor * 1e3,
                "ATen calls": aten_calls(run), "recorded": pyframe.counters["cudagraphs_recorded"],
                "first tokens s": first, "% off eager": 100 * error,
                "right": system != "pyframe" or error <= max(0.05, 2 * (peer_error or 0.0)),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def keep_or_clone(step: Callable[..., torch.Tensor], system: str) -> Callable[..., torch.Tensor]:
    """torch.compile overwrites results that are kept, so they are cloned; pyframe's are kept as they are."""
    if system != "torch.compile":
        return step

    def cloned(*args: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return step(*args).clone()

    return cloned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--mode", action="append", help="of both; default and reduce-overhead if none is given")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--tiny", action="store_true", help="small models that run anywhere; writes no results")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--tokens", type=int, default=20)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("benchmarks.decode needs a GPU, or --device cpu")
    modes = options.mode or ["default", "reduce-overhead"]
    rows = []
    with torch.no_grad():
        for name, config in (TINY if options.tiny else CONFIGS).items():
            if options.only.lower() in name.lower():
                rows += rows_of(name, config, modes, options)
    if not options.tiny:
        report(f"decode_{options.device}", rows)
    if not all(row["right"] for row in rows):
        raise SystemExit("wrong results")


if __name__ == "__main__":
    main()
