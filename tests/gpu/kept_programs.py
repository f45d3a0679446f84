"""Programs whose captures one process keeps on disk and another one loads. Prints what each gave as JSON.

    python tests/gpu/kept_programs.py MODE OUTPUT [DEVICE]

They run in one process one after the other; the log on stderr says which one runs. The first one finds CUDA
uninitialized.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pyframe

MARK = "== program: "  # before the name, in the log
DEVICE = "cuda"
MODES = ("default", "reduce-overhead", "max-autotune")
COMPILER = ("inductor.compile", "inductor.codegen", "pyframe.driver", "sympy")  # not imported for graphs of fixed sizes
Call = tuple[Any, ...]


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


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.norm(self.first(x))).mean((2, 3)))


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return (x.softmax(-1) * 2 + x).sum(-1)


def moved(x: torch.Tensor) -> torch.Tensor:
    y = x.to(DEVICE) if DEVICE == "cpu" else x.cuda()
    return (y.sin() * 2).sum(-1)


def norm(x: torch.Tensor) -> torch.Tensor:
    return (x.softmax(-1) * x.shape[0]).sum(-1)


def flattened(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x.reshape(x.shape[0] * 2, -1) @ weight
    return torch.cat([y, y.mean(0, keepdim=True)]).view(-1, 4, 4).amax(-1)


def numbers(x: torch.Tensor, n: int) -> torch.Tensor:
    return (x * 2 + n).sum(-1)


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    pyframe.graph_break()
    return y.cos() * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y + 1 if y.sum() > 0 else y - 1


def creates(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().to(x.device) + torch.arange(8, device=x.device) + torch.ones(8, device=x.device)


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.t()
    x.add_(1)
    return y[1:], (x * 2).exp(), x


def cast(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return (x @ weight).relu() @ weight


def drawn(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5) + torch.rand_like(x)


def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y).relu().square().mean()


def mean_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ y).tanh() / x.shape[0]).sum()


def broken_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = (x @ y).tanh()
    pyframe.graph_break()
    return z.square().sum()


def reads_a_number(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.clamp(x * 2, max=n) + torch.full((1,), n, device=x.device)


def timed(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2 + 1, -1).cumsum(-1)


@dataclass
class Program:
    """A function or a module, which `make` returns with the arguments of its calls. `gradients`: of its arguments, and
    of the parameters. `random`: its results differ from eager's, and have to be those of another process. `modes`: in
    which it runs."""

    make: Callable[[], tuple[Any, list[Call]]]
    gradients: bool = False
    random: bool = False
    inference: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    modes: tuple[str, ...] = MODES[:2]
    devices: int = 1


def rows(*sizes: int, width: int = 64, device: str | None = None) -> list[Call]:
    return [(torch.linspace(-1, 1, n * width, device=device or DEVICE).reshape(n, width),) for n in sizes]


def square() -> torch.Tensor:
    return torch.linspace(-1, 1, 256, device=DEVICE).reshape(16, 16)


def on_both() -> list[Call]:
    return [call for _ in range(3) for device in ("cuda:0", "cuda:1") for call in rows(8, device=device)]


PROGRAMS: dict[str, Program] = {
    "from the CPU": Program(lambda: (moved, rows(4, 4, 4, device="cpu"))),
    "model": Program(lambda: (Net().to(DEVICE).eval(), rows(*[48] * 8)), modes=MODES),
    "images": Program(lambda: (Images().to(DEVICE).eval(), [(torch.ones(2, 3, 9, 9, device=DEVICE),)] * 4)),
    "sizes": Program(lambda: (norm, rows(8, 24, 40, 56)), modes=MODES),
    "sizes of two inputs": Program(
        lambda: (flattened, [(*rows(2 * n, width=8)[0], square()[:4]) for n in (2, 6, 10, 14)])
    ),
    "numbers": Program(lambda: (numbers, [(square(), n) for n in (3, 5, 7, 9)])),
    "breaks": Program(lambda: (breaks, rows(4, 4, 4))),
    "branches": Program(lambda: (branches, rows(4, 4))),
    "creates": Program(lambda: (creates, [(torch.ones(8, device=DEVICE),)] * 3)),
    "views": Program(lambda: (views, [(square(),) for _ in range(3)])),
    "inference mode": Program(lambda: (lambda x: norm(x) * 3, rows(8, 8, 8)), inference=True),
    "autocast": Program(lambda: (cast, [(square(), square())] * 3)),
    "random": Program(lambda: (drawn, rows(32, 32, 32)), random=True),
    "measured": Program(lambda: (timed, rows(*[512] * 100, width=512)), options={"measure": True}, modes=MODES[:1]),
    "reads a number": Program(lambda: (reads_a_number, [(square(), torch.tensor(3, device=DEVICE))] * 3)),
    "two GPUs": Program(lambda: (row_sums, on_both()), devices=2),
    "training": Program(lambda: (loss, [(square(), square() + 1)] * 3), gradients=True, modes=MODES),
    "training of a model": Program(
        lambda: (Images().to(DEVICE), [(torch.randn(4, 3, 9, 9).to(DEVICE),) for _ in range(3)]), gradients=True
    ),
    "training with sizes": Program(lambda: (mean_loss, [(square()[:n], square()) for n in (4, 8, 12)]), gradients=True),
    "training with a break": Program(lambda: (broken_loss, [(square(), square() + 1)] * 3), gradients=True),
}  # fmt: skip


def values(program: Program, run: Any, given: Call, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a call, or the gradients."""
    if not program.gradients:
        around = torch.inference_mode() if program.inference else torch.no_grad()
        with around:
            result = run(*[x.clone() if isinstance(x, torch.Tensor) else x for x in given])
            return [x.clone() for x in (result if isinstance(result, tuple) else (result,))]
    inputs = [x.detach().clone().requires_grad_() for x in given]
    run(*inputs).sum().backward()
    found = [x.grad.clone() for x in (*inputs, *parameters) if x.grad is not None]
    for x in parameters:
        x.grad = None
    return found


