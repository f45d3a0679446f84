"""Tensor parallelism and DTensors on two processes with gloo, see `tp_programs`."""

from __future__ import annotations

import pytest
from ranks import Ranks

PROGRAMS = [
    "hidden_then_compiled", "compiled_then_parallel", "transformer", "compiled_layers", "sequence_parallel",
    "sharded_data_and_tensors", "tensors_in_and_out", "redistributions", "saved_and_loaded", "placements_change",
    "batches_of_many_sizes", "queries", "gradients_of_other_placements", "embedding_sharded_by_rows",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(ranks: Ranks, program: str) -> None:
    ranks.run("tp_programs", program)
