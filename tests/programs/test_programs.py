"""Programs as users write them: captured and compiled they do what they do eagerly.

Programs in COMPILED are compiled to kernels, those in LONG are left out because they take seconds, and the others are
captured and their graphs run as they are. `python tests/programs/run_programs.py` compiles all of them.
"""

from __future__ import annotations

import autograd_programs
import control_flow_programs
import interface_programs
import language_programs
import library_programs
import operator_programs
import pytest
import recipe_programs
import tutorial_programs
from programs_support import check, programs_of

MODULES = (
    language_programs, control_flow_programs, library_programs, interface_programs, tutorial_programs, recipe_programs,
    operator_programs, autograd_programs,
)  # fmt: skip
CASES = {name: case for module in MODULES for name, case in programs_of(module).items()}
COMPILED = {
    "rope_complex", "nn_tutorial_whole_step", "custom_autograd_legendre", "set_grad_between", "decorators",
    "partial_requires_grad", "unused_and_multi", "dropout_reproducible", "inplace_inputs",
}  # fmt: skip
# Those that take seconds: left to `run_programs.py`.
LONG = {"dynamic_batches", "jacobians", "parametrizations", "transformer_lm", "dcgan", "noncontiguous"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in LONG])
def test_program(name):
    check(CASES[name], "inductor" if name in COMPILED else "eager")


def test_every_named_program_exists():
    assert set(CASES) >= COMPILED | LONG
