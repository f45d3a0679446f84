"""Collectives on two processes with gloo, see `collective_programs`."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import Ranks

PROGRAMS = [
    "functional_all_reduce", "functional_gather_and_scatter", "functional_all_to_all", "functional_broadcast",
    "functional_coalesced", "joined", "joined_with_gradients", "with_gradients", "differentiable_functions", "in_place", "in_place_on_an_argument",
    "in_place_in_one_graph", "in_place_of_gradients",
    "asynchronous", "asynchronous_group", "point_to_point", "send_and_receive", "objects_and_barriers", "subgroups",
    "data_parallel_by_hand", "different_graphs", "different_sizes",
    "result_used_on_one_rank", "result_of_a_gradient_used_on_one_rank",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(ranks: Ranks, program: str) -> None:
    ranks.run("collective_programs", program)


def test_one_rank_has_a_cache(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run("collective_programs", "one_rank_has_a_cache", str(tmp_path))
