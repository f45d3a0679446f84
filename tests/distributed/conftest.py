"""The processes in which all distributed tests run their programs: starting them takes longer than most programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Two processes with gloo."""
    group = Ranks(2)
    yield group
    group.close()
