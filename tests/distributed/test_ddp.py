"""DistributedDataParallel on two processes with gloo, see `ddp_programs`."""

from __future__ import annotations

import pytest
from ranks import Ranks

PROGRAMS = [
    "ddp_of_compiled", "compiled_ddp", "blocks_compiled_inside", "small_buckets", "small_buckets_outside",
    "gradients_as_views", "step_function", "compiled_optimizer", "accumulation", "static_graph",
    "static_graph_outside", "unused_parameters", "unused_parameters_outside", "batch_norm", "batch_norm_outside",
    "autocast", "communication_hook", "gradient_checkpointing", "gradient_checkpointing_outside", "retained_graph",
    "clipped_gradients", "saved_and_loaded", "evaluation_between_steps", "compiled_before_ddp",
    "batch_norm_in_stages", "varying_sizes", "shared_memory_of_gradients", "several_results",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(ranks: Ranks, program: str) -> None:
    ranks.run("ddp_programs", program)


@pytest.mark.parametrize("how", ["inside", "outside", "before"])
def test_buckets_are_sent_between_the_stages_of_the_backward(ranks: Ranks, how: str) -> None:
    for events in ranks.run("ddp_programs", "overlap", how):
        # DDP's first bucket is full after the gradients of the head and of one block
        assert events == [name for k in range(7) for name in (f"stage {k + 1}", f"bucket {k}")]
