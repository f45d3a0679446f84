"""Captures of programs on a GPU that one process keeps on disk and another loads: nothing is traced nor compiled, and
results are those of eager, with CUDA graphs too. `kept_programs` has the programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from kept_programs import MARK, MODES, PROGRAMS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ROOT = Path(__file__).parent.parent.parent
CASES = [(mode, name) for mode in MODES for name, program in PROGRAMS.items() if mode in program.modes]


@dataclass
class Process:
    """What a process that ran the programs gave, and its log, by program."""

    outcomes: dict[str, dict[str, Any]]
    logs: dict[str, list[str]]


def run(mode: str, folder: Path, which: str) -> Process:
    output = folder / f"{mode}-{which}.json"
    env = {
        **os.environ, "PYFRAME_CACHE_DIR": str(folder / mode), "PYFRAME_FRAME_CACHE": "on", "PYFRAME_MEASURE": "0",
        "PYFRAME_LOGS": "cache,keys,sizes,cudagraphs", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, str(Path(__file__).with_name("kept_programs.py")), mode, str(output)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    logs: dict[str, list[str]] = {}
    name = ""
    for line in done.stderr.splitlines():
        if line.startswith(MARK):
            name = line.removeprefix(MARK)
        logs.setdefault(name, []).append(line)
    return Process(json.loads(output.read_text()), logs)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Process, Process]]:
    """For each mode the process that fills a cache, and the one that starts after it."""
    folder = tmp_path_factory.mktemp("kept")
    with ThreadPoolExecutor(len(MODES)) as pool:
        first = list(pool.map(lambda mode: run(mode, folder, "first"), MODES))
        second = list(pool.map(lambda mode: run(mode, folder, "second"), MODES))
    return {mode: pair for mode, *pair in zip(MODES, first, second, strict=True)}  # type: ignore[misc]


@pytest.mark.parametrize(("mode", "name"), CASES, ids=[f"{mode}-{name}" for mode, name in CASES])
def test_a_second_process_traces_and_compiles_nothing(
    processes: dict[str, tuple[Process, Process]], mode: str, name: str
) -> None:
    cold, warm = processes[mode]
    if name not in cold.outcomes:
        pytest.skip("there is one GPU")
    first, second = cold.outcomes[name], warm.outcomes[name]
    shown = f"\nfirst: {first}\nsecond: {second}\n{different_keys(cold.logs[name], warm.logs[name])}"
    log = "\n".join(["", *(line[:300] for line in warm.logs[name] if line.startswith("["))])
    assert "error" not in first, first["error"]
    assert "error" not in second, second["error"]
    assert first["right"] and second["right"] and first["results"] == second["results"], shown
    assert first["kept"] > 0 and not first["reasons"], shown
    assert (second["traced"], second["kept"], second["refused"]) == (0, 0, 0), shown + log
    assert second["misses"] == 0, shown + log
    assert second["loaded"] == first["kept"], shown + log
    if mode == "reduce-overhead":
        assert bool(second["recorded"]) is bool(first["recorded"]), shown + log
    assert second["measured"] == 0, shown  # what was found to be faster is known
    if name in ("from the CPU", "model", "images"):  # the first ones
        assert second["imported"] == [], shown


# ---- why a graph was compiled again


def different_keys(first: Sequence[str], second: Sequence[str]) -> str:
    """The keys of graphs in the log of the second process that the first one did not have, each with what differs from
    the most similar key of the first one."""
    before, found = keys_in(first), []
    for header, parts in keys_in(second).items():
        if header in before:
            continue
        alike = [other for kept, other in before.items() if kept.split()[0] == header.split()[0]]
        nearest = max(alike, key=lambda other: sum(a == b for a, b in zip(other, parts)), default=None)
        found.append(f"new key: {header}")
        found += ["  there is no other key of this kind"] if nearest is None else differences(nearest, parts)
    return "\n".join(found)


def keys_in(log: Sequence[str]) -> dict[str, list[str]]:
    """The parts of each key in a log, by its first line."""
    found: dict[str, list[str]] = {}
    parts: list[str] | None = None
    for line in log:
        if line.startswith("[keys] "):
            parts = found.setdefault(line.removeprefix("[keys] "), [])
        elif line.startswith("    ") and parts is not None:
            parts.append(line.strip())
        else:
            parts = None
    return found


def differences(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """What two lists of parts do not share. Long parts are compared word by word."""
    if len(one) != len(other):
        return [f"  {len(one)} parts, now {len(other)}", *(f"  was {a}" for a in one), *(f"  is  {b}" for b in other)]
    found = []
    for a, b in zip(one, other, strict=True):
        if a != b:
            words = [(x, y) for x, y in zip(re.split(", ", a), re.split(", ", b)) if x != y]
            found.append(f"  was {a[:200]}\n  is  {b[:200]}\n  in  {words[:12]}")
    return found


def test_different_keys_are_told() -> None:
    first = ["[keys] graph 1:", "    (a, b, c)", "    x", "[cache] graph 1: miss", "    no part"]
    second = ["[keys] graph 2:", "    (a, d, c)", "    x"]
    shown = different_keys(first, second)
    assert shown == "new key: graph 2:\n  was (a, b, c)\n  is  (a, d, c)\n  in  [('b', 'd')]"
    assert different_keys(first, first) == ""
