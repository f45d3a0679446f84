"""Captures of programs on a GPU that one process keeps on disk and another loads: nothing is traced, and results are
those of eager, with CUDA graphs too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pyframe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ROOT = Path(__file__).parent.parent.parent
MODES = ("default", "reduce-overhead", "max-autotune")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(3))
        self.register_buffer("rows", torch.zeros(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        self.rows.copy_(x[:32])
        return torch.softmax(self.rows @ self.rows.t(), -1).sum(0)


def norm(x: torch.Tensor) -> torch.Tensor:
    return (x.softmax(-1) * x.shape[0]).sum(-1)


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    pyframe.graph_break()
    return y.cos() * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y + 1 if y.sum() > 0 else y - 1


def creates(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().cuda() + torch.arange(8, device="cuda") + torch.ones(8, device=x.device)


def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).relu().square().mean()


def rows(*sizes: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.linspace(-1, 1, size * 64, device="cuda").reshape(size, 64),) for size in sizes]


def programs() -> dict[str, tuple[Any, list[tuple[torch.Tensor, ...]], bool]]:
    """The programs, the arguments of their calls, and whether they have gradients."""
    torch.manual_seed(0)
    square = torch.linspace(-1, 1, 256, device="cuda").reshape(16, 16)
    return {
        "model": (Net().cuda().eval(), rows(*[48] * 6), False),
        "sizes": (norm, rows(8, 24, 40, 56), False),
        "breaks": (breaks, rows(4, 4, 4), False),
        "branches": (branches, rows(4, 4), False),
        "creates": (creates, [(torch.ones(8, device="cuda"),)] * 2, False),
        "training": (loss, [(square, square + 1)] * 3, True),
        "training with sizes": (loss, [(square[:n], square + 1) for n in (4, 8, 12)], True),
    }


def values(fn: Any, given: tuple[torch.Tensor, ...], with_gradients: bool) -> list[torch.Tensor]:
    if not with_gradients:
        with torch.no_grad():
            return [fn(*given).clone()]
    inputs = [x.detach().clone().requires_grad_() for x in given]
    fn(*inputs).backward()
    return [x.grad for x in inputs if x.grad is not None]


def outcome(fn: Any, calls: list[tuple[torch.Tensor, ...]], with_gradients: bool, mode: str) -> dict[str, Any]:
    pyframe.reset()
    expected = [values(fn, given, with_gradients) for given in calls]
    compiled = pyframe.compile(fn, mode=None if mode == "default" else mode)
    found = [values(compiled, given, with_gradients) for given in calls]
    right = all(
        torch.allclose(a, b, 1e-3, 1e-4)
        for one, other in zip(expected, found, strict=True) for a, b in zip(one, other, strict=True)
    )
    counters = pyframe.counters
    return {
        "right": right, "loaded": counters["frames_loaded"], "kept": counters["frames_kept"],
        "traced": counters["instructions_traced"], "misses": counters["cache_misses"],
        "recorded": counters["cudagraphs_recorded"], "reasons": list(counters["frames_not_kept"]),
    }  # fmt: skip


def run(mode: str, folder: Path) -> dict[str, dict[str, Any]]:
    env = {
        **os.environ, "PYFRAME_CACHE_DIR": str(folder / mode), "PYFRAME_FRAME_CACHE": "on", "PYFRAME_MEASURE": "0",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, __file__, mode, str(folder / f"{mode}.json")]
    subprocess.run(command, env=env, check=True, cwd=ROOT)
    found: dict[str, dict[str, Any]] = json.loads((folder / f"{mode}.json").read_text())
    return found


@pytest.mark.parametrize("mode", MODES)
def test_a_second_process_traces_and_compiles_nothing(mode: str, tmp_path: Path) -> None:
    cold, warm = run(mode, tmp_path), run(mode, tmp_path)
    for name, first in cold.items():
        second = warm[name]
        assert first["right"] and second["right"], (name, first, second)
        assert first["kept"] > 0 and not first["reasons"], (name, first)
        assert second["loaded"] >= first["kept"] and second["traced"] == 0, (name, first, second)
        assert second["misses"] == 0, (name, second)
        assert bool(second["recorded"]) is bool(first["recorded"]), (name, first, second)


def main(mode: str, output: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    found = {name: outcome(*program, mode) for name, program in programs().items()}
    Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
