"""What happened since the last `reset()`."""

from __future__ import annotations

import collections
from typing import Any


class Counters(dict[str, Any]):
    """Counts by name; `clear` makes them 0, it does not take them away."""

    def clear(self) -> None:
        """All counts are 0 again."""
        super().clear()
        self.update(
            graphs=0,
            graph_breaks=collections.Counter(),
            recompiles=0,
            cache_hits=0,
            cache_misses=0,
            kernels=0,
            graphs_per_size=0,
            eager_retries=0,
            fallbacks=0,
            verified=0,
            verify_failures=0,
        )


counters = Counters()
clear = counters.clear
clear()
