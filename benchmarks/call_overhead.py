"""Measures the time of a call of functions that compute almost nothing.

    python -m benchmarks.call_overhead
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .harness import report
from .models import compared
from .programs import make_mlp


def tiny(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def row(name: str, fn: Callable[..., Any], args: tuple[Any, ...], calls: int) -> dict[str, Any]:
    t, error = compared(fn, args, warm=20, rounds=31, calls=calls)
    return {
        "program": name,
        "eager us": t["eager"] * 1e6,
        "torch.compile us": t["torch.compile"] * 1e6,
        "pyframe us": t["pyframe"] * 1e6,
        "pyframe / eager": t["pyframe"] / t["eager"],
        "pyframe / torch.compile": t["pyframe"] / t["torch.compile"],
        "relative error": error,
    }


def main() -> None:
    with torch.no_grad():
        rows = [
            row("x.sin()+1, 4 elements", tiny, (torch.randn(4),), calls=1000),
            row("12-layer MLP, 8x64", *make_mlp(), calls=100),
        ]
    report("call_overhead", rows)


if __name__ == "__main__":
    main()
