"""Constants of a graph: values that depend on parameters and buffers alone, computed once and again after a change."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..extension import _C
from .aten import map_refs, overload
from .plan_spec import BufRef, Extern

MAX_SETS = 64  # sets of parameters for which constants are kept, as several modules may share one compiled graph
MAX_COMPARED = 1 << 18  # bytes; larger buffers are tables, which no operator writes without counting it
MAX_WASTED = 8  # computations of constants that hardly any call used, after which the graph runs without constants


@dataclass(frozen=True)
class Fold:
    """How the constants of a graph are computed from some of its arguments.

    `inputs`: positions of these parameters and buffers among the arguments, followed by the graph's own attributes.
    They are the buffers 0, 1 ... of `steps`, which call ATen. `results`: the buffers that are the constants. It holds
    no values, so that it may be kept on disk.
    """

    inputs: tuple[int, ...]
    steps: tuple[Extern, ...]
    results: tuple[int, ...]

    def run(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The constants for these parameters and buffers."""
        buffers = self.buffers(given)
        return [buffers[buf] for buf in self.results]

    def buffers(self, given: Sequence[torch.Tensor]) -> dict[int, Any]:
        """The values of all buffers for these parameters and buffers."""
        buffers: dict[int, Any] = dict(enumerate(given))

        def get(ref: BufRef) -> Any:
            return buffers[ref.buf]

        with torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
            for step in self.steps:
                kwargs = {name: map_refs(value, get) for name, value in step.kwargs}
                result = overload(step.target)(*[map_refs(arg, get) for arg in step.args], **kwargs)
                values = result if isinstance(result, tuple | list) else (result,)
                buffers.update((buf, value) for buf, value in zip(step.outs, values) if buf >= 0)
        return buffers


_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _unchanged(tensors: list[Any], refs: tuple[Any, ...], facts: bytes) -> bool:
    """`_C.unchanged` in Python."""
    for x, ref, (version, address, copy, length) in zip(tensors, refs, struct.iter_unpack("4q", facts)):
        if ref() is not x or x._version != version or x.data_ptr() != address:
            return False
        if length and _compare(address, copy, length):
            return False
    return True


unchanged = _unchanged if _C is None else _C.unchanged


class _Constants:
    """The constants for one set of parameters, and what these were like when they were computed.

    A parameter has changed if it is another object, if its version counter has, or if its memory is elsewhere. Its
    storage is kept, so that no other memory can be at the same address. Buffers are compared with a copy, since batch
    norms in training update their statistics without counting it.
    """

    __slots__ = ("calls", "copies", "facts", "first", "refs", "storages", "tensors")

    def __init__(self, fold: Fold, given: Sequence[torch.Tensor], gone: Callable[[Any], Any]) -> None:
        self.first = weakref.ref(given[0], gone)
        self.refs = tuple(map(weakref.ref, given))
        self.storages = [x.untyped_storage() for x in given]
        self.copies = list(map(_copy_of, given))
        # read before the values are
        self.facts = b"".join(_fact(x, copy) for x, copy in zip(given, self.copies))
        self.tensors = fold.run(given)
        self.calls = 0

    def hold(self, given: list[torch.Tensor]) -> bool:
        return unchanged(given, self.refs, self.facts)


def _fact(x: torch.Tensor, copy: torch.Tensor | None) -> bytes:
    contents = (0, 0) if copy is None else (copy.data_ptr(), copy.nbytes)
    return struct.pack("4q", x._version, x.data_ptr(), *contents)


def _copy_of(x: torch.Tensor) -> torch.Tensor | None:
    """A copy of a tensor whose contents have to be compared; None for others."""
    compared = not isinstance(x, torch.nn.Parameter) and x.nbytes <= MAX_COMPARED and x.is_contiguous()
    return x.detach().clone() if compared else None


class FoldedTensors:
    """The constants of a graph for each set of parameters that it is called with.

    Writes that no version counter counts are not seen: those through `x.data`, NumPy or another process.
    """

    def __init__(self, fold: Fold, attributes: Sequence[torch.Tensor]) -> None:
        self.fold, self.attributes = fold, tuple(attributes)
        self.sets: dict[int, _Constants] = {}  # by the id of the first parameter
        self.wasted = 0

    def of(self, args: Sequence[Any]) -> list[torch.Tensor] | None:
        """The constants for a call with these arguments, the same list as long as no parameter changes. None if the
        graph has to run without: parameters without version counters, or that change at almost every call."""
        given = self.given(args)
        known = self.sets.get(id(given[0]))
        if known is None or not known.hold(given):
            if self.wasted >= MAX_WASTED or any(x.is_inference() for x in given):
                return None
            known = self._computed(given, known)
        known.calls += 1
        return known.tensors

    def given(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The parameters and buffers among the arguments of a call."""
        n = len(args)
        return [args[i] if i < n else self.attributes[i - n] for i in self.fold.inputs]

    def _computed(self, given: list[torch.Tensor], before: _Constants | None) -> _Constants:
        if before is not None:
            self.wasted = self.wasted + 1 if before.calls < 2 else 0
        while len(self.sets) >= MAX_SETS:
            self.sets.pop(next(iter(self.sets)), None)
        key = id(given[0])
        sets = self.sets
        made = sets[key] = _Constants(self.fold, given, lambda _: sets.pop(key, None))
        return made


class FrozenCall:
    """A compiled graph with constants. `make(constants)` returns the callable for certain constants, and `unfrozen()`
    one that computes everything at each call."""

    def __init__(
        self,
        folded: FoldedTensors,
        make: Callable[[Sequence[torch.Tensor]], Callable[..., Any]],
        unfrozen: Callable[[], Callable[..., Any]],
    ) -> None:
        self.folded, self.make, self.unfrozen = folded, make, unfrozen
        self.plans: dict[int, tuple[list[torch.Tensor], Callable[..., Any]]] = {}  # by the id of the constants
        self.otherwise: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        constants = self.folded.of(args)
        if constants is None:
            if self.otherwise is None:
                self.otherwise = self.unfrozen()
            return self.otherwise(*args)
        found = self.plans.get(id(constants))
        if found is None:
            current = {id(known.tensors) for known in list(self.folded.sets.values())}
            self.plans = {key: plan for key, plan in list(self.plans.items()) if key in current}
            found = self.plans[id(constants)] = constants, self.make(constants)
        return found[1](*args)
