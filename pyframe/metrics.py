"""What happened since the last `reset()`."""

from __future__ import annotations

import collections
from typing import Any

counters: dict[str, Any] = {}


def clear() -> None:
    counters.clear()
    counters.update(
        graphs=0,
        graph_breaks=collections.Counter(),
        recompiles=0,
        cache_hits=0,
        cache_misses=0,
        kernels=0,
        graphs_per_size=0,
    )


clear()
