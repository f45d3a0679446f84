"""What each call of a kernel computes, for profiles: operators, and nodes of the captured graph.

The cache of graphs does not depend on where a program's lines are, so a plan refers to nodes of the captured graph by
number; their lines are looked up in the graph at hand when the plan is made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from ..fx_utils.places import place_key
from ..runtime.plan_spec import CallOrigin
from ..schedule.node import Group

_MAX_OPERATORS = 5
_NOT_NAME = re.compile(r"\W+")


def operators(groups: Sequence[Group]) -> list[str]:
    """The names of the first few operators of groups that one kernel computes."""
    names = [_operator_name(getattr(o, "target", "")) for g in groups for m in g.members for o in m.node.origins]
    return list(dict.fromkeys(n for n in names if n not in ("", "output")))[:_MAX_OPERATORS]


@functools.lru_cache(4096)
def _operator_name(target: Any) -> str:
    return _NOT_NAME.sub("_", str(target).removeprefix("aten.").split(".")[0]).strip("_")


def numbers_by_place(captured: fx.Graph) -> dict[tuple[str, str], list[int]]:
    """The numbers of the nodes of a graph that come from the same lines and module."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, node in enumerate(captured.nodes):
        if node.op.startswith("call"):
            numbers.setdefault(place_key(node), []).append(number)
    return numbers


def origin_of(groups: Sequence[Group], numbers: Mapping[tuple[str, str], Sequence[int]]) -> CallOrigin:
    """The origin of one call. `numbers`: of the captured graph, as from `numbers_by_place`."""
    places = dict.fromkeys(place_key(o) for g in groups for m in g.members for o in m.node.origins)
    return CallOrigin(tuple(operators(groups)), tuple(n for place in places for n in numbers.get(place, ())))
