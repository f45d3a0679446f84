"""The programs of tools/tensor_kinds.py, each in one of the ways in which that calls them."""

from __future__ import annotations

import pytest
import tensor_kinds
from tensor_kinds_programs import PROGRAMS

EVERY = [(kind, name) for kind, named in PROGRAMS.items() for name in named]
# The ways take turns, so that a run is short and each kind of tensor is called in all of them.
CASES = [(*program, tensor_kinds.WAYS[k % len(tensor_kinds.WAYS)]) for k, program in enumerate(EVERY)]


@pytest.mark.parametrize("kind, name, way", CASES, ids=lambda value: str(value))
def test_program_gives_what_eager_gives(kind: str, name: str, way: tensor_kinds.Way) -> None:
    outcome = tensor_kinds.check(kind, name, way)
    assert outcome.result == tensor_kinds.RIGHT, outcome.message
