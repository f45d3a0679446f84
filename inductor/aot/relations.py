"""Finds how the results of a graph without gradients are related for autograd: which are views of which tensor, and
which share a version counter. `runtime/related_results.py` gives the results of a plan these relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..runtime.related_results import How, Related

_creation_of = torch._C._autograd._get_creation_meta
_MADE = torch._C._autograd.CreationMeta
_VIEWS: dict[Any, How] = {_MADE.MULTI_OUTPUT_NODE: "one of many", _MADE.NO_GRAD_MODE: "view without gradients"}


def relations(values: Sequence[Any], inputs: Sequence[Any]) -> tuple[Related, ...]:
    """What to do with the results of a plan for autograd to see them as it sees `values`, which the graph returned for
    the tensors among `inputs`, with gradients enabled. Views of inputs that an
    operator with one result made need nothing: plans return them as such. Nothing either is done for a view whose base
    is not a result and in whose memory there is no other result."""
    groups: dict[int, list[int]] = {}
    for k, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            groups.setdefault(value.untyped_storage()._cdata, []).append(k)
    owners = {x.untyped_storage()._cdata: i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
    found = _Relations(values)
    for memory, places in groups.items():
        owner = owners.get(memory)
        found.add(places, None if owner is None else (-1 - owner, inputs[owner]))
    return tuple(found.steps)


def relations_of_detached(values: Sequence[Any], views: Mapping[int, torch.Tensor]) -> tuple[Related, ...]:
    """What to do with the results of a graph with gradients, once they are made. `views`: by place, those of `values`
    that are made as views, each with the tensor of which. Nothing has to be done but for views of other tensors, such
    as the detached form of that tensor, and for results that are the same object."""
    steps: list[Related] = []
    first: dict[int, int] = {}
    bases = {id(x): k for k, x in reversed(list(enumerate(values))) if isinstance(x, torch.Tensor)}
    count = len(values)
    for k, base in views.items():
        x = values[k]
        j = first.setdefault(id(x), k)
        if j != k:
            steps.append(Related(k, j, "same"))
        elif x._is_view() and x._base is not base and not x.requires_grad:
            if id(x._base) not in bases:
                bases[id(x._base)] = count
                steps.append(Related(count, k, "detached"))
                count += 1
            steps.append(Related(k, bases[id(x._base)], _kind(x)))
    return tuple(steps)


class _Relations:
    """Collects `steps` for the results `values`."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values, self.bases, self.steps = values, len(values), list[Related]()

    def add(self, places: Sequence[int], owner: tuple[int, torch.Tensor] | None) -> None:
        """Add the steps for the results at `places`, which share memory. `owner`: the place of the input that they
        share it with, and the input."""
        first: dict[int, int] = {}
        for k in places:
            first.setdefault(id(self.values[k]), k)
        members = {k: self.values[k] for k in first.values()}
        whole = owner[1] if owner is not None else next(iter(members.values()))
        if any(x.dtype != whole.dtype for x in members.values()):
            return  # views of another dtype are left as the plan returns them
        before = len(self.steps)
        if owner is not None:
            self._of_input(members, owner)
        elif len(members) > 1 or any(_kind(x) != "view" for x in members.values() if x._is_view()):
            for n, counted in enumerate(_by_counter(members)):
                self._of_results(counted, first=not n)
        made = {step.place for step in self.steps[before:]}
        for k in places:
            j = first[id(self.values[k])]
            if j != k and j in made:
                self.steps.append(Related(k, j, "same"))

    def _of_input(self, members: Mapping[int, torch.Tensor], owner: tuple[int, torch.Tensor]) -> None:
        place, x = owner
        for counted in _by_counter({k: y for k, y in members.items() if y is not x}):
            shares = share_counter(x, next(iter(counted.values())))
            group = _Group({id(x): place}, place, "detached" if shares else "data")
            for k, y in counted.items():
                if not y._is_view():
                    self._tensor(group, y, k)
            for k, y in counted.items():
                if y._is_view() and not (y._base is x and _kind(y) == "view"):
                    self._view(group, y, k)

    def _of_results(self, members: Mapping[int, torch.Tensor], first: bool) -> None:
        """Steps for results that share a version counter. `first`: none of them is yet what another group of results in
        this memory uses."""
        start = next((k for k, x in members.items() if not x._is_view()), None)
        if start is None:
            group = _Group({}, next(iter(members)), "memory")
        else:
            group = _Group({id(members[start]): start}, start, "detached")
            if not first:
                self.steps.append(Related(start, start, "data"))
        for k, x in members.items():
            if not x._is_view() and k != start:
                self._tensor(group, x, k)
        for k, x in members.items():
            if x._is_view():
                self._view(group, x, k)

    def _tensor(self, group: _Group, x: torch.Tensor, place: int) -> None:
        """A tensor of the group that is no view; a base that is no result has a place after the results."""
        self.steps.append(Related(place, group.source, group.how))
        group.places[id(x)] = place
        if group.how != "detached":
            group.source, group.how = place, "detached"

    def _view(self, group: _Group, x: torch.Tensor, place: int) -> None:
        base = x._base
        assert base is not None
        if id(base) not in group.places:
            self.bases += 1
            self._tensor(group, base, self.bases - 1)
        self.steps.append(Related(place, group.places[id(base)], _kind(x)))


@dataclass
class _Group:
    """Tensors that share a version counter. `places`: by id, those that are no views. The next of these is made from
    the one at `source`, as `how` says."""

    places: dict[int, int]
    source: int
    how: How


def _kind(view: torch.Tensor) -> How:
    return _VIEWS.get(_creation_of(view), "view")


def _by_counter(members: Mapping[int, torch.Tensor]) -> Iterator[dict[int, torch.Tensor]]:
    """The members in groups of those that share a version counter."""
    left = dict(members)
    while left:
        first = next(iter(left.values()))
        group = {k: x for k, x in left.items() if x is first or share_counter(first, x)}
        left = {k: x for k, x in left.items() if k not in group}
        yield group


def share_counter(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether a write to one of two tensors counts as one to the other."""
    before, other = x._version, y._version
    torch.autograd.graph.increment_version(x)
    shares = y._version != other
    torch._C._autograd._unsafe_set_version_counter((x,), (before,))
    return shares
