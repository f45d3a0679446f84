"""100 steps of a small GPT with AdamW, eager and compiled from the same seed, side by side.

    python examples/train_gpt.py [--steps 100]

The text is generated here. Exits with status 1 if a compiled loss differs from eager's by more than 1% (the two round
differently, and training amplifies that slowly). Uses the GPU if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.nn.functional as F

import pyframe
from benchmarks.programs import GPT

TOLERANCE = 0.01
BATCH, TIME = 8, 64


def text(words: int = 4000) -> str:
    """Sentences of a tiny grammar."""
    choose = random.Random(0)
    nouns, verbs, places = "cat dog bird fish".split(), "sees likes follows hears".split(), "house river tree".split()
    parts = []
    for _ in range(words // 8):
        who, does, whom = choose.choice(nouns), choose.choice(verbs), choose.choice(nouns)
        parts.append(f"the {who} {does} the {whom} by the {choose.choice(places)}. ")
    return "".join(parts)


def batches(data: torch.Tensor, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(inputs, targets) of each step, the same for both runs."""
    generator = torch.Generator().manual_seed(1)
    out = []
    for _ in range(steps):
        starts = torch.randint(0, len(data) - TIME - 1, (BATCH,), generator=generator)
        chunk = torch.stack([data[s : s + TIME + 1] for s in starts])
        out.append((chunk[:, :-1].contiguous(), chunk[:, 1:].contiguous()))
    return out


def train(wrap: Callable[..., Any], data: list[Any], vocab: int, device: str) -> tuple[list[float], float]:
    """Losses, and seconds after the first step."""
    torch.manual_seed(0)
    model = GPT(vocab=vocab, layers=4, d=128, heads=4, block=TIME).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())

    forward, losses, start = wrap(loss_of), [], 0.0
    for step, (ids, targets) in enumerate(data):
        loss = forward(ids.to(device), targets.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            start = time.perf_counter()
    return losses, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    characters = sorted(set(text()))
    data = torch.tensor([characters.index(c) for c in text()])
    steps = batches(data, options.steps)
    eager, eager_seconds = train(lambda fn: fn, steps, len(characters), device)
    ours, our_seconds = train(pyframe.compile, steps, len(characters), device)
    print("step   eager      compiled")
    for i in range(0, options.steps, max(1, options.steps // 20)):
        print(f"{i:4d}   {eager[i]:.6f}   {ours[i]:.6f}")
    worst = max(abs(a - b) / a for a, b in zip(eager, ours))
    print(f"last   {eager[-1]:.6f}   {ours[-1]:.6f}")
    print(f"largest relative difference {worst:.2e} (at most {TOLERANCE} is accepted)")
    print(f"seconds after the first step: eager {eager_seconds:.2f}, compiled {our_seconds:.2f}; device {device}")
    print(f"graphs {pyframe.counters['graphs']}, breaks {sum(pyframe.counters['graph_breaks'].values())}")
    if not worst <= TOLERANCE:
        print("MISMATCH: the loss curves differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
