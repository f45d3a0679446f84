"""Runs a graph for the metadata and the memory of its results: of equal ranges, such as the layers of a network, one.

Operators decide from the metadata of their operands what they return and with what it shares memory. So results of a
range that the range itself created are as those of an equal range that was run, in memory of their own, if the operands
have the same metadata. `fx_utils/repeats.py` finds such ranges in graphs that write to no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import fx

from ..fx_utils.repeats import Repeats
from .regions import RangeDiffers, replaced, thread_state
from .trace_memo import Key

T = TypeVar("T")


def run_repeats_once(gm: fx.GraphModule, repeats: Repeats | None, run: Callable[[fx.GraphModule], T]) -> T:
    """`run(gm)`, where `run` interprets the graph on fake tensors of which autograd records none."""
    if repeats is not None:
        first, *others = repeats.ranges
        known = [*first.inputs, *(first.nodes[k] for k in repeats.outputs)]
        noted = _Noted(len(first.inputs))
        shorter = replaced(gm, others, repeats.outputs, lambda each: noted.again, {first.nodes[-1]: (noted, known)})
        try:
            return run(shorter)
        except RangeDiffers:
            pass
    return run(gm)


class _Noted:
    """Called in the graph with the operands and then the results of the range that is run: notes their metadata."""

    def __init__(self, operands: int) -> None:
        self._count = operands
        self._operands: list[Key] = []
        self._results: list[Key] = []
        self._state: Key = ()
        self.__name__ = "noted"

    def __call__(self, *values: Any) -> None:
        """RangeDiffers unless the results are new tensors, each in memory of its own."""
        if not all(isinstance(x, torch.Tensor) for x in values):
            raise RangeDiffers
        operands, results = values[: self._count], values[self._count :]
        memory = {x.untyped_storage()._cdata for x in operands}
        for x in results:
            place = x.untyped_storage()._cdata
            special = x._is_view() or x.is_conj() or x.is_neg() or x.requires_grad or x.is_inference()
            if special or x._version or x.storage_offset() or place in memory:
                raise RangeDiffers
            memory.add(place)
        self._operands, self._results = [*map(_metadata, operands)], [*map(_metadata, results)]
        self._state = thread_state()

    def again(self, *operands: Any) -> tuple[torch.Tensor, ...]:
        """New tensors like the results of the range that was run, for these operands."""
        if [*map(_metadata, operands)] != self._operands or thread_state() != self._state:
            raise RangeDiffers
        return tuple([_new(*each) for each in self._results])


def _metadata(x: torch.Tensor) -> Key:
    flags = x.is_conj(), x.is_neg(), x.requires_grad, x.is_inference()
    return tuple(x.shape), x.stride(), x.dtype, x.device, flags


def _new(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device, _: Any) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)