def outcome(program: Program, mode: str) -> dict[str, Any]:
    """What a program gave, and what that took."""
    torch.manual_seed(0)
    fn, calls = program.make()
    parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    compiled = pyframe.compile(fn, mode=None if mode == "default" else mode, options=program.options or None)
    torch.manual_seed(1)
    found = [values(program, compiled, given, parameters) for given in calls]
    after = torch.rand(1, device=DEVICE)
    counters = {name: dict(n) if isinstance(n, dict) else n for name, n in pyframe.counters.items()}
    if program.random:
        results = [float(x.sum()) for one in found for x in one] + [float(after)]
        right = all(bool(x.isfinite().all()) for one in found for x in one)
    else:
        results = []
        expected = [values(program, fn, given, parameters) for given in calls]
        right = all(
            len(one) == len(other) and all(torch.allclose(a, b, 1e-2, 1e-3) for a, b in zip(one, other, strict=True))
            for one, other in zip(expected, found, strict=True)
        )
    names = {
        "loaded": "frames_loaded", "kept": "frames_kept", "traced": "instructions_traced", "misses": "cache_misses",
        "hits": "cache_hits", "recorded": "cudagraphs_recorded", "refused": "frames_refused",
        "per size": "graphs_per_size", "measured": "graphs_measured", "reasons": "frames_not_kept",
    }  # fmt: skip
    imported = [name for name in COMPILER if name in sys.modules]
    return {"right": right, "results": results, "imported": imported, **{short: counters.get(name, 0) for short, name in names.items()}}


@contextlib.contextmanager
def failures_in(found: dict[str, Any]) -> Iterator[None]:
    """Notes what a program raises, so that the others run."""
    try:
        yield
    except Exception:  # noqa: BLE001  of whatever kind: the test of this program shows it
        found["error"] = traceback.format_exc()


def main(mode: str, output: str, device: str = "cuda") -> None:
    global DEVICE
    DEVICE = device
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, dict[str, Any]] = {}
    for name, program in PROGRAMS.items():
        if mode not in program.modes or program.devices > 1 and torch.cuda.device_count() < program.devices:
            continue
        print(f"{MARK}{name}", file=sys.stderr, flush=True)
        pyframe.reset()
        found[name] = {}
        with failures_in(found[name]):
            found[name].update(outcome(program, mode))
    Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
