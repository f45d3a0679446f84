"""Programs as users write them: captured and compiled they do what they do eagerly.

`language_programs` and `interface_programs` are about the capture, whose graphs run as they are; of the others those in
COMPILED are compiled, and the rest captured, but for those in LONG. `python tests/programs/run_programs.py` compiles all of them.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch

import pyframe

sys.path.insert(0, str(Path(__file__).parent))
import autograd_programs  # noqa: E402
import interface_programs  # noqa: E402
import language_programs  # noqa: E402
import operator_programs  # noqa: E402
import tutorial_programs  # noqa: E402
from programs_support import check, programs_of  # noqa: E402

MODULES = (language_programs, interface_programs, tutorial_programs, operator_programs, autograd_programs)
CASES = {name: case for module in MODULES for name, case in programs_of(module).items()}
RESULT = "result: "
COMPILED = {
    "rope_complex", "nn_tutorial_whole_step", "custom_autograd_legendre", "set_grad_between", "decorators",
    "partial_requires_grad", "unused_and_multi", "dropout_reproducible", "inplace_inputs",
}  # fmt: skip
# Those that take seconds: left to `run_programs.py`.
LONG = {"dynamic_batches", "jacobians", "parametrizations", "transformer_lm", "dcgan", "noncontiguous"}


NAMES = [name for name in CASES if name not in LONG]


def run_all() -> None:
    """Each program in turn, and a line of JSON with what was wrong with it: null for nothing."""
    for name in NAMES:
        random.seed(0)
        torch.manual_seed(0)
        pyframe.reset()
        wrong = None
        try:
            check(CASES[name], "inductor" if name in COMPILED else "eager")
        except Exception:  # noqa: BLE001  whatever it is, is reported
            wrong = traceback.format_exc()
        print(RESULT + json.dumps([name, wrong]), flush=True)


@pytest.fixture(scope="module")
def results():
    """What came of each program, in a process of their own: some change much of torch's state."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    lines = [line.removeprefix(RESULT) for line in done.stdout.splitlines() if line.startswith(RESULT)]
    return dict(map(json.loads, lines)), done


@pytest.mark.parametrize("name", NAMES)
def test_program(name, results):
    found, done = results
    assert name in found, f"the process ended with {done.returncode}: {done.stderr[-2000:]}"
    assert found[name] is None, found[name]


def test_every_named_program_exists():
    assert set(CASES) >= COMPILED | LONG


if __name__ == "__main__":
    run_all()
