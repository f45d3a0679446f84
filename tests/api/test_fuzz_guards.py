"""A short run of tools/fuzz_guards.py: what programs depend on is changed between calls."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import fuzz_guards  # noqa: E402
import guard_programs  # noqa: E402
from guard_changes import Change  # noqa: E402

PLAIN = "import torch\nN = 2\ndef program(x):\n    return x * N\n"


@pytest.mark.parametrize("seed", [2])
def test_changes_of_a_random_program(seed):
    wrong = [tried for tried in fuzz_guards.try_program(seed, 20, ["pyframe"]) if not tried.right["pyframe"]]
    assert not wrong


def test_a_change_that_is_missed_is_found(monkeypatch):
    """A capture that never looks at its guards is caught."""
    monkeypatch.setattr(fuzz_guards, "program", lambda seed: (["plain"], PLAIN))
    monkeypatch.setattr(fuzz_guards, "found_changes", lambda text, seed: [Change("global", "N = 5")])

    def remembers(how, fn):
        first = []
        return fn if how == "eager" else lambda x: first[0] if first else first.append(fn(x)) or first[0]

    monkeypatch.setattr(fuzz_guards, "compiled_by", remembers)
    (tried,) = fuzz_guards.try_program(0, 4, ["pyframe"])
    assert tried.matters and not tried.right["pyframe"]


def test_every_feature_runs():
    for name, (definitions, use) in guard_programs.FEATURES.items():
        module: dict = {}
        random.seed(0)
        texts = [guard_programs.chosen(part, random.Random(0)) for part in (definitions, use)]
        body = "\n".join(f"    {line}" for line in ["pass", *texts[1].strip("\n").split("\n")])
        exec(f"{guard_programs.HEADER}\n{texts[0]}\ndef program(x, out):\n{body}", module)
        out: list = []
        module["program"](torch.ones(2, 3), out)
        assert out, name
