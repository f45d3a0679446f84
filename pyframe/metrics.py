"""`counters`: the numbers of traced bytecode instructions, graphs, graph breaks, recompilations, cache hits and so on
since the last `reset()`."""

from __future__ import annotations

import collections
import warnings
from typing import Any

RENAMED = {"runs_again": "eager_retries"}


class Counters(dict[str, Any]):
    """Counters by name. `clear` sets all of them to 0 and keeps the names."""

    def __missing__(self, name: str) -> Any:
        """Look up a counter under its former name, with a DeprecationWarning."""
        if name not in RENAMED:
            raise KeyError(name)
        warnings.warn(f"counters[{name!r}] is now counters[{RENAMED[name]!r}]", DeprecationWarning, stacklevel=2)
        return self[RENAMED[name]]

    def clear(self) -> None:
        """Set all counters to 0."""
        super().clear()
        self.update(
            instructions_traced=0,
            graphs=0,
            graph_breaks=collections.Counter(),
            recompiles=0,
            captures_shared=0,
            cache_hits=0,
            cache_misses=0,
            kernels=0,
            graphs_per_size=0,
            eager_retries=0,
            fallbacks=0,
            verified=0,
            verify_failures=0,
            cudagraphs_recorded=0,
            cudagraphs_refused=0,
            templates=0,
            over_budget=0,
            compiled_elsewhere=0,
            not_compiled_elsewhere=0,
            graphs_measured=0,
            graphs_with_aten=0,
            backward_programs=0,
            backward_fallbacks=0,
            transforms=0,
            transforms_not_cached=0,
            frames_loaded=0,
            frames_refused=0,
            frames_kept=0,
            frames_not_kept=collections.Counter(),
        )


counters = Counters()
clear = counters.clear
clear()
