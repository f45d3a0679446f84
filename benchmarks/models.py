"""Speed of whole models against eager and torch.compile.

    python -m benchmarks.models --suite demo
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

import pyframe

from .harness import interleaved, report
from .programs import DEMO, relative_error

SUITES = {"demo": DEMO}


def row(name: str, make: Any, rounds: int) -> dict[str, Any]:
    fn, args = make()
    ours, theirs = pyframe.compile(fn), torch.compile(fn)
    want = fn(*args)
    error = relative_error(ours(*args), want)
    for _ in range(3):
        ours(*args), theirs(*args)
    t = interleaved(
        {"eager": lambda: fn(*args), "torch.compile": lambda: theirs(*args), "pyframe": lambda: ours(*args)},
        rounds=rounds,
        calls=3,
    )
    return {
        "model": name,
        "eager ms": t["eager"] * 1e3,
        "torch.compile ms": t["torch.compile"] * 1e3,
        "pyframe ms": t["pyframe"] * 1e3,
        "eager / pyframe": t["eager"] / t["pyframe"],
        "torch.compile / pyframe": t["torch.compile"] / t["pyframe"],
        "relative error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=sorted(SUITES), default="demo")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    with torch.no_grad():
        rows = [row(name, make, options.rounds) for name, make in SUITES[options.suite].items()]
    report(f"models_{options.suite}", rows)


if __name__ == "__main__":
    main()
