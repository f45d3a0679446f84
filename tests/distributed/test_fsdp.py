"""FSDP2 on two processes with gloo, see `fsdp_programs`."""

from __future__ import annotations

import pytest
from ranks import Ranks

PROGRAMS = [
    "whole_then_compiled", "compiled_then_whole", "whole_user_module", "per_block_then_compiled",
    "compiled_blocks_then_sharded", "sharded_blocks_then_compiled", "many_blocks", "not_resharded", "mixed_precision",
    "batch_norm", "gradient_checkpointing", "accumulation", "compiled_optimizer", "clipped_gradients",
    "saved_and_loaded", "evaluation_between_steps",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(ranks: Ranks, program: str) -> None:
    ranks.run("fsdp_programs", program)


def test_parameters_are_gathered_ahead_of_the_backward_as_in_eager(ranks: Ranks) -> None:
    eager, compiled = (ranks.run("fsdp_programs", "events", how) for how in (False, True))
    for want, got in zip(eager, compiled, strict=True):
        assert [name for name in got if name.startswith("FSDP::")] == want
        assert got.count("compiled forward") == got.count("compiled backward") == 5  # four blocks and the head
        for k in (3, 2, 1):  # the parameters of the next block are on their way before a block's backward runs
            start = got.index(f"FSDP::pre_backward (blocks.{k})")
            assert got[start:][2:5] == [
                f"FSDP::backward_prefetch for blocks.{k - 1}", f"FSDP::all_gather (blocks.{k - 1})", "compiled backward"
            ]  # fmt: skip
