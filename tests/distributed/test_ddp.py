"""DistributedDataParallel on two processes with gloo, see `ddp_programs`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks

PROGRAMS = [
    "ddp_of_compiled", "compiled_ddp", "blocks_compiled_inside", "small_buckets", "small_buckets_outside",
    "gradients_as_views", "step_function", "compiled_optimizer", "accumulation", "static_graph",
    "static_graph_outside", "unused_parameters", "unused_parameters_outside", "batch_norm", "batch_norm_outside",
    "autocast", "communication_hook", "gradient_checkpointing", "gradient_checkpointing_outside", "retained_graph",
    "clipped_gradients", "saved_and_loaded", "evaluation_between_steps", "compiled_before_ddp",
]  # fmt: skip


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    group = Ranks(2)
    yield group
    group.close()


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(ranks: Ranks, program: str) -> None:
    ranks.run("ddp_programs", program)


@pytest.mark.parametrize("outside", [False, True], ids=["DDP(compile(model))", "compile(DDP(model))"])
def test_buckets_are_sent_between_the_stages_of_the_backward(ranks: Ranks, outside: bool) -> None:
    for events in ranks.run("ddp_programs", "overlap", outside):
        print(events)
        kinds = ["bucket" if name.startswith("bucket") else "stage" for name in events]
        assert kinds.count("stage") >= 6, events
        assert kinds.count("bucket") >= 6, events
        first = kinds.index("bucket")
        assert kinds[:first] == ["stage"], events
        # each stage but the last is followed by the bucket whose gradients it has computed
        assert all(a != b for a, b in zip(kinds, kinds[1:])), events
