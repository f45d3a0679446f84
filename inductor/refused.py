"""Remembers in the disk cache which graphs cannot be compiled as a whole, or for sizes that vary.

A process that starts later does not try again: it would trace and lower the graph only to find the same reason.

Of a graph whose sizes vary every reason is remembered, as nothing but what its key holds is looked at. Of another graph
only that some nodes have to run between its parts is: other reasons depend on the memory of its inputs.
"""

from __future__ import annotations

import contextlib
import marshal
from collections.abc import Iterator

from torch import fx

from .aot.functionalize import RunsBetween
from .budget import OverBudget
from .cache.file_store import shared_cache
from .compile_report import CompileReport
from .errors import Unsupported
from .log.stages import count, show

_SUFFIX = ".refused"


@contextlib.contextmanager
def remembered(key: str | None, gm: fx.GraphModule, report: CompileReport, varies: bool = False) -> Iterator[None]:
    """Around the compilation of a graph whose key in the disk cache is `key` (None: it has none). Raises what that
    raised in an earlier process: Unsupported, or RunsBetween. `varies`: it is for sizes that vary."""
    if key is None:
        yield
        return
    found = _found(key, gm)
    if found is not None:
        report.cache = "hit"
        count("cache_hits")
        show("cache", lambda: f"graph {key}: hit: refused: {found}")
        raise found
    try:
        yield
    except OverBudget:
        raise
    except RunsBetween as error:
        _keep(key, gm, error, error.nodes)
        raise
    except Unsupported as error:
        if varies:
            _keep(key, gm, error, frozenset())
        raise


def _keep(key: str, gm: fx.GraphModule, error: Unsupported, between: frozenset[str]) -> None:
    """Store the message of an error, and the numbers of the nodes with these names, if they are nodes of this graph."""
    numbers = tuple(n for n, node in enumerate(gm.graph.nodes) if node.name in between)
    if len(numbers) == len(between):
        shared_cache().put(key, marshal.dumps((str(error), numbers)), _SUFFIX)


def _found(key: str, gm: fx.GraphModule) -> Unsupported | None:
    data = shared_cache().get(key, _SUFFIX)
    if data is None:
        return None
    reason, numbers = marshal.loads(data)
    nodes = list(gm.graph.nodes)
    return RunsBetween([nodes[n].name for n in numbers], reason) if numbers else Unsupported(reason)
