"""The programs of `tests/distributed` on GPUs with NCCL: on two of them, and some on four."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import test_collectives
import test_ddp
import test_fsdp
import test_tensor_parallel
import torch
from ranks import Ranks

if torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)
pytest.importorskip("triton")

PROGRAMS = [
    *(("ddp_programs", name) for name in [*test_ddp.PROGRAMS, "sync_batch_norm"]),
    *(("fsdp_programs", name) for name in test_fsdp.PROGRAMS),
    *(("tp_programs", name) for name in test_tensor_parallel.PROGRAMS),
    *(("collective_programs", name) for name in test_collectives.PROGRAMS),
]
ON_FOUR = [
    ("ddp_programs", "small_buckets"), ("fsdp_programs", "per_block_then_compiled"), ("tp_programs", "transformer"),
    ("collective_programs", "in_place"), ("collective_programs", "asynchronous_group"),
]  # fmt: skip
test_buckets_are_sent_between_the_stages_of_the_backward = (
    test_ddp.test_buckets_are_sent_between_the_stages_of_the_backward
)
test_parameters_are_gathered_ahead = test_fsdp.test_parameters_are_gathered_ahead_of_the_backward_as_in_eager


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    group = Ranks(2, "cuda")
    yield group
    group.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    group = Ranks(4, "cuda")
    yield group
    group.close()


@pytest.mark.parametrize(("module", "program"), PROGRAMS)
def test_program(ranks: Ranks, module: str, program: str) -> None:
    ranks.run(module, program)


@pytest.mark.skipif(torch.cuda.device_count() < 4, reason="fewer than four GPUs")
@pytest.mark.parametrize(("module", "program"), ON_FOUR)
def test_program_on_four(four: Ranks, module: str, program: str) -> None:
    four.run(module, program)
