"""Gives the results of a plan the relations that autograd sees in eager: bases and views, and shared version counters.

A plan returns tensors that share memory as in eager, but each with a version counter of its own, and none of them a
view of another. `related` wraps the plans for which that is visible; the others are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

How = Literal["same", "data", "memory", "detached", "view", "view without gradients", "one of many"]


@dataclass(frozen=True)
class Related:
    """How the value at `place` is made again from the one at `source`, which is in the same memory.

    Places from 0 are the results, then those of bases that are not results; -1 - i is input i, an attribute of the
    graph included. A result keeps its size, strides and offset.

    `how`: "same" is the source itself. The others are new tensors. "data" (`x.data`) has a version counter of its own;
    so has "memory", all of the memory as one dimension, used where only views of a tensor are returned. "detached"
    shares the version counter of the source without being a view of it; in the place of a base it covers the memory
    as well. "view" is a view of the source in the caller's grad mode, "view without gradients" one made under no_grad,
    and "one of many" a view made by an operator that returns several; autograd refuses to record writes to these two.
    """

    place: int
    source: int
    how: How


# A new tensor over the memory of another, which autograd does not know as a view, with a version counter of its own.
_reinterpret: Callable[..., torch.Tensor] = torch._C._dynamo.guards._reinterpret_tensor  # type: ignore[attr-defined]
_is_mode_enabled = torch._C._is_torch_function_mode_enabled
_set_creation = torch._C._autograd._set_creation_meta
_MULTIPLE = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE


def related(
    plan: Callable[..., Any], form: str, steps: Sequence[Related], attributes: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """`plan`, which returns its results in `form` ("tuple", "list" or "single"), with `steps` applied in order.
    `attributes` are the inputs that are bound to the plan."""
    held, relate = tuple(attributes), relating(steps)
    single, as_list = form == "single", form == "list"

    def call(*args: Any) -> Any:
        result = plan(*args)
        if single:
            return relate([result], (*args, *held))[0]
        values = relate(list(result), (*args, *held))
        return values if as_list else tuple(values)

    return call


def relating(steps: Sequence[Related]) -> Callable[[list[Any], Sequence[Any]], list[Any]]:
    """A function of results and inputs that returns the results as `steps` say; it may change the list."""
    makers = [(step.place, step.source, _MAKERS[step.how]) for step in steps]

    def make(values: list[Any], inputs: Sequence[Any]) -> list[Any]:
        count = len(values)
        for place, source, maker in makers:
            if place == len(values):
                values.append(None)
            values[place] = maker(values[source] if source >= 0 else inputs[-1 - source], values[place])
        return values if len(values) == count else values[:count]

    def relate(values: list[Any], inputs: Sequence[Any]) -> list[Any]:
        if _is_mode_enabled():  # these calls must not be visible to the program's torch function modes
            with torch._C.DisableTorchFunction():
                return make(values, inputs)
        return make(values, inputs)

    return relate


def _whole(x: torch.Tensor) -> tuple[int]:
    return (x.untyped_storage().nbytes() // x.element_size(),)


def _memory(source: torch.Tensor, _: None) -> torch.Tensor:
    return _reinterpret(source, _whole(source), (1,), -source.storage_offset())


def _at(source: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    """A view of `source` in the place of `like`; of all of its memory for None."""
    if like is None:
        return source.as_strided(_whole(source), (1,), 0)
    return source.as_strided(like.shape, like.stride(), like.storage_offset())


def _data(source: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    return source.data if source is like else _at(source, like).data


def _detached(source: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    with torch.no_grad():
        return _at(source, like).detach()


def _without_gradients(source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return _at(source, like)


def _one_of_many(source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    view = _at(source, like)
    if torch.is_grad_enabled() and view._is_view():
        _set_creation(view, _MULTIPLE)
    return view


_MAKERS: dict[str, Callable[..., torch.Tensor]] = {
    "same": lambda source, _: source, "data": _data, "memory": _memory, "detached": _detached, "view": _at,
    "view without gradients": _without_gradients, "one of many": _one_of_many,
}  # fmt: skip
