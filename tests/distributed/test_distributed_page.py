"""The programs of docs/distributed.md run on two processes."""

from __future__ import annotations

import re
from pathlib import Path

from ranks import Rank, Ranks

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def run_page(me: Rank) -> None:
    """All blocks of the page, one after the other, in one namespace."""
    scope: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), scope)


def test_programs_of_the_page(ranks: Ranks) -> None:
    ranks.run("test_distributed_page", "run_page")
